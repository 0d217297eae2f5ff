/** What every export does on the disk. tests/scripts/export.test.ts reads the exported policies. */
import { expect, test } from "bun:test";
import { appendFileSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { whole } from "../../../actors/policy/export.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";

test("of two exports to one file at once, the one that ends first is there whole, and the other is refused", async () => {
  const folder = temporaryFolder();
  const file = join(folder, "policy.gguf");
  const doors = [Promise.withResolvers<void>(), Promise.withResolvers<void>()] as const;
  const exporting = doors.map(({ promise }, i) =>
    whole(file, async (pending) => {
      appendFileSync(pending, `${i} `);
      await promise;
      appendFileSync(pending, `${i}`);
    }),
  );
  doors[0].resolve();
  await exporting[0];
  expect(readFileSync(file, "utf8")).toBe("0 0");
  doors[1].resolve();
  await expect(exporting[1]).rejects.toThrow(`cannot export to ${file}: ${file} exists; choose another --out`);
  expect([readdirSync(folder), readFileSync(file, "utf8")]).toEqual([["policy.gguf"], "0 0"]);
});

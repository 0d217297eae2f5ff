import { expect, test } from "bun:test";
import { appendFileSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { appendWhole, writeWhole } from "../../../actors/checkpoint/disk.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";

test("replaces a file at its end; one that cannot be written whole leaves the former one", async () => {
  const folder = temporaryFolder();
  const file = join(folder, "file");
  const during: string[][] = [];
  const write = (text: string) => (pending: string) => {
    writeFileSync(pending, text);
    during.push(readdirSync(folder).toSorted());
    if (text === "half") throw new Error("no room");
  };
  await writeWhole(file, write("first"));
  await expect(writeWhole(file, write("half"))).rejects.toThrow("no room");
  expect([readdirSync(folder), readFileSync(file, "utf8")]).toEqual([["file"], "first"]);
  await writeWhole(file, write("second"));
  expect([readdirSync(folder), readFileSync(file, "utf8")]).toEqual([["file"], "second"]);
  const pending = expect.stringMatching(/^file\.[0-9a-f]{8}\.writing$/);
  expect(during).toEqual([[pending], ["file", pending], ["file", pending]]);
});

test("episodes that a full disk cuts off leave no half line, and the error names the file", () => {
  const file = join(temporaryFolder(), "episodes.jsonl");
  writeFileSync(file, '{"one": 1}\n');
  const untilFull = (path: string, text: string) => {
    appendFileSync(path, text.slice(0, 5));
    throw Object.assign(new Error("ENOSPC: no space left on device, write"), { code: "ENOSPC" });
  };
  expect(() => appendWhole(file, '{"two": 2}\n', untilFull)).toThrow(
    `cannot write to ${file}: ENOSPC: no space left on device, write; the file is unchanged. Free disk space`,
  );
  expect(readFileSync(file, "utf8")).toBe('{"one": 1}\n');
  appendWhole(file, '{"two": 2}\n');
  expect(readFileSync(file, "utf8")).toBe('{"one": 1}\n{"two": 2}\n');
});

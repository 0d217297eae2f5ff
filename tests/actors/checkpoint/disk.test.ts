import { afterAll, expect, test } from "bun:test";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { writeWhole } from "../../../actors/checkpoint/disk.ts";
import { removeTemporaryFolders, temporaryFolder } from "../../scripts/temporary.ts";

afterAll(removeTemporaryFolders);

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

import { afterAll, expect, test } from "bun:test";
import { appendFileSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { appendWhole } from "../../../actors/checkpoint/disk.ts";
import { removeTemporaryFolders, temporaryFolder } from "../../scripts/temporary.ts";

afterAll(removeTemporaryFolders);

test("episodes that a full disk cuts off leave no half line, and the error names the file", () => {
  const file = join(temporaryFolder(), "episodes.jsonl");
  writeFileSync(file, '{"one": 1}\n');
  const untilFull = (path: string, text: string) => {
    appendFileSync(path, text.slice(0, 5));
    throw new Error("ENOSPC: no space left on device, write");
  };
  expect(() => appendWhole(file, '{"two": 2}\n', untilFull)).toThrow(
    `cannot write to ${file}: ENOSPC: no space left on device, write; the file keeps what it had. Make room`,
  );
  expect(readFileSync(file, "utf8")).toBe('{"one": 1}\n');
  appendWhole(file, '{"two": 2}\n');
  expect(readFileSync(file, "utf8")).toBe('{"one": 1}\n{"two": 2}\n');
});

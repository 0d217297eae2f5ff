/** How a run was started, from its file. */
import { expect, test } from "bun:test";
import { appendFileSync } from "node:fs";
import { join } from "node:path";
import { addStart, readStarts } from "../../../actors/record/starts.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";

test("starts are read oldest first; a blank line is none, and a wrong one is named", () => {
  const folder = temporaryFolder();
  expect(readStarts(folder)).toEqual([]);
  const start = { at: "2026-11-24T05:00:00.000Z", commit: null, versions: { bun: "1.4.4" }, machine: "m" };
  const [first, second] = ["run", "resume"].map((command) => ({ ...start, command }));
  addStart(folder, first!);
  const file = join(folder, "starts.jsonl");
  appendFileSync(file, "\n");
  addStart(folder, second!);
  expect(readStarts(folder)).toEqual([first!, second!]);
  appendFileSync(file, '{"at": "yesterday"}\n');
  expect(() => readStarts(folder)).toThrow(`cannot read ${file}, line 4: `);
});

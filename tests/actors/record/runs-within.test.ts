import { afterAll, expect, test } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { readRunConfig } from "../../../actors/policy/saved-policy.ts";
import { RecordedRun } from "../../../actors/record/recorded-run.ts";
import { removeTemporaryFolders, temporaryFolder } from "../../scripts/temporary.ts";

afterAll(removeTemporaryFolders);

test("a folder of runs in place of a run is refused with the name of one of its runs", () => {
  const sweep = temporaryFolder();
  for (const name of ["b-s1", "a-s1", "notes"]) mkdirSync(join(sweep, name));
  for (const name of ["b-s1", "a-s1"]) writeFileSync(join(sweep, name, "config.json"), "{}");
  const runs = `the folder holds runs: name one, such as ${join(sweep, "a-s1")}`;
  expect(() => new RecordedRun(sweep)).toThrow(`no run in ${sweep}: there is no run.sqlite; ${runs}`);
  expect(() => readRunConfig(sweep)).toThrow(`no run in ${sweep}: there is no config.json; ${runs}`);
});

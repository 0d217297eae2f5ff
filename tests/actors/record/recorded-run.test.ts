import { afterAll, expect, test } from "bun:test";
import { join } from "node:path";
import { Store } from "../../../actors/metrics-sink/store.ts";
import { RecordedRun } from "../../../actors/record/recorded-run.ts";
import { removeTemporaryFolders, temporaryFolder } from "../../scripts/temporary.ts";
import { openFilesIn } from "../metrics-sink/open-files.ts";

afterAll(removeTemporaryFolders);

test("a run that never started is refused, and its file is closed", () => {
  const folder = temporaryFolder();
  new Store({ path: join(folder, "run.sqlite"), durability: "normal", wallClock: () => 0 }).close();
  expect(() => new RecordedRun(folder)).toThrow("its run.sqlite is of a run that never started");
  expect(openFilesIn(folder)).toEqual([]);
});

/** What a learner goes on from: the progress of its checkpoint. */
import { expect, test } from "bun:test";
import type { Checkpoint } from "../../../actors/checkpoint/checkpoint.ts";
import { realDisk } from "../../../actors/checkpoint/disk.ts";
import { LearnerCheckpoints, type LearnerCheckpointsOptions } from "../../../actors/learner/checkpoints.ts";
import { type Progress, startOfRun } from "../../../actors/training/progress.ts";
import { configOf } from "../training/stage.ts";

test("an early stop is due until the run is finished, and not in a run that is prolonged", () => {
  const due = { kind: "early-stop", text: "solved" } as const;
  const state: Progress = { ...startOfRun(configOf()), update: 4, due };
  const resumed = (prolonged: boolean) => {
    const unused = { networks: {}, trainer: {} } as Pick<LearnerCheckpointsOptions, "networks" | "trainer">;
    const saved = { update: 4, state } as Checkpoint;
    const folders = { checkpoints: "checkpoints", reference: "reference" };
    const options = { ...folders, disk: realDisk, keep: 3, tokenizer: "t", saved, prolonged, notice: () => {} };
    return new LearnerCheckpoints({ ...unused, ...options }).resumed;
  };
  expect(resumed(false)).toEqual(state);
  expect(resumed(true)).toEqual({ ...state, due: null });
});

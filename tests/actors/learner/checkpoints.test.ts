/** What a learner goes on from: the progress of its checkpoint. */
import { afterAll, expect, test } from "bun:test";
import { readdirSync, truncateSync } from "node:fs";
import { join } from "node:path";
import { type Checkpoint, latestCheckpoint, saveCheckpoint } from "../../../actors/checkpoint/checkpoint.ts";
import { realDisk } from "../../../actors/checkpoint/disk.ts";
import { LearnerCheckpoints, type LearnerCheckpointsOptions } from "../../../actors/learner/checkpoints.ts";
import { type Progress, startOfRun } from "../../../actors/training/progress.ts";
import { removeTemporaryFolders, temporaryFolder } from "../../scripts/temporary.ts";
import { checkpointOf } from "../checkpoint/faulty-disk.ts";
import { configOf } from "../training/stage.ts";

afterAll(removeTemporaryFolders);

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

test("a new checkpoint stays, however many damaged ones of later updates there are", async () => {
  const folder = temporaryFolder();
  for (const update of [3, 6]) {
    truncateSync(join(await saveCheckpoint(folder, checkpointOf(update)), "policy.safetensors"), 10);
  }
  const { model, policy } = checkpointOf(0);
  const checkpoints = new LearnerCheckpoints({
    checkpoints: folder,
    reference: "",
    disk: realDisk,
    keep: 1,
    tokenizer: "t",
    networks: { model, policy, critic: null } as unknown as LearnerCheckpointsOptions["networks"],
    trainer: {
      prepareCheckpoint: async () => ({ policy: 4, critic: null, served: null }),
    } as unknown as LearnerCheckpointsOptions["trainer"],
    saved: null,
    prolonged: false,
    notice: () => {},
  });
  await checkpoints.save({ ...startOfRun(configOf()), update: 4 });
  expect(readdirSync(folder).sort()).toEqual(["u000004", "u000006"]);
  expect((await latestCheckpoint(folder)).found).toBe(join(folder, "u000004"));
});

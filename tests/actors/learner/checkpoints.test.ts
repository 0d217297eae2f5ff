/** What a resumed learner begins with: the progress in its checkpoint, its networks, and the reference policy. */
import { describe, expect, test } from "bun:test";
import { readdirSync, truncateSync } from "node:fs";
import { join } from "node:path";
import { type Checkpoint, latestCheckpoint, saveCheckpoint } from "../../../actors/checkpoint/checkpoint.ts";
import { realDisk } from "../../../actors/checkpoint/disk.ts";
import { LearnerCheckpoints, type LearnerCheckpointsOptions } from "../../../actors/learner/checkpoints.ts";
import { type Progress, startOfRun } from "../../../actors/training/progress.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";
import { checkpointOf } from "../checkpoint/faulty-disk.ts";
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

type Networks = LearnerCheckpointsOptions["networks"];

/** Checkpoints in a folder of their own, and what the trainer was told. */
function learner(networks: Networks, saved: Checkpoint | null = null, folder = temporaryFolder()) {
  const told: [name: string, value: unknown][] = [];
  const checkpoints = new LearnerCheckpoints({
    checkpoints: join(folder, "checkpoints"),
    reference: join(folder, "reference"),
    disk: realDisk,
    keep: 3,
    tokenizer: "t",
    networks,
    trainer: {
      resumeFrom: async (steps: unknown) => void told.push(["resumeFrom", steps]),
      keepReference: async (parameters: unknown) => void told.push(["keepReference", parameters]),
    } as unknown as LearnerCheckpointsOptions["trainer"],
    saved,
    prolonged: false,
    notice: () => {},
  });
  return { checkpoints, told, folder };
}

const networksOf = (update: number) => {
  const { model, policy, critic } = checkpointOf(update);
  return { model, policy, critic: { model, memory: critic! }, frozen: null, served: null } satisfies Networks;
};

test("a roll-back restores policy, critic and both optimizers", async () => {
  const networks = networksOf(9);
  const { checkpoints, told, folder } = learner(networks);
  const { policy, critic, state } = checkpointOf(6);
  await saveCheckpoint(join(folder, "checkpoints"), checkpointOf(6));
  await saveCheckpoint(join(folder, "checkpoints"), checkpointOf(9));
  expect(await checkpoints.restore(6)).toEqual(state as Progress);
  expect(networks.policy).toEqual({ ...policy, step: networks.policy.step });
  expect(networks.critic.memory).toEqual({ ...critic!, step: networks.critic.memory.step });
  expect(told).toEqual([["resumeFrom", { policy: policy.step, critic: critic!.step, served: null }]]);
  const { found } = await latestCheckpoint(join(folder, "checkpoints"));
  expect(found).toBe(join(folder, "checkpoints", "u000006"));
});

describe("the reference", () => {
  test("is the policy that reinforcement began with, also for a run that is resumed", async () => {
    const begun = learner(networksOf(0));
    await begun.checkpoints.keepReference();
    const { parameters } = networksOf(0).policy;
    expect(begun.told).toEqual([["keepReference", parameters]]);
    const resumed = learner(networksOf(6), checkpointOf(6), begun.folder);
    await resumed.checkpoints.keepReference();
    expect(resumed.told).toEqual([["keepReference", parameters]]);
  });

  test("of adapters is the model below them, which the trainer has", async () => {
    const networks = networksOf(0);
    const { checkpoints, told } = learner({
      ...networks,
      model: { ...networks.model, lora: { rank: 2, alpha: 2, targets: ["q_proj"] } },
    });
    await checkpoints.keepReference();
    expect(told).toEqual([["keepReference", null]]);
  });

  test("of a resumed run must be there", async () => {
    const { checkpoints } = learner(networksOf(6), checkpointOf(6));
    await expect(checkpoints.keepReference()).rejects.toThrow("holds no intact checkpoint of the reference policy");
  });
});

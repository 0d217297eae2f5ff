/**
 * The learner's files: checkpoints of the networks, and the reference policy, if a KL term needs one.
 * `Saving` of training/training.ts decides when the learner writes checkpoints. The folder checkpoint/ defines the format of the files.
 */
import {
  type Checkpoint,
  keepCheckpoints,
  latestCheckpoint,
  loadCheckpoint,
  rollBackTo,
  saveCheckpoint,
} from "../checkpoint/checkpoint.ts";
import type { Disk } from "../checkpoint/disk.ts";
import { messageOf, RunError } from "../errors.ts";
import type { Remote } from "../process/worker-rpc.ts";
import type { Progress } from "../training/progress.ts";
import { fill, type Networks } from "./networks.ts";
import type { TrainerMethods } from "./trainer.ts";

/** The newest intact checkpoint; null if there is none. @param skipped  is called for each damaged newer checkpoint and each unfinished folder */
export async function newestCheckpoint(
  folder: string,
  disk: Disk,
  skipped: (path: string, reason: string) => void,
): Promise<Checkpoint | null> {
  await disk.makeFolder(folder);
  const latest = await latestCheckpoint(folder, disk);
  for (const { path, reason } of latest.skipped) skipped(path, reason);
  return latest.found === null ? null : loadCheckpoint(latest.found, disk);
}

export interface LearnerCheckpointsOptions {
  /** Folder of the checkpoints. */
  readonly checkpoints: string;
  /** Folder of the reference: the policy that reinforcement began with. */
  readonly reference: string;
  readonly disk: Disk;
  /** Number of newest checkpoints to keep. `save` also keeps the last healthy checkpoint and the checkpoint of the best update, if they exist. */
  readonly keep: number;
  /** Digest of the policy's tokenizer. */
  readonly tokenizer: string;
  readonly networks: Networks;
  readonly trainer: Remote<TrainerMethods>;
  /** The checkpoint that this process resumed from; null if the run had no checkpoint. */
  readonly saved: Checkpoint | null;
  /** True if the run finished at `saved` and now continues. Then the condition that ended the run does not end the run a second time. */
  readonly prolonged: boolean;
  readonly notice: (text: string) => void;
}

export class LearnerCheckpoints {
  readonly #options: LearnerCheckpointsOptions;
  /** The progress in the checkpoint that this process resumed from; null if the run had no checkpoint. */
  readonly resumed: Progress | null;

  constructor(options: LearnerCheckpointsOptions) {
    this.#options = options;
    const { saved, prolonged } = options;
    const state = saved === null ? null : (saved.state as Progress);
    this.resumed = state !== null && prolonged ? { ...state, due: null } : state;
  }

  /** @throws {CheckpointError} if the checkpoint cannot be written; earlier checkpoints stay unchanged */
  async save(progress: Progress): Promise<void> {
    const { checkpoints, disk, keep, tokenizer, trainer, networks } = this.#options;
    const { model, policy, critic } = networks;
    const steps = await trainer.prepareCheckpoint();
    const checkpoint: Checkpoint = {
      update: progress.update,
      model,
      tokenizer,
      state: progress,
      policy: { ...policy, step: steps.policy },
      served: steps.served,
      critic: critic === null ? null : { ...critic.memory, step: steps.critic! },
      criticHead: critic?.model.head === "both" ? "both" : "value",
    };
    await saveCheckpoint(checkpoints, checkpoint, disk);
    // Keep this checkpoint too. It may not be among the newest, because the folder may have damaged checkpoints of later updates.
    const spared = [progress.update, progress.best?.update, progress.health.healthyCheckpoint].filter(
      (at) => typeof at === "number",
    );
    await keepCheckpoints(checkpoints, keep, spared, disk).catch((error) =>
      this.#options.notice(`older checkpoints cannot be removed: ${messageOf(error)}`),
    );
  }

  /** Loads the checkpoint of `update` into the networks, and renames later checkpoints, so that no run resumes from them. */
  async restore(update: number): Promise<Progress> {
    const { checkpoints, disk, networks, trainer } = this.#options;
    const {
      policy,
      critic,
      state,
      served = null,
    } = await loadCheckpoint(await rollBackTo(checkpoints, update, disk), disk);
    fill(networks.policy, policy);
    if (networks.critic !== null) fill(networks.critic.memory, critic!);
    await trainer.resumeFrom({ policy: policy.step, critic: critic?.step ?? null, served });
    return state as Progress;
  }

  /** Sets the reference of KL terms: the policy that reinforcement began with, or the base model if the run trains adapters. */
  async keepReference(): Promise<void> {
    const { trainer, networks } = this.#options;
    // The trainer already has the base model of adapters.
    await trainer.keepReference(networks.model.lora === null ? await this.#reference() : null);
  }

  /** The parameters of the reference. Checkpoints do not hold the reference, so a new run saves it once, in the folder `reference`. */
  async #reference(): Promise<Float32Array> {
    const { reference, disk, tokenizer, networks } = this.#options;
    const { model, policy } = networks;
    if (this.resumed === null) {
      const zeros = new Float32Array(policy.parameters.length);
      const start = { parameters: policy.parameters, moment: zeros, variance: zeros, step: 0 };
      await saveCheckpoint(reference, { update: 0, model, tokenizer, state: {}, critic: null, policy: start }, disk);
      return policy.parameters;
    }
    const { found } = await latestCheckpoint(reference, disk);
    if (found !== null) return (await loadCheckpoint(found, disk)).policy.parameters;
    throw new RunError(
      `${reference} holds no intact checkpoint of the reference policy, and the KL term needs one; restore this folder, or start a new run`,
    );
  }
}

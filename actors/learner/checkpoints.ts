/**
 * The learner's files: checkpoints of its networks, and the reference policy, if a KL term needs one.
 * `Saving` of training/training.ts decides when checkpoints are written; checkpoint/ knows their format.
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

/** The newest intact checkpoint; null if there is none. @param skipped  called for newer damaged checkpoints, and for unfinished folders */
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
  /** Folder of the policy that reinforcement began with. */
  readonly reference: string;
  readonly disk: Disk;
  /** Newest checkpoints kept, besides the last healthy one and, if its update was saved, the best. */
  readonly keep: number;
  /** Digest of the policy's tokenizer. */
  readonly tokenizer: string;
  readonly networks: Networks;
  readonly trainer: Remote<TrainerMethods>;
  /** The checkpoint that this process resumed from; null for a new run. */
  readonly saved: Checkpoint | null;
  /** True if the run had finished at `saved` and is now prolonged. The condition that ended it then does not end it again. */
  readonly prolonged: boolean;
  readonly notice: (text: string) => void;
}

export class LearnerCheckpoints {
  readonly #options: LearnerCheckpointsOptions;
  /** Progress of the checkpoint that this process resumed from; null for a new run. */
  readonly resumed: Progress | null;

  constructor(options: LearnerCheckpointsOptions) {
    this.#options = options;
    const { saved, prolonged } = options;
    const state = saved === null ? null : (saved.state as Progress);
    this.resumed = state !== null && prolonged ? { ...state, due: null } : state;
  }

  /** @throws {CheckpointError} if it cannot be written; earlier checkpoints stay as they are */
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
    // The folder may have damaged checkpoints of later updates. Because of them this checkpoint may not be among the newest.
    const spared = [progress.update, progress.best?.update, progress.health.healthyCheckpoint].filter(
      (at) => typeof at === "number",
    );
    await keepCheckpoints(checkpoints, keep, spared, disk).catch((error) =>
      this.#options.notice(`older checkpoints cannot be removed: ${messageOf(error)}`),
    );
  }

  /** Loads the checkpoint of this update into the networks, and sets later checkpoints aside. */
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

  /** From now on KL terms compare with the policy that reinforcement began with; for a policy of adapters, with the model without them. */
  async keepReference(): Promise<void> {
    const { trainer, networks } = this.#options;
    // The trainer has the model without adapters.
    await trainer.keepReference(networks.model.lora === null ? await this.#reference() : null);
  }

  /** Checkpoints do not hold the reference, so it is saved once, in a folder of its own. */
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
      `${reference} holds no intact checkpoint of the policy that the run began with, which a KL term needs; restore it, or start a new run`,
    );
  }
}

/**
 * What a learner keeps on disk, and how it goes on from there: checkpoints of its networks, and, where a KL term needs it, the
 * policy that reinforcement began with. When they are made is training.ts's affair; their files are checkpoint.ts's.
 */
import { mkdirSync } from "node:fs";
import {
  type Checkpoint,
  goBackTo,
  keepCheckpoints,
  latestCheckpoint,
  loadCheckpoint,
  saveCheckpoint,
} from "../checkpoint/checkpoint.ts";
import { RunError } from "../errors.ts";
import type { Remote } from "../process/worker-rpc.ts";
import type { Progress } from "../training/report.ts";
import { fill, type Networks } from "./networks.ts";
import type { TrainerMethods } from "./trainer.ts";

/** The newest that is whole; null if there is none. @param notUsed  is told of each that is not whole, and why */
export async function newestCheckpoint(
  folder: string,
  notUsed: (path: string, reason: string) => void,
): Promise<Checkpoint | null> {
  mkdirSync(folder, { recursive: true });
  const { found, skipped } = await latestCheckpoint(folder);
  for (const { path, reason } of skipped) notUsed(path, reason);
  return found === null ? null : loadCheckpoint(found);
}

export interface LearnerCheckpointsOptions {
  readonly checkpoints: string;
  /** Folder of the policy that reinforcement began with. */
  readonly reference: string;
  /** Checkpoints kept, beside those that somebody may still go back to. */
  readonly keep: number;
  /** Digest of what speaks for the policy. */
  readonly tokenizer: string;
  readonly networks: Networks;
  readonly trainer: Remote<TrainerMethods>;
  /** This run goes on from a checkpoint. */
  readonly resumed: boolean;
}

export class LearnerCheckpoints {
  readonly #options: LearnerCheckpointsOptions;

  constructor(options: LearnerCheckpointsOptions) {
    this.#options = options;
  }

  async save(progress: Progress): Promise<void> {
    const { checkpoints, keep, tokenizer, trainer, networks } = this.#options;
    const { model, policy, critic } = networks;
    const steps = await trainer.steps();
    await saveCheckpoint(checkpoints, {
      update: progress.update,
      model,
      tokenizer,
      state: progress,
      policy: { ...policy, step: steps.policy },
      critic: critic === null ? null : { ...critic.memory, step: steps.critic! },
      criticHead: critic?.model.head === "both" ? "both" : "value",
    });
    const spared = [progress.best?.update, progress.health.healthyCheckpoint];
    await keepCheckpoints(
      checkpoints,
      keep,
      spared.filter((at) => typeof at === "number"),
    );
  }

  async restore(update: number): Promise<Progress> {
    const { checkpoints, networks, trainer } = this.#options;
    const { policy, critic, state } = await loadCheckpoint(await goBackTo(checkpoints, update));
    fill(networks.policy, policy);
    if (networks.critic !== null) fill(networks.critic.memory, critic!);
    await trainer.goOnFrom({ policy: policy.step, critic: critic?.step ?? null });
    return state as Progress;
  }

  async keepReference(): Promise<void> {
    const { trainer, networks } = this.#options;
    // The model that adapters belong to needs no keeping.
    await trainer.keepReference(networks.frozen === null ? await this.#reference() : null);
  }

  /** The policy that reinforcement began with, which checkpoints do not hold: kept once, in a folder of its own. */
  async #reference(): Promise<Float32Array> {
    const { reference, tokenizer, resumed, networks } = this.#options;
    const { model, policy } = networks;
    if (!resumed) {
      const still = new Float32Array(policy.parameters.length);
      const start = { parameters: policy.parameters, moment: still, variance: still, step: 0 };
      await saveCheckpoint(reference, { update: 0, model, tokenizer, state: {}, critic: null, policy: start });
      return policy.parameters;
    }
    const { found } = await latestCheckpoint(reference);
    if (found !== null) return (await loadCheckpoint(found)).policy.parameters;
    throw new RunError(
      `${reference} holds no whole checkpoint, and a KL term needs the policy that the run began with`,
    );
  }
}

/**
 * When a training saves itself, and what becomes of a checkpoint that cannot be written. What is saved is the context's affair.
 *
 * - Who goes on from a checkpoint does not make its updates again, so their episodes are in the trajectory log before it is there.
 *   While they cannot be stored none is made, but for the last one.
 * - On the way it is said, and learning goes on; at the end there is no later chance, and the run has failed.
 */
import { CheckpointError } from "../checkpoint/checkpoint.ts";
import type { HealthConfig } from "../config/health.ts";
import { RunError } from "../errors.ts";
import type { TrainingContext } from "./context.ts";
import { isWell } from "./health.ts";
import type { Progress } from "./report.ts";

/** The verdict waits until a sign has lasted; validation may know before it that this is no policy to go back to. */
function hasFallen({ validated, best }: Progress, { successShare, successFall }: HealthConfig["trap"]): boolean {
  if (validated === null || best === null) return false;
  const fall = best.success - validated.success;
  return validated.success < successShare * best.success && fall >= successFall;
}

/** Time for the trajectory log to take what it was not told yet: a sink that died is back by then. */
const STORED_MS_MAX = { onTheWay: 4000, atEnd: 1000 };

export class Saving {
  readonly #context: TrainingContext;
  /** Update of the newest checkpoint; -1 without one. */
  #savedUpdate: number;

  constructor(context: TrainingContext) {
    this.#context = context;
    this.#savedUpdate = context.resumed?.update ?? -1;
  }

  /** @returns the progress, which now knows of its checkpoint. */
  async onTheWay(progress: Progress): Promise<Progress> {
    if (this.#savedUpdate >= progress.update) return progress;
    const { rows } = await this.#context.reporter.drain(STORED_MS_MAX.onTheWay);
    if (rows > 0) {
      this.#context.warn("checkpoint", `update ${progress.update} is not saved: ${rows} episodes are not stored yet`);
      return progress;
    }
    try {
      return await this.#save(progress);
    } catch (error) {
      if (!(error instanceof CheckpointError)) throw error;
      this.#context.warn("checkpoint", error.message);
      return progress;
    }
  }

  /** The run went back: its checkpoint of this update is not the one that it goes on from. */
  rolledBack(progress: Progress): Promise<Progress> {
    this.#savedUpdate = -1;
    return this.onTheWay(progress);
  }

  /** What was learnt so far, if anything was. */
  async atEnd(progress: Progress): Promise<void> {
    const { update, before } = progress;
    if (before === null) return;
    await this.#context.reporter.drain(STORED_MS_MAX.atEnd);
    try {
      if (this.#savedUpdate < update) await this.#save(progress);
    } catch (error) {
      if (!(error instanceof CheckpointError)) throw error;
      throw new RunError(`what was learnt after update ${Math.max(0, this.#savedUpdate)} is lost: ${error.message}`);
    }
    this.#context.say("saved", `saved update ${update} of ${this.#context.config.learner.updates}`);
  }

  async #save(progress: Progress): Promise<Progress> {
    const { clock, config, reporter, save } = this.#context;
    const { update, health } = progress;
    const started = clock.now();
    const well = isWell(health.verdict) && !hasFallen(progress, config.health.trap);
    const saved = well ? { ...progress, health: { ...health, healthyCheckpoint: update } } : progress;
    await save(saved);
    this.#savedUpdate = update;
    reporter.metrics(update, { "speed/checkpoint_s": (clock.now() - started) / 1000 });
    return saved;
  }
}

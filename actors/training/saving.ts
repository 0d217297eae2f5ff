/**
 * When a run saves checkpoints, and what happens if one cannot be written.
 *
 * - A resumed run does not repeat the updates before its checkpoint, so the trajectory log must hold their episodes before the
 *   checkpoint is written. While episodes cannot be stored no checkpoint is written, except the last one: without it all updates since
 *   then would be lost.
 * - A failed checkpoint is a warning and training continues; if the last one fails, the run fails.
 */
import { TRAP_RULE } from "../../model/health/echo-trap/echo-trap.ts";
import { CheckpointError } from "../checkpoint/checkpoint.ts";
import type { HealthConfig } from "../config/health.ts";
import { RunError } from "../errors.ts";
import { plural } from "../number-text.ts";
import type { TrainingContext } from "./context.ts";
import { hasNoSign } from "./health.ts";
import { advance, type Progress } from "./progress.ts";

/** True if validation success fell far below its best. Then no roll-back goes to this policy, even before the detector's verdict is bad. */
function hasFallen({ validated, best }: Progress, { successFall }: HealthConfig["trap"]): boolean {
  if (validated === null || best === null) return false;
  const fall = best.success - validated.success;
  return validated.success < TRAP_RULE.successShare * best.success && fall >= successFall;
}

/**
 * Time for the sink to store the episodes reported so far. During a run it covers the restart of a sink that died. At the run's natural
 * end `supervisor.heartbeatDeadlineMs` comes on top, because no later checkpoint makes up for one that came too early.
 */
const STORED_MS_MAX = { duringRun: 4000, atStop: 1000 };

export class Saving {
  readonly #context: TrainingContext;
  /** Update of the newest checkpoint; -1 without one. */
  #savedUpdate: number;

  constructor(context: TrainingContext) {
    this.#context = context;
    this.#savedUpdate = context.checkpoints.resumed?.update ?? -1;
  }

  /** @returns the progress, which may have a new healthy checkpoint */
  async duringRun(progress: Progress): Promise<Progress> {
    if (this.has(progress)) return progress;
    const { log, reporter } = this.#context;
    const { rows } = await reporter.drain(STORED_MS_MAX.duringRun);
    if (rows > 0) {
      log.event(
        "warning",
        "checkpoint",
        `the checkpoint of update ${progress.update} is left out; not stored yet: ${plural(rows, "episode")} before it`,
      );
      return progress;
    }
    try {
      return await this.#save(progress);
    } catch (error) {
      if (!(error instanceof CheckpointError)) throw error;
      log.event("warning", "checkpoint", error.message);
      return progress;
    }
  }

  /** Whether this progress is in a checkpoint. */
  has({ update }: Progress): boolean {
    return this.#savedUpdate >= update;
  }

  /** Saves after a roll-back, though an earlier checkpoint of this update exists. */
  rolledBack(progress: Progress): Promise<Progress> {
    this.#savedUpdate = -1;
    return this.duringRun(progress);
  }

  /** Before the first validation there is nothing to save. @throws {RunError} if the checkpoint cannot be written */
  async atEnd(progress: Progress, isStopped: boolean): Promise<void> {
    const { update, before } = progress;
    if (before === null) return;
    const { config, log, reporter } = this.#context;
    const { duringRun, atStop } = STORED_MS_MAX;
    await reporter.drain(isStopped ? atStop : config.supervisor.heartbeatDeadlineMs + duringRun);
    try {
      if (this.#savedUpdate < update) await this.#save(progress);
    } catch (error) {
      if (!(error instanceof CheckpointError)) throw error;
      const saved = Math.max(0, this.#savedUpdate);
      throw new RunError(`the updates after ${saved} are lost: ${error.message}`, { cause: error });
    }
    log.line("saved", `saved update ${update} of ${config.learner.updates}`);
  }

  async #save(progress: Progress): Promise<Progress> {
    const { clock, config, reporter, checkpoints, meter } = this.#context;
    const started = clock.now();
    const well = hasNoSign(progress.health) && !hasFallen(progress, config.health.trap);
    const saved = well ? advance(progress, { kind: "saved healthy" }) : progress;
    await meter.during("time/save", checkpoints.save(saved));
    this.#savedUpdate = progress.update;
    reporter.metrics(progress.update, { "speed/checkpoint_s": (clock.now() - started) / 1000 });
    return saved;
  }
}

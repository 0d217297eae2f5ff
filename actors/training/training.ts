/**
 * Controls a run from its first weights to its report: first the warm start, then updates, with validations and checkpoints between them.
 * This file uses neither samplers nor tensors: the dispatcher sends tickets to samplers, and the trainer computes updates.
 *
 * - In sync mode the result of an update depends only on config and seed, not on time or on the samplers.
 * - A checkpoint holds everything on which the next update depends.
 */
import { TRAP_RULE } from "../../model/health/echo-trap/echo-trap.ts";
import { CheckpointError } from "../checkpoint/checkpoint.ts";
import type { HealthConfig } from "../config/health.ts";
import { RunError } from "../errors.ts";
import { type MetricValues, partName } from "../metrics/metrics.ts";
import { plural } from "../number-text.ts";
import { type Baselines, reportBaselines } from "./baselines.ts";
import { Interruption, PlayTime, type Rollout, Stopped, type TrainingContext, type TrainingParts } from "./context.ts";
import { type Checkup, checkup, checkupOfValidation, endsRun, hasNoSign, isWell, measuredOf } from "./health.ts";
import { afterPlay, afterRollBack, afterValidation, type Progress, type Solved, startOfRun } from "./progress.ts";
import { type Report, reportOf } from "./report.ts";
import { RolloutQueue } from "./rollout-queue.ts";
import { speedMetrics, totalMetrics, updateLine } from "./update-metrics.ts";
import { UpdateStep } from "./update-step.ts";
import { lowestSuccess, validateApart, validateUpdate } from "./validation.ts";
import { playWarmStart } from "./warm-start-play.ts";

export class Training {
  readonly #parts: TrainingParts;
  readonly #step: UpdateStep;
  readonly #saving: Saving;
  #progress: Progress;
  #startedAtMs = 0;
  #stoppedEarly: string | null = null;
  #saveAsked = false;

  constructor(context: TrainingContext) {
    this.#parts = { ...context, interruption: new Interruption(), playTime: new PlayTime(context) };
    this.#step = new UpdateStep(this.#parts);
    this.#saving = new Saving(context);
    // A checkpoint that an earlier Bunraku wrote may lack some fields.
    this.#progress = { ...startOfRun(context.config), ...context.checkpoints.resumed };
  }

  doing(): string {
    return `update ${this.#progress.update} of ${this.#parts.config.learner.updates}`;
  }

  /** Ends the run at its current or next wait. Then `run` saves the progress. */
  stop(reason: string): void {
    this.#parts.interruption.stop(reason);
  }

  /** Asks the run to write a checkpoint before its next update. */
  save(): void {
    this.#saveAsked = true;
  }

  /** @returns null if `stop` ended the run; then the progress is saved, unless `stop` came before the end of the first validation */
  async run(): Promise<Report | null> {
    const { reporter, engine, log } = this.#parts;
    reporter.event("info", "engine", engine);
    log.line("engine", engine);
    const baselines = await reportBaselines(this.#parts);
    try {
      await this.#begin();
      await this.#makeUpdates();
      const after = await this.#validate(true);
      await this.#saving.atEnd(this.#measured(), false);
      return await this.#report(baselines, after);
    } catch (error) {
      if (!(error instanceof Stopped)) throw error;
      log.line("stopped", `${error.message}; ${this.doing()}`);
      await this.#saving.atEnd(this.#measured(), true);
      return null;
    }
  }

  /** Does the warm start, publishes the first weights, and validates them. A resumed run only publishes its weights. */
  async #begin(): Promise<void> {
    const { config, checkpoints, clock, reporter, log } = this.#parts;
    const isNew = checkpoints.resumed === null;
    if (isNew && config.warmStart.enabled) {
      const publish = () => this.#publish().then(() => this.#progress);
      const taught = await playWarmStart(this.#parts, publish);
      this.#change({ taught });
    }
    await this.#publish();
    const hasKlTerm = this.#progress.klCoefficient > 0 || config.health.ladder.includes("raise-kl");
    if (hasKlTerm) await checkpoints.keepReference();
    this.#startedAtMs = clock.now() - this.#progress.minutes * 60_000;
    if (!isNew) {
      const { update, health } = this.#progress;
      // Repeats the verdict: the page and the terminal show only this session's warnings, and an update logs only a verdict that changes.
      if (!isWell(health.verdict))
        log.event("warning", "health", `update ${update}: ${health.verdict}: the verdict from before the resume`);
      return;
    }
    reporter.event("info", "phase", "reinforcement");
    // This line is for the user of a large model, whose validation takes minutes.
    log.line("validate", `playing ${plural(config.validate.episodes, "validation board")} before the first update`);
    const before = await this.#validate(false);
    reporter.metrics(0, { "baseline/before": before.success });
    for (const [env, success] of Object.entries(before.envs)) {
      reporter.metrics(0, { [partName("baseline/before", "env", env)]: success });
    }
  }

  async #makeUpdates(): Promise<void> {
    const { validate, checkpoint } = this.#parts.config;
    const rollouts = new RolloutQueue(this.#parts);
    // In a resumed run, an intervention or an early stop may still be due, if the run stopped right after the update that made it due.
    if (await this.#doDue(rollouts)) return;
    while (!this.#isDone()) {
      const { update } = this.#progress;
      if (update % validate.everyUpdates === 0) {
        await this.#validate(false);
        if (await this.#doDue(rollouts)) return;
      }
      if (this.#saveAsked || update % checkpoint.everyUpdates === 0) {
        this.#progress = await this.#saving.duringRun(this.#measured());
        this.#saveAsked = this.#saveAsked && !this.#saving.has(this.#progress);
      }
      await this.#update(await this.#parts.interruption.race(rollouts.next(this.#progress)));
      if (await this.#doDue(rollouts)) return;
    }
  }

  /** Does the intervention or the early stop that the last update or validation made due. @returns true if the run ends early */
  async #doDue(rollouts: RolloutQueue): Promise<boolean> {
    const { due } = this.#progress;
    if (due !== null && endsRun(due)) {
      // `due` stays set. So if the process dies before it writes the report, the resumed run ends at once.
      this.#stoppedEarly = due.text;
      return true;
    }
    if (due?.kind === "rung" && due.rung === "roll-back") {
      // The policy from before the roll-back plays the rollouts that have begun, so the run does not train on them.
      await this.#parts.interruption.race(rollouts.drop());
      await this.#rollBack();
    }
    this.#change({ due: null });
    return false;
  }

  #isDone(): boolean {
    const { updates, minutes } = this.#parts.config.learner;
    return this.#progress.update >= updates || (minutes !== null && this.#minutes() >= minutes);
  }

  async #update({ finished, ms }: Rollout): Promise<void> {
    const { config, reporter, clock, log } = this.#parts;
    const started = clock.now();
    const { progress, metrics, rows } = await this.#step.run(this.#progress, finished);
    const tokens = progress.tokens - this.#progress.tokens;
    this.#progress = this.#measured({ ...progress, update: progress.update + 1 });
    const { acknowledged } = await this.#publish();
    const { update } = this.#progress;
    const values = {
      ...metrics,
      ...speedMetrics({
        update,
        tokens,
        rolloutMs: ms,
        updateMs: clock.now() - started,
        minutes: this.#minutes(),
        length: config.learner,
      }),
    };
    const totals = totalMetrics(this.#progress);
    const { due, state, metrics: healthMetrics } = judge(this.#parts, this.#progress, { ...values, ...totals });
    this.#change({ health: state, due });
    const all = { ...values, ...healthMetrics, ...totals };
    reporter.metrics(update, all);
    void acknowledged.then((ms) => reporter.metrics(update, { "weights/publish_ms": ms }));
    log.line("update", updateLine(update, config.learner.updates, all));
    await this.#parts.interruption.race(reporter.episodes(rows));
  }

  /** Validates at most once for each update, even if the run was stopped and resumed at this update. */
  async #validate(isLast: boolean): Promise<Solved> {
    const { update, validated } = this.#progress;
    if (validated?.update === update) return validated;
    const { solved, totals } = await validateUpdate(this.#parts, this.#progress);
    this.#progress = afterValidation(afterPlay(this.#progress, totals), solved);
    const { state, due, metrics } = judgeValidation(this.#parts, this.#progress, solved, isLast);
    this.#change({ health: state, due: due ?? this.#progress.due });
    if (due !== null) this.#parts.reporter.metrics(update, metrics);
    return solved;
  }

  async #publish(): Promise<{ acknowledged: Promise<number> }> {
    const published = await this.#parts.publishPolicy(this.#progress.version + 1);
    this.#change({ version: this.#progress.version + 1 });
    return published;
  }

  /** Goes back to the last healthy checkpoint. New random draws make the next rollouts differ from the rollouts before the roll-back. */
  async #rollBack(): Promise<void> {
    const { checkpoints, log, reporter } = this.#parts;
    const { update, health } = this.#progress;
    const target = health.healthyCheckpoint;
    if (target === null) {
      log.event("warning", "roll-back", "there is no checkpoint of a healthy policy; training continues");
      return;
    }
    let saved: Progress;
    try {
      saved = { ...startOfRun(this.#parts.config), ...(await checkpoints.restore(target)) };
    } catch (error) {
      if (!(error instanceof CheckpointError)) throw error;
      log.event("warning", "roll-back", `${error.message}; training continues`);
      return;
    }
    this.#progress = afterRollBack(saved, this.#progress);
    // Until the next update, this value marks where the record ends (newest-update.ts).
    reporter.metrics(target, { "health/rollbacks": this.#progress.health.control.round });
    log.line("roll-back", `went back from update ${update} to ${target}`);
    log.event("info", "health", `update ${target}: health: ${this.#progress.health.verdict}`);
    await this.#publish();
    // A run that resumes here must know that it was rolled back.
    this.#progress = await this.#saving.rolledBack(this.#measured());
  }

  #minutes(): number {
    return (this.#parts.clock.now() - this.#startedAtMs) / 60_000;
  }

  /** The progress with the present time and ticket counts. The dispatcher and the clock count only this process, so earlier counts are added. */
  #measured(progress = this.#progress): Progress {
    const { clock, processStartedAtMs, dispatcher, checkpoints, config } = this.#parts;
    const earlier = { ...startOfRun(config), ...checkpoints.resumed };
    const { expired, retried, ignored } = dispatcher.ticketCounts;
    return {
      ...progress,
      minutes: this.#minutes(),
      minutesInAll: earlier.minutesInAll + (clock.now() - processStartedAtMs) / 60_000,
      tickets: {
        expired: earlier.tickets.expired + expired,
        retried: earlier.tickets.retried + retried,
        ignored: earlier.tickets.ignored + ignored,
      },
    };
  }

  #change(changes: Partial<Progress>): void {
    this.#progress = { ...this.#progress, ...changes };
  }

  async #report(baselines: ReadonlyMap<string, Baselines>, after: Solved): Promise<Report> {
    const minutes = this.#minutes();
    const atOne = await validateApart(this.#parts, "end", 1, this.#progress);
    this.#progress = { ...this.#measured(afterPlay(this.#progress, atOne.totals)), minutes };
    return reportOf(this.#parts, {
      baselines,
      progress: this.#progress,
      after,
      atOne: atOne.solved,
      stoppedEarly: this.#stoppedEarly,
      tokensPerSecond: this.#parts.playTime.tokensPerSecond,
      logProbGap: this.#step.logProbGap,
    });
  }
}

/** True if validation success is far below the run's best. No roll-back goes to such a policy, even if the detector's verdict is good. */
function hasFallen({ validated, best }: Progress, { successFall }: HealthConfig["trap"]): boolean {
  if (validated === null || best === null) return false;
  const fall = best.success - validated.success;
  return validated.success < TRAP_RULE.successShare * best.success && fall >= successFall;
}

/**
 * How long the run waits for the metrics sink to store the reported episodes. In `duringRun` ms the supervisor can restart a sink. If the
 * run ends without a stop, the learner waits `supervisor.heartbeatDeadlineMs` longer, because no later checkpoint follows.
 */
const STORED_MS_MAX = { duringRun: 4000, atStop: 1000 };

/**
 * Decides when a run saves checkpoints, and what happens if the run cannot write a checkpoint.
 *
 * - A resumed run does not repeat the updates before its checkpoint. So the sink must store the episodes of these updates before the run
 *   writes the checkpoint. The last checkpoint is the exception: without it the run would lose all updates since the previous checkpoint.
 * - If the run cannot write a checkpoint, it logs a warning and training continues. If it cannot write the last checkpoint, the run fails.
 */
class Saving {
  readonly #context: TrainingContext;
  /** The update of the newest checkpoint; -1 if there is no checkpoint. */
  #savedUpdate: number;
  /** The update of the last validation in the newest checkpoint. */
  #savedValidation: number | undefined;
  /** True if no checkpoint holds the newest roll-back yet. */
  #lacksRollBack = false;

  constructor(context: TrainingContext) {
    this.#context = context;
    const { resumed } = context.checkpoints;
    this.#savedUpdate = resumed?.update ?? -1;
    this.#savedValidation = resumed?.validated?.update;
  }

  /** @returns the progress; its `health.healthyCheckpoint` is new if this checkpoint holds a healthy policy */
  async duringRun(progress: Progress): Promise<Progress> {
    if (this.has(progress)) return progress;
    const { log, reporter } = this.#context;
    const { rows } = await reporter.drain(STORED_MS_MAX.duringRun);
    if (rows > 0) {
      log.event(
        "warning",
        "checkpoint",
        `the checkpoint of update ${progress.update} is not written: the sink has not stored ${plural(rows, "episode")} of earlier updates yet`,
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

  /** True if a checkpoint holds this progress. */
  has({ update }: Progress): boolean {
    return !this.#lacksRollBack && this.#savedUpdate >= update;
  }

  /** Saves after a roll-back, even though this update already has a checkpoint. */
  rolledBack(progress: Progress): Promise<Progress> {
    this.#savedUpdate = progress.update;
    this.#lacksRollBack = true;
    return this.duringRun(progress);
  }

  /**
   * Saves the last progress. Before the end of the first validation it saves nothing. The newest checkpoint may have the update but not the
   * update's validation: a stop ended the validation, and the resumed run made it again.
   *
   * @throws {RunError} if the checkpoint cannot be written, and updates are lost
   */
  async atEnd(progress: Progress, isStopped: boolean): Promise<void> {
    const { update, before, validated } = progress;
    if (before === null) return;
    const { config, log, reporter } = this.#context;
    const { duringRun, atStop } = STORED_MS_MAX;
    await reporter.drain(isStopped ? atStop : config.supervisor.heartbeatDeadlineMs + duringRun);
    try {
      if (!this.has(progress) || this.#savedValidation !== validated?.update) await this.#save(progress);
    } catch (error) {
      if (!(error instanceof CheckpointError)) throw error;
      if (this.has(progress)) {
        log.event("warning", "checkpoint", error.message);
        return;
      }
      const saved = Math.max(0, this.#savedUpdate);
      throw new RunError(`the updates after ${saved} are lost: ${error.message}`, { cause: error });
    }
    log.line("saved", `saved update ${update} of ${config.learner.updates}`);
  }

  async #save(progress: Progress): Promise<Progress> {
    const { clock, config, reporter, checkpoints, meter } = this.#context;
    const started = clock.now();
    const well = hasNoSign(progress.health) && !hasFallen(progress, config.health.trap);
    const health = { ...progress.health, healthyCheckpoint: progress.update };
    const saved = well ? { ...progress, health } : progress;
    await meter.during("time/save", checkpoints.save(saved));
    this.#savedUpdate = progress.update;
    this.#savedValidation = progress.validated?.update;
    this.#lacksRollBack = false;
    reporter.metrics(progress.update, { "speed/checkpoint_s": (clock.now() - started) / 1000 });
    return saved;
  }
}

type JudgeContext = Pick<TrainingContext, "config" | "log">;

/** @param metrics  metrics of the newest update */
function judge(context: JudgeContext, { update, health }: Progress, metrics: MetricValues): Checkup {
  const measured = measuredOf(metrics);
  if (measured === null) return { state: health, due: null, metrics: {}, notices: [] };
  return judged(context, update, checkup(health, measured, context.config.health));
}

/** @param isLast  true if the run ends after this validation. Then no early stop is due. If the run gets more updates, its early stops count this validation. */
export function judgeValidation(
  context: JudgeContext,
  { update, health }: Progress,
  solved: Solved,
  isLast: boolean,
): Checkup {
  const { health: config } = context.config;
  const stopEarly = isLast ? [] : config.stopEarly;
  return judged(context, update, checkupOfValidation(health, lowestSuccess(solved), { ...config, stopEarly }));
}

function judged({ log }: JudgeContext, update: number, found: Checkup): Checkup {
  for (const { good, kind, text } of found.notices)
    log.event(good ? "info" : "warning", kind, `update ${update}: ${text}`);
  return found;
}

/**
 * A run from its first weight to its last report: warm start, validations, updates, checkpoints, in this order and nothing
 * else. It decides what is played and learnt; who plays is learner.ts, what is computed is the trainer's.
 *
 * - In sync mode an update is a function of config and seed alone: not of time, nor of who played.
 * - Nothing older than `learner.stalenessMax` updates is trained on: what lags more is left out, and said.
 * - A checkpoint holds all that the next update depends on. One that cannot be written is said and learning goes on; what was
 *   learnt is lost silently never: if the last one cannot be written, the run has failed.
 */

import { writtenTokens } from "../../model/trajectory.ts";
import { RunError } from "../errors.ts";
import { partName } from "../metrics/metrics.ts";
import { groupsPerUpdate, tagOf } from "../play/envs-of-run.ts";
import { type FinishedTicket, type PlayedTicket, playedOf, unplayedText } from "../play/finished-ticket.ts";
import type { EpisodeRow } from "../protocol.ts";
import { type Baselines, tellBaselines } from "./baselines.ts";
import { behaviourMetrics } from "./behavior.ts";
import type { TrainingContext } from "./context.ts";
import { groupEnvs, scored } from "./curriculum.ts";
import { checkup, type Due, endsRun, HEALTH_START, measuredOf, rolledBack } from "./health.ts";
import { Interruption, Stopped } from "./interruption.ts";
import { intervened } from "./interventions.ts";
import { reportOf } from "./make-report.ts";
import { COLLAPSE_START, measureCollapse } from "./measure-collapse.ts";
import { measureGradients } from "./measure-gradients.ts";
import { PlayTime, type Rollout } from "./play-time.ts";
import type { Progress, Report, Solved } from "./report.ts";
import { playUpdate, replacedGroups } from "./resampling.ts";
import { endCounts, rolloutMetrics } from "./rollout-metrics.ts";
import { Saving } from "./saving.ts";
import { lowest, solvedOf, solvedText } from "./solved.ts";
import { batchName, validationTickets } from "./tickets-to-play.ts";
import { episodeRows, trainedRows, trainerInput } from "./trained-episodes.ts";
import { isBroken, lagShares, learnt, percent, updateLine, type Values } from "./update-metrics.ts";
import { steeredKl, updateSettings } from "./update-settings.ts";
import type { Taught } from "./warm-start.ts";
import { showWarmProgress, showWarmSample } from "./warm-start-view.ts";

/** Boards of each sample of play during the warm start. */
const WARM_SAMPLES = 32;

export class Training {
  readonly #context: TrainingContext;
  readonly #interruption = new Interruption();
  #progress: Progress;
  readonly #saving: Saving;
  /** Of rollouts and validations in this process. */
  readonly #time: PlayTime;
  #startedAtMs = 0;
  #logProbGap = 0;
  /** Updates in a row whose gradient was not finite. */
  #broken = 0;
  #stoppedEarly: string | null = null;

  constructor(context: TrainingContext) {
    this.#context = context;
    this.#progress = {
      update: 0,
      version: 0,
      episodes: 0,
      tokens: 0,
      minutes: 0,
      skipped: 0,
      taught: null,
      before: null,
      best: null,
      validated: null,
      klCoefficient: context.config.learner.kl.coefficient,
      health: HEALTH_START,
      collapse: COLLAPSE_START,
      curriculum: {},
      beforeOf: {},
      ...context.resumed,
    };
    this.#saving = new Saving(context);
    this.#time = new PlayTime(context.clock);
  }

  doing(): string {
    return `update ${this.#progress.update} of ${this.#context.config.learner.updates}`;
  }

  /** The run ends at its next step; what was learnt is saved. */
  stop(reason: string): void {
    this.#interruption.stop(reason);
  }

  /** @returns null if it was stopped before its end; then it was saved as far as it came. */
  async run(): Promise<Report | null> {
    const { reporter, engine, say } = this.#context;
    reporter.event("info", "engine", engine);
    say("engine", engine);
    const baselines = await tellBaselines(this.#context);
    try {
      await this.#begin();
      const after = await this.#reinforce();
      await this.#saving.atEnd(this.#now());
      const report = await this.#report(baselines, after);
      reporter.event("info", "finished", `${report.updates} updates, success ${percent(after.success)}`);
      return report;
    } catch (error) {
      if (!(error instanceof Stopped)) throw error;
      say("stopped", `${error.message}; ${this.doing()}`);
      await this.#saving.atEnd(this.#now());
      return null;
    }
  }

  /** Everything before the first update of this process. */
  async #begin(): Promise<void> {
    const { config, resumed, reporter, say } = this.#context;
    if (resumed === null && config.warmStart.enabled) {
      reporter.event("info", "phase", "warm start");
      const { taught, cached } = await this.#interruption.race(
        this.#context.warmStart({
          measureTaught: () => this.#measureTaught(),
          sample: (stepOverall) => this.#sampleWarm(stepOverall),
          progress: (progress) => showWarmProgress(this.#context, progress),
          stopped: () => this.#interruption.check(),
        }),
      );
      this.#progress = { ...this.#progress, taught };
      reporter.metrics(0, { "baseline/taught": taught.cool });
      const from = cached ? ", from the cache" : "";
      say("taught", `taught ${percent(taught.cool)} (at temperature 1 ${percent(taught.one)})${from}`);
    }
    await this.#publish();
    const raised = config.health.ladder.includes("raise-kl");
    if (this.#progress.klCoefficient > 0 || raised) await this.#context.keepReference();
    this.#startedAtMs = this.#context.clock.now() - this.#progress.minutes * 60_000;
    if (resumed !== null) return;
    reporter.event("info", "phase", "reinforcement");
    const { success: before, envs: beforeOf } = await this.#validateUpdate();
    this.#progress = { ...this.#progress, before, beforeOf };
    reporter.metrics(0, { "baseline/before": before });
    for (const [env, own] of Object.entries(beforeOf)) {
      reporter.metrics(0, { [partName("baseline/before", "env", env)]: own });
    }
  }

  async #measureTaught(): Promise<Taught> {
    const { temperature } = this.#context.config.validate;
    const { episodes, tokens } = this.#progress;
    await this.#publish();
    const cool = await this.#validate("taught", temperature);
    const one = await this.#validate("taught", 1);
    const taught = { cool: cool.success, one: one.success };
    // A run that found its warm start in the cache counts the same.
    this.#progress = { ...this.#progress, episodes, tokens };
    return taught;
  }

  /** A few boards by the policy in the middle of its warm start. */
  async #sampleWarm(stepOverall: number): Promise<void> {
    const { config } = this.#context;
    await this.#publish();
    const tickets = validationTickets(
      config,
      `warm${stepOverall}`,
      config.validate.temperature,
      this.#progress.version,
    );
    const finished = await this.#interruption.race(this.#context.play(tickets.slice(0, WARM_SAMPLES)));
    const played = playedOf(finished);
    if (played.length > 0) await this.#interruption.race(showWarmSample(this.#context, stepOverall, played));
  }

  /** All updates that are left. @returns the validation at the end */
  async #reinforce(): Promise<Solved> {
    const { config } = this.#context;
    const { mode, stalenessMax, updates } = config.learner;
    const ahead: Promise<Rollout>[] = [];
    const lead = mode === "sync" ? 0 : stalenessMax;
    let asked = this.#progress.update;
    while (!this.#isDone()) {
      const { update, version } = this.#progress;
      if (update % config.validate.everyUpdates === 0) await this.#validateUpdate();
      if (update % config.checkpoint.everyUpdates === 0) this.#progress = await this.#saving.onTheWay(this.#now());
      for (; asked <= Math.min(update + lead, updates - 1); asked++) {
        // When these are trained on, as many updates will have been made as lie before them.
        const oldest = mode === "sync" ? version : Math.max(0, version + (asked - update) - stalenessMax);
        const { round } = this.#progress.health.control;
        const envs = groupEnvs(config, this.#progress.curriculum);
        ahead.push(this.#time.measure(playUpdate(this.#context, asked, oldest, round, envs)));
      }
      const due = await this.#update(await this.#interruption.race(ahead.shift()!));
      if (due === null) continue;
      if (endsRun(due)) {
        this.#stoppedEarly = due.text;
        break;
      }
      if (due.kind === "rung" && due.rung === "roll-back") {
        // What was asked ahead is played by the policy that is given up.
        await this.#interruption.race(Promise.all(ahead.splice(0)));
        await this.#rollBack();
        asked = this.#progress.update;
      }
    }
    return this.#validateUpdate();
  }

  #isDone(): boolean {
    const { updates, minutes } = this.#context.config.learner;
    return this.#progress.update >= updates || (minutes !== null && this.#minutes() >= minutes);
  }

  #minutes(): number {
    return (this.#context.clock.now() - this.#startedAtMs) / 60_000;
  }

  async #update({ finished, ms }: Rollout): Promise<Due | null> {
    const { config, reporter, clock, say } = this.#context;
    const { update, version } = this.#progress;
    const started = clock.now();
    const played = playedOf(finished);
    if (played.length === 0) throw new RunError(`update ${update + 1}: ${unplayedText(finished)}`);
    const fresh = played.filter(({ outcome }) => version - outcome.trajectory.version <= config.learner.stalenessMax);
    const values: Values = endCounts(finished);
    const rows = episodeRows(finished);
    if (fresh.length < played.length) {
      const text = `${played.length - fresh.length} of ${played.length} episodes lag more than ${config.learner.stalenessMax} updates`;
      this.#context.warn("stale", `update ${update + 1}: ${text} and are not trained on`);
    }
    if (fresh.length > 0) Object.assign(values, await this.#learn(fresh, finished, rows));
    else this.#skip("no episode could be used");
    this.#count(played.map(({ outcome }) => writtenTokens(outcome.trajectory)));
    this.#progress = { ...this.#progress, update: update + 1, minutes: this.#minutes() };
    const { acknowledged } = await this.#publish();
    const tokens = played.reduce((sum, { outcome }) => sum + writtenTokens(outcome.trajectory), 0);
    Object.assign(values, {
      "speed/rollout_s": ms / 1000,
      "speed/update_s": (clock.now() - started) / 1000,
      ...(ms > 0 ? { "speed/tokens_per_second": tokens / (ms / 1000) } : {}),
      ...(this.#minutes() > 0 ? { "speed/updates_per_minute": (update + 1) / this.#minutes() } : {}),
      "total/updates": update + 1,
      "total/episodes": this.#progress.episodes,
      "total/tokens": this.#progress.tokens,
      "total/skipped_updates": this.#progress.skipped,
      "total/expired_tickets": this.#context.tickets.expired,
      "total/retried_tickets": this.#context.tickets.retried,
      "total/ignored_outcomes": this.#context.tickets.ignored,
    });
    const due = this.#examine(values);
    reporter.metrics(update + 1, values);
    void acknowledged.then((took) => reporter.metrics(update + 1, { "weights/publish_ms": took }));
    say("update", updateLine(update + 1, config.learner.updates, values));
    await this.#interruption.race(reporter.episodes(rows));
    return due;
  }

  /** Judge the update that was made; the verdict is added to its metrics. @returns what must be done */
  #examine(values: Values): Due | null {
    const { config, inform, warn } = this.#context;
    const { health, update, validated } = this.#progress;
    const validation = validated?.update === update - 1 ? lowest(validated) : undefined;
    const measured = measuredOf(values, validation);
    if (measured === null) return null;
    const { state, due, metrics, told } = checkup(health, measured, config.health);
    this.#progress = { ...this.#progress, health: state };
    Object.assign(values, metrics);
    for (const { good, kind, text } of told) (good ? inform : warn)(kind, `update ${update}: ${text}`);
    return due;
  }

  /** The policy of the last healthy checkpoint, with new coins from there on; totals, rungs and versions do not go back. */
  async #rollBack(): Promise<void> {
    const now = this.#progress;
    const update = now.health.healthyCheckpoint;
    if (update === null) return this.#context.warn("roll-back", "no checkpoint was saved in good health; going on");
    const saved = await this.#context.restore(update);
    const { version, episodes, tokens, skipped } = now;
    this.#progress = { ...saved, version, episodes, tokens, skipped, health: rolledBack(saved.health, now.health) };
    this.#context.say("roll-back", `went back from update ${now.update} to ${update}`);
    await this.#publish();
    // Whoever resumes from here knows that it was rolled back.
    this.#progress = await this.#saving.rolledBack(this.#now());
  }

  /** Learn from the fresh ones; the rows of those that were trained on get their advantages. */
  async #learn(
    fresh: readonly PlayedTicket[],
    finished: readonly FinishedTicket[],
    rows: EpisodeRow[],
  ): Promise<Values> {
    const { config, trainer } = this.#context;
    const { update, version, klCoefficient } = this.#progress;
    const collapse = await measureCollapse(
      this.#context,
      update,
      fresh.map(({ outcome }) => outcome.trajectory),
      this.#progress.collapse,
    );
    this.#progress = { ...this.#progress, collapse: collapse.state };
    const { control } = this.#progress.health;
    const asked = updateSettings(config, update, klCoefficient + control.kl);
    const settings = intervened(asked, control, groupsPerUpdate(config));
    const played = trainerInput(fresh, settings);
    const envs = groupEnvs(config, this.#progress.curriculum);
    const moment = { update, version, round: control.round, envs };
    const gradients = await this.#interruption.race(measureGradients(this.#context, moment, played, settings));
    const result = await trainer.update(played, settings);
    if (result.skipped !== null) this.#skip(result.skipped);
    this.#broken = isBroken(result) ? this.#broken + 1 : 0;
    if (this.#broken >= config.learner.brokenUpdatesMax)
      throw new RunError(`${this.#broken} updates in a row taught nothing; update ${update + 1}: ${result.skipped}`);
    const { kl, logProbGap = Number.NaN } = result.metrics;
    const steered = steeredKl(config.learner.kl, klCoefficient, kl, fresh.length);
    this.#progress = { ...this.#progress, klCoefficient: steered };
    if (Number.isFinite(logProbGap)) this.#logProbGap = logProbGap;
    const curriculum = scored(config.rollout.curriculum, this.#progress.curriculum, fresh);
    this.#progress = { ...this.#progress, curriculum };
    rows.splice(0, rows.length, ...trainedRows(finished, fresh, result, update + 1));
    return {
      ...rolloutMetrics("train", fresh, this.#context.thinkEnd),
      ...behaviourMetrics("train", fresh, (name) => tagOf(config, name)),
      ...gradients,
      ...learnt(result.metrics),
      ...lagShares(fresh.map(({ outcome }) => version - outcome.trajectory.version)),
      ...collapse.values,
      ...Object.fromEntries(
        Object.entries(curriculum).map(([env, score]) => [partName("curriculum/score", "env", env), score]),
      ),
      "train/optimizer_steps": result.steps,
      "train/learning_rate": settings.optimizer.learningRate,
      ...(klCoefficient + control.kl > 0 ? { "train/kl_coefficient": klCoefficient + control.kl } : {}),
      ...(settings.dropConstant ? { "train/replaced_groups": replacedGroups(finished, groupsPerUpdate(config)) } : {}),
    };
  }

  #skip(why: string): void {
    this.#progress = { ...this.#progress, skipped: this.#progress.skipped + 1 };
    this.#context.warn("skipped", `update ${this.#progress.update + 1}: ${why}`);
  }

  #count(tokens: readonly number[]): void {
    this.#progress = {
      ...this.#progress,
      episodes: this.#progress.episodes + tokens.length,
      tokens: this.#progress.tokens + tokens.reduce((sum, count) => sum + count, 0),
    };
  }

  /** Once for each update, however often the run is stopped and resumed. */
  async #validateUpdate(): Promise<Solved> {
    const { update, validated, best, health } = this.#progress;
    if (validated?.update === update) return validated;
    const name = batchName("v", update, health.control.round);
    const solved = await this.#validate(name, this.#context.config.validate.temperature);
    const now = { ...solved, update };
    const isBest = best === null || solved.success > best.success;
    this.#progress = { ...this.#progress, validated: now, best: isBest ? now : best };
    return solved;
  }

  /** @param name  unique among validations at this temperature */
  async #validate(name: string, temperature: number): Promise<Solved> {
    const { config, reporter, say, clock } = this.#context;
    const started = clock.now();
    const tickets = validationTickets(config, name, temperature, this.#progress.version);
    const { finished } = await this.#interruption.race(this.#time.measure(this.#context.play(tickets)));
    const played = playedOf(finished);
    if (played.length < finished.length) throw new RunError(`validation ${name}: ${unplayedText(finished)}`);
    this.#count(played.map(({ outcome }) => writtenTokens(outcome.trajectory)));
    const solved = solvedOf(played);
    const regular = name.startsWith("v") && temperature === config.validate.temperature;
    if (regular) {
      const behaviour = behaviourMetrics("validate", played, (name) => tagOf(config, name));
      const metrics = { ...rolloutMetrics("validate", played), ...behaviour };
      reporter.metrics(this.#progress.update, { ...metrics, "speed/validate_s": (clock.now() - started) / 1000 });
    }
    say(
      "validate",
      `${name} at temperature ${temperature}: success ${solvedText(solved)} of ${played.length} episodes`,
    );
    await this.#interruption.race(reporter.episodes(episodeRows(played)));
    return solved;
  }

  async #publish(): Promise<{ acknowledged: Promise<number> }> {
    const version = this.#progress.version + 1;
    const published = await this.#context.publish(version);
    this.#progress = { ...this.#progress, version };
    return published;
  }

  /** As a checkpoint keeps it. */
  #now(): Progress {
    return { ...this.#progress, minutes: this.#minutes() };
  }

  async #report(baselines: ReadonlyMap<string, Baselines>, after: Solved): Promise<Report> {
    const minutes = this.#minutes();
    const atOne = await this.#validate("end", 1);
    const progress = { ...this.#progress, minutes };
    return reportOf(this.#context, {
      baselines,
      progress,
      after,
      atOne,
      stoppedEarly: this.#stoppedEarly,
      tokensPerSecond: this.#time.tokensPerSecond,
      logProbGap: this.#logProbGap,
    });
  }
}

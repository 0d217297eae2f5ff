/**
 * A run from its first weight to its last report: warm start, validations, updates, checkpoints, in this order and nothing
 * else. It decides what is played and learnt; who plays is learner.ts, what is computed is the trainer's.
 *
 * - In sync mode an update is a function of config and seed alone: not of time, nor of who played.
 * - A checkpoint holds all that the next update depends on.
 */
import { bestPossible, evaluatePlayer } from "../envs/evaluate.ts";
import type { EnvTag } from "../envs/tag.ts";
import { controlKl } from "../model/kl.ts";
import type { Clock } from "./clock.ts";
import type { RunConfig } from "./config.ts";
import type { MetricName } from "./metrics.ts";
import type { EpisodeRow } from "./protocol.ts";
import type { Reporter } from "./reporter.ts";
import { playedOf, rolloutMetrics, trainingTickets, validationTickets, writtenTokens } from "./rollouts.ts";
import type { Remote } from "./threads.ts";
import type { Finished } from "./tickets.ts";
import type { TrainerMethods } from "./trainer-thread.ts";
import { updateSettings } from "./update-settings.ts";
import type { Taught, WarmStartProgress } from "./warm-start.ts";

/** Success in numbers that belong side by side; every report shows all of them. Shares of the validation boards. */
export interface Success {
  readonly random: number;
  readonly taught: number | null;
  readonly before: number;
  readonly after: number;
  readonly best: number | null;
}

export interface Report {
  readonly run: string;
  readonly env: string;
  readonly updates: number;
  /** Of reinforcement, validation included. */
  readonly minutes: number;
  readonly minutesInAll: number;
  readonly success: Success;
  /** The same at temperature 1. */
  readonly successAtOne: Pick<Success, "taught" | "after">;
  readonly episodes: number;
  readonly tokensPerSecond: number;
  readonly stepsPerMinute: number;
  readonly logProbGap: number;
  readonly engine: string;
  readonly device: string;
}

/** What a checkpoint keeps besides parameters and optimisers. */
export interface Progress {
  /** Updates made. */
  readonly update: number;
  /** Newest weights version. */
  readonly version: number;
  readonly episodes: number;
  readonly tokens: number;
  readonly taught: Taught | null;
  readonly before: number | null;
  /** Best validation so far, and at which update. */
  readonly best: { readonly success: number; readonly update: number } | null;
  readonly klCoefficient: number;
  /** Of reinforcement so far. */
  readonly minutes: number;
}

export interface TrainingContext {
  readonly run: string;
  readonly config: RunConfig;
  readonly tag: EnvTag;
  readonly trainer: Remote<TrainerMethods>;
  readonly reporter: Reporter;
  readonly clock: Clock;
  /** "compiled, cpu, 2 threads" */
  readonly engine: string;
  /** null for a new run. */
  readonly resumed: Progress | null;
  /** Publish the parameters as they are now. Resolves when the bytes are there for samplers to load. */
  readonly publish: (version: number) => Promise<{ acknowledged: Promise<number> }>;
  readonly play: (tickets: ReturnType<typeof trainingTickets>) => Promise<readonly Finished[]>;
  readonly warmStart: (hooks: {
    measureTaught: () => Promise<Taught>;
    sample: (stepOverall: number) => Promise<void>;
    progress: (progress: WarmStartProgress) => void;
    stopped: () => void;
  }) => Promise<{ taught: Taught; cached: boolean }>;
  readonly save: (progress: Progress) => Promise<void>;
  /** One line for people. */
  readonly say: (kind: string, text: string) => void;
  readonly processStartedAtMs: number;
}

/** Thrown inside a run that was asked to stop. */
export class Stopped extends Error {
  override readonly name = "Stopped";
}

/** Random boards are played this many times over, so that the line others are compared with is not itself noise. */
const RANDOM_ROUNDS = 16;

/** Boards of each sample of play during the warm start. */
const WARM_SAMPLES = 32;

export class Training {
  readonly #context: TrainingContext;
  readonly #stop = Promise.withResolvers<never>();
  #stopReason: string | null = null;
  #progress: Progress;
  #startedAtMs = 0;
  #playMs = 0;
  #logProbGap = 0;

  constructor(context: TrainingContext) {
    this.#context = context;
    this.#progress = context.resumed ?? {
      ...{ update: 0, version: 0, episodes: 0, tokens: 0, minutes: 0, taught: null, before: null, best: null },
      klCoefficient: context.config.learner.kl.coefficient,
    };
    // Nobody may be waiting when the run is asked to stop.
    this.#stop.promise.catch(() => {});
  }

  doing(): string {
    return `update ${this.#progress.update} of ${this.#context.config.learner.updates}`;
  }

  /** The run ends at its next step; what was learnt is saved. */
  stop(reason: string): void {
    this.#stopReason = reason;
    this.#stop.reject(new Stopped(reason));
  }

  /** @returns null if it was stopped before its end; then it was saved as far as it came. */
  async run(): Promise<Report | null> {
    const { reporter, engine, say, config } = this.#context;
    reporter.event("info", "engine", engine);
    say("engine", engine);
    const baselines = this.#baselines();
    try {
      await this.#begin();
      const after = await this.#reinforce();
      const report = await this.#report(baselines, after);
      reporter.event("info", "finished", `${report.updates} updates, success ${percent(after)}`);
      return report;
    } catch (error) {
      if (!(error instanceof Stopped)) throw error;
      say("stopped", `${error.message}; ${this.doing()}`);
      return null;
    } finally {
      if (this.#progress.before !== null) await this.#save();
      say("saved", `update ${this.#progress.update} of ${config.learner.updates}`);
    }
  }

  #baselines(): Pick<Success, "random" | "best"> {
    const { tag, config, reporter, say } = this.#context;
    const { episodes, firstSeed } = config.validate;
    const options = { episodes, seed: firstSeed, actionsMax: config.env.actionsMax };
    const rounds = Array.from({ length: RANDOM_ROUNDS }, (_, round) =>
      evaluatePlayer(tag, tag.random, { ...options, coins: round }),
    );
    const random = rounds.reduce((sum, { success }) => sum + success, 0) / RANDOM_ROUNDS;
    const best = bestPossible(tag, options);
    reporter.metrics(0, { "baseline/random": random, ...(best === null ? {} : { "baseline/best": best }) });
    say("baselines", `random ${percent(random)}, best possible ${best === null ? "unknown" : percent(best)}`);
    return { random, best };
  }

  /** Everything before the first update of this process. */
  async #begin(): Promise<void> {
    const { config, resumed, trainer, reporter, say } = this.#context;
    if (resumed === null && config.warmStart.enabled) {
      reporter.event("info", "phase", "warm start");
      const { taught, cached } = await this.#race(
        this.#context.warmStart({
          measureTaught: () => this.#measureTaught(),
          sample: (stepOverall) => this.#sampleWarm(stepOverall),
          progress: (progress) => this.#warmProgress(progress),
          stopped: () => this.#checkStopped(),
        }),
      );
      this.#progress = { ...this.#progress, taught };
      reporter.metrics(0, { "baseline/taught": taught.cool });
      say(
        "taught",
        `${percent(taught.cool)} (at temperature 1 ${percent(taught.one)})${cached ? ", from the cache" : ""}`,
      );
    }
    await this.#publish();
    if (this.#progress.klCoefficient > 0) await trainer.keepReference();
    this.#startedAtMs = this.#context.clock.now() - this.#progress.minutes * 60_000;
    if (resumed !== null) return;
    reporter.event("info", "phase", "reinforcement");
    const before = await this.#validate("v0", config.validate.temperature);
    this.#progress = { ...this.#progress, before, best: { success: before, update: 0 } };
    reporter.metrics(0, { "baseline/before": before });
  }

  async #measureTaught(): Promise<Taught> {
    const { temperature } = this.#context.config.validate;
    await this.#publish();
    return { cool: await this.#validate("taught", temperature), one: await this.#validate("taught", 1) };
  }

  /** A few boards by the policy in the middle of its warm start. */
  async #sampleWarm(stepOverall: number): Promise<void> {
    const { config, reporter, say } = this.#context;
    await this.#publish();
    const tickets = validationTickets(
      config,
      `warm${stepOverall}`,
      config.validate.temperature,
      this.#progress.version,
    );
    const finished = await this.#race(this.#context.play(tickets.slice(0, WARM_SAMPLES)));
    const played = playedOf(finished);
    if (played.length === 0) return;
    const success = played.filter(({ outcome }) => outcome.success).length / played.length;
    reporter.metrics(stepOverall, { "warm/success": success });
    const one = played[stepOverall % played.length]!.outcome;
    const turn = one.turns[0]!;
    say(
      "sample",
      `${percent(success)} of ${played.length} boards · "${turn.observation.replaceAll("\n", " ")}" → ${turn.reply}`,
    );
    await this.#race(reporter.episodes(rowsOf(played)));
  }

  #warmProgress({ stage, stages, name, step, steps, stepOverall, loss }: WarmStartProgress): void {
    const { reporter, say } = this.#context;
    reporter.metrics(stepOverall, { "warm/stage": stage, "warm/progress": step / steps, "warm/loss": loss });
    say("warm", `warm start ${stage}/${stages} "${name}" ${percent(step / steps)} · loss ${loss.toFixed(3)}`);
  }

  /** All updates that are left. @returns validation success at the end */
  async #reinforce(): Promise<number> {
    const { config, clock } = this.#context;
    const { updates, minutes } = config.learner;
    const ahead: Promise<readonly Finished[]>[] = [];
    const lead = config.learner.mode === "sync" ? 0 : config.learner.stalenessMax;
    let asked = this.#progress.update;
    let after = this.#progress.before!;
    while (this.#progress.update < updates) {
      const { update } = this.#progress;
      while (asked <= Math.min(update + lead, updates - 1)) {
        const oldest = Math.max(0, this.#progress.version - (asked - update));
        ahead.push(this.#context.play(trainingTickets(config, asked++, oldest)));
      }
      await this.#update(await this.#timedPlay(ahead.shift()!));
      const isLast =
        this.#progress.update === updates || this.#minutes(clock.now()) >= (minutes ?? Number.POSITIVE_INFINITY);
      if (isLast || this.#progress.update % config.validate.everyUpdates === 0) after = await this.#validateUpdate();
      if (isLast) break;
      if (this.#progress.update % config.checkpoint.everyUpdates === 0) await this.#save();
    }
    return after;
  }

  #minutes(nowMs: number): number {
    return (nowMs - this.#startedAtMs) / 60_000;
  }

  async #timedPlay(playing: Promise<readonly Finished[]>): Promise<{ finished: readonly Finished[]; ms: number }> {
    const { clock } = this.#context;
    const started = clock.now();
    const finished = await this.#race(playing);
    const ms = clock.now() - started;
    this.#playMs += ms;
    return { finished, ms };
  }

  async #update({ finished, ms }: { finished: readonly Finished[]; ms: number }): Promise<void> {
    const { config, trainer, reporter, clock } = this.#context;
    const { update, version } = this.#progress;
    const started = clock.now();
    const played = playedOf(finished);
    const failed = finished.length - played.length;
    const fresh = played.filter(({ outcome }) => version - outcome.trajectory.version <= config.learner.stalenessMax);
    const values: Partial<Record<MetricName, number>> = { "train/failed_episodes": failed };
    const rows = rowsOf(finished);
    if (fresh.length > 0) {
      Object.assign(values, rolloutMetrics("train", fresh));
      const staleness =
        fresh.reduce((sum, { outcome }) => sum + version - outcome.trajectory.version, 0) / fresh.length;
      const settings = updateSettings(config, update, this.#progress.klCoefficient);
      const result = await trainer.update(
        fresh.map(({ ticket, outcome }) => ({ trajectory: outcome.trajectory, group: ticket.group, tag: ticket.env })),
        settings,
      );
      Object.assign(values, learnt(result.metrics), { "train/staleness": staleness });
      values["train/learning_rate"] = settings.optimizer.learningRate;
      if (result.skipped !== null) reporter.event("warning", "skipped", `update ${update + 1}: ${result.skipped}`);
      this.#controlKl(result.metrics["kl"], fresh.length);
      this.#logProbGap = result.metrics["logProbGap"] ?? this.#logProbGap;
      fresh.forEach((one, i) => {
        const row = finished.indexOf(one);
        const advantage = result.advantages[i]!;
        rows[row] = { ...rows[row]!, update: advantage === null ? null : update + 1, advantage };
      });
    } else reporter.event("warning", "skipped", `update ${update + 1}: no episode could be used`);
    this.#count(played.map(({ outcome }) => writtenTokens(outcome.trajectory)));
    this.#progress = { ...this.#progress, update: update + 1, minutes: this.#minutes(clock.now()) };
    const { acknowledged } = await this.#publish();
    const updateMs = clock.now() - started;
    const tokens = played.reduce((sum, { outcome }) => sum + writtenTokens(outcome.trajectory), 0);
    Object.assign(values, {
      "speed/rollout_s": ms / 1000,
      "speed/update_s": updateMs / 1000,
      "speed/tokens_per_second": tokens / (ms / 1000),
      "speed/updates_per_minute": (update + 1) / this.#minutes(clock.now()),
      "total/updates": update + 1,
      "total/episodes": this.#progress.episodes,
      "total/tokens": this.#progress.tokens,
    });
    reporter.metrics(update + 1, values);
    void acknowledged.then((took) => reporter.metrics(update + 1, { "weights/publish_ms": took }));
    this.#sayUpdate(values);
    await this.#race(reporter.episodes(rows));
  }

  /** The adaptive controller steers by what this update measured. */
  #controlKl(measured: number | undefined, trajectories: number): void {
    const { control, target, horizon } = this.#context.config.learner.kl;
    if (measured === undefined || control === "fixed") return;
    const before = { kind: "adaptive", coefficient: this.#progress.klCoefficient, target, horizon } as const;
    this.#progress = { ...this.#progress, klCoefficient: controlKl(before, measured, trajectories).coefficient };
  }

  #sayUpdate(values: Partial<Record<MetricName, number>>): void {
    const show = (name: MetricName, digits: number) => values[name]?.toFixed(digits) ?? "–";
    const parts = [
      `update ${this.#progress.update}/${this.#context.config.learner.updates}`,
      `success ${percent(values["train/success"] ?? 0)}`,
      `reward ${show("train/reward_mean", 2)}`,
      `in-group std ${show("train/in_group_std", 2)}`,
      `entropy ${show("train/entropy", 2)}`,
      `${show("speed/tokens_per_second", 0)} tok/s`,
      `${show("speed/updates_per_minute", 0)} updates/min`,
    ];
    this.#context.say("update", parts.join(" · "));
  }

  #count(tokens: readonly number[]): void {
    this.#progress = {
      ...this.#progress,
      episodes: this.#progress.episodes + tokens.length,
      tokens: this.#progress.tokens + tokens.reduce((sum, count) => sum + count, 0),
    };
  }

  async #validateUpdate(): Promise<number> {
    const { update } = this.#progress;
    const success = await this.#validate(`v${update}`, this.#context.config.validate.temperature);
    if (success > (this.#progress.best?.success ?? -1))
      this.#progress = { ...this.#progress, best: { success, update } };
    return success;
  }

  /** @param name  unique among validations at this temperature. @returns share of boards solved */
  async #validate(name: string, temperature: number): Promise<number> {
    const { config, reporter, say, clock } = this.#context;
    const started = clock.now();
    const tickets = validationTickets(config, name, temperature, this.#progress.version);
    const finished = await this.#race(this.#context.play(tickets));
    const played = playedOf(finished);
    if (played.length < finished.length) {
      const bad = finished.find((one) => !("trajectory" in one.outcome))!;
      throw new Error(
        `validation ${name}: ${finished.length - played.length} of ${finished.length} episodes could not be played; ` +
          `the first: ${bad.ticket.episode}: ${"detail" in bad.outcome ? bad.outcome.detail : ""}`,
      );
    }
    this.#count(played.map(({ outcome }) => writtenTokens(outcome.trajectory)));
    const metrics = rolloutMetrics("validate", played);
    const success = metrics["validate/success"]!;
    const regular = name.startsWith("v") && temperature === config.validate.temperature;
    if (regular) {
      reporter.metrics(this.#progress.update, { ...metrics, "speed/validate_s": (clock.now() - started) / 1000 });
    }
    say("validate", `${name} at temperature ${temperature}: success ${percent(success)} of ${played.length} boards`);
    await this.#race(reporter.episodes(rowsOf(played)));
    return success;
  }

  async #publish(): Promise<{ acknowledged: Promise<number> }> {
    const version = this.#progress.version + 1;
    const published = await this.#context.publish(version);
    this.#progress = { ...this.#progress, version };
    return published;
  }

  async #save(): Promise<void> {
    await this.#context.save(this.#progress);
  }

  async #report({ random, best }: Pick<Success, "random" | "best">, after: number): Promise<Report> {
    const { config, run, engine, clock } = this.#context;
    const { taught, before, update, episodes, tokens } = this.#progress;
    const minutes = this.#minutes(clock.now());
    const afterAtOne = await this.#validate("end", 1);
    const [name = "", ...device] = engine.split(", ");
    return {
      ...{ run, env: config.env.tag, updates: update, minutes },
      minutesInAll: (clock.now() - this.#context.processStartedAtMs) / 60_000,
      success: { random, taught: taught?.cool ?? null, before: before!, after, best },
      successAtOne: { taught: taught?.one ?? null, after: afterAtOne },
      episodes,
      tokensPerSecond: this.#playMs === 0 ? 0 : tokens / (this.#playMs / 1000),
      stepsPerMinute: update / minutes,
      logProbGap: this.#logProbGap,
      ...{ engine: name, device: device.join(", ") },
    };
  }

  #checkStopped(): void {
    if (this.#stopReason !== null) throw new Stopped(this.#stopReason);
  }

  /** The result, or `Stopped` as soon as the run is asked to stop. */
  #race<T>(work: Promise<T>): Promise<T> {
    return Promise.race([work, this.#stop.promise]);
  }
}

/** Rows of the trajectory log, nothing trained on yet. */
const rowsOf = (finished: readonly Finished[]): EpisodeRow[] =>
  finished.map(({ ticket, sampler, outcome }) => ({ ticket, sampler, outcome, update: null, advantage: null }));

const percent = (share: number) => `${(100 * share).toFixed(1)} %`;

/** An update's own names as metrics. */
const LEARNT: Readonly<Record<string, MetricName>> = {
  policyLoss: "loss/policy",
  valueLoss: "loss/value",
  clipHigh: "loss/clip_fraction_high",
  clipLow: "loss/clip_fraction_low",
  ratioKl: "loss/ratio_kl",
  kl: "loss/kl",
  entropy: "train/entropy",
  logProbGap: "train/log_prob_gap",
  gradNorm: "train/grad_norm",
  criticGradNorm: "train/critic_grad_norm",
  keptGroups: "train/kept_groups",
  inGroupStd: "train/in_group_std",
  zeroStdGroups: "train/zero_std_groups",
  keptInGroupStd: "train/kept_in_group_std",
  advantageAbs: "train/advantage_abs",
  explainedVariance: "train/explained_variance",
};

function learnt(metrics: Readonly<Record<string, number>>): Partial<Record<MetricName, number>> {
  const known = Object.entries(metrics).filter(([name, value]) => name in LEARNT && Number.isFinite(value));
  return Object.fromEntries(known.map(([name, value]) => [LEARNT[name], value]));
}

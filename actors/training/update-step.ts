/**
 * Makes one update: turns the update's episodes into new parameters, metrics and rows of the run's record. In some updates this file also
 * measures the policy's gradients (`measureGradients`).
 *
 * - No update trains on a stale episode, whose policy is more than `learner.stalenessMax` versions behind the newest.
 * - An update that trains on no episode, or leaves out a step, counts as skipped. After `BROKEN_UPDATES_MAX` updates in a row without
 *   a finite gradient the run fails.
 */
import type { TrainingEpisode, UpdateResult, UpdateSettings } from "../../model/learn/update/types.ts";
import type { RunConfig } from "../config/config.ts";
import { RunError } from "../errors.ts";
import type { MetricValues } from "../metrics/metrics.ts";
import { plural } from "../number-text.ts";
import { boardsPerUpdate, groupsPerUpdate, tagOf } from "../play/envs-of-run.ts";
import {
  type FinishedTicket,
  type PlayedTicket,
  playedOf,
  playedTotals,
  unplayedError,
  unplayedText,
} from "../play/finished-ticket.ts";
import type { EpisodeRow, Ticket } from "../protocol.ts";
import { behaviorMetrics } from "./behavior.ts";
import type { TrainingContext, TrainingParts } from "./context.ts";
import { curriculumMetrics, groupEnvs, scoresAfter } from "./curriculum.ts";
import { type Control, intervened } from "./interventions.ts";
import { measureCollapse } from "./measure-collapse.ts";
import { afterPlay, type Progress } from "./progress.ts";
import { endCounts, rolloutMetrics } from "./rollout-metrics.ts";
import { replacementCount } from "./rollout-queue.ts";
import { trainingTickets } from "./tickets-to-play.ts";
import { episodeRows, trainedRows, trainerInput } from "./trained-episodes.ts";
import { hasBrokenGradient, lagShares, mixedShare, trainerMetrics } from "./update-metrics.ts";
import { steeredEntropy, steeredKl, updateSettings } from "./update-settings.ts";

export interface StepResult {
  readonly progress: Progress;
  readonly metrics: MetricValues;
  readonly rows: readonly EpisodeRow[];
}

/** The run fails after this many updates in a row without a finite gradient, because the policy would never change again. */
const BROKEN_UPDATES_MAX = 5;
/**
 * The run warns if the mean difference between the log-probabilities of sampler and trainer, at one policy version, is above this number
 * of nats per token. If both use the same engine, the difference is 1e-6 in full precision, and 1e-3 with weights in half precision.
 */
const LOG_PROB_GAP_MAX = 0.05;

export class UpdateStep {
  readonly #parts: TrainingParts;
  /** Updates in a row without a finite gradient. */
  #brokenInARow = 0;
  /** Nats per token: mean difference of samplers' and trainer's log-probabilities, from the last update that measured it; null if none did. */
  logProbGap: number | null = null;

  constructor(parts: TrainingParts) {
    this.#parts = parts;
  }

  /** @throws {Error} `unplayedError` if samplers could play no episode; `RunError` after `BROKEN_UPDATES_MAX` updates without a finite gradient */
  async run(before: Progress, finished: readonly FinishedTicket[]): Promise<StepResult> {
    const played = playedOf(finished);
    if (played.length === 0) throw unplayedError(this.#parts.config, `update ${before.update + 1}`, finished);
    const recent = this.#recent(played, before);
    const trained =
      recent.length > 0
        ? await this.#train(before, finished, recent)
        : { progress: this.#skip(before, "no episode could be used"), metrics: {}, rows: episodeRows(finished) };
    return {
      progress: afterPlay(trained.progress, playedTotals(played)),
      metrics: { ...endCounts(finished), ...trained.metrics },
      rows: trained.rows,
    };
  }

  /** The episodes that are not stale: the update may train on these. */
  #recent(played: readonly PlayedTicket[], { update, version }: Progress): readonly PlayedTicket[] {
    const { stalenessMax } = this.#parts.config.learner;
    const recent = played.filter(({ outcome }) => version - outcome.trajectory.version <= stalenessMax);
    if (recent.length < played.length) {
      const stale = `${played.length - recent.length} of ${played.length} episodes`;
      const text = `update ${update + 1} does not train on ${stale}: their weights are more than ${plural(stalenessMax, "update")} old`;
      this.#parts.log.event("warning", "stale", text);
    }
    return recent;
  }

  async #train(
    before: Progress,
    finished: readonly FinishedTicket[],
    recent: readonly PlayedTicket[],
  ): Promise<StepResult> {
    const { config, trainer, meter, roleMarks } = this.#parts;
    const { learner } = config;
    const { update, version, klCoefficient, entropyCoefficient } = before;
    const { control } = before.health;
    const trajectories = recent.map(({ outcome }) => outcome.trajectory);
    const collapse = await measureCollapse(this.#parts, update, trajectories, before.collapse);
    const kl = klCoefficient + control.kl;
    const covariance = control.covariance ?? learner.covariance.treatment;
    const adapted = { klCoefficient: kl, entropyCoefficient, covariance };
    const settings = intervened(updateSettings(config, update, adapted, roleMarks), control, groupsPerUpdate(config));
    const episodes = trainerInput(recent);
    const envs = groupEnvs(config, before.curriculum);
    const moment = { update, version, control, envs };
    const gradients = await this.#parts.interruption.race(measureGradients(this.#parts, moment, episodes, settings));
    const training = meter.during("time/update", trainer.update(episodes, settings));
    // The call leaves this thread at the end of the turn. Then this thread measures the episodes while the trainer trains on them.
    await null;
    const ofEpisodes = this.#episodeMetrics(before, finished, recent, settings);
    const result = await training;
    const measured = { ...before, collapse: collapse.state };
    const counted = result.skipped === null ? measured : this.#skip(measured, result.skipped);
    this.#checkGradient(result, update);
    const { logProbGap = Number.NaN, kl: measuredKl, entropy } = result.metrics;
    if (Number.isFinite(logProbGap)) this.logProbGap = logProbGap;
    // The gap compares two engines only if the current policy version wrote every episode, and the update took one step.
    const isOneVersion = result.steps === 1 && recent.every(({ outcome }) => outcome.trajectory.version === version);
    if (isOneVersion && logProbGap > LOG_PROB_GAP_MAX && settings.importance === null) {
      const gap = `the log-probabilities of samplers and learner differ by ${logProbGap.toFixed(3)} nats a token (limit ${LOG_PROB_GAP_MAX})`;
      const advice =
        "their engines compute different policies; to correct for this, set learner.importance.level to token";
      this.#parts.log.event("warning", "log-prob-gap", `update ${update + 1}: ${gap}: ${advice}`);
    }
    const curriculum = scoresAfter(config.rollout.curriculum, before.curriculum, recent);
    return {
      progress: {
        ...counted,
        klCoefficient: steeredKl(learner.kl, klCoefficient, measuredKl, recent.length),
        entropyCoefficient: steeredEntropy(learner, entropyCoefficient, entropy),
        curriculum,
      },
      metrics: {
        ...ofEpisodes,
        ...trainerMetrics(result.metrics),
        "train/optimizer_steps": result.steps,
        ...gradients,
        ...collapse.values,
        ...curriculumMetrics(config, curriculum),
        ...(kl > 0 ? { "train/kl_coefficient": kl } : {}),
        "train/entropy_coefficient": settings.policy.entropyCoefficient,
      },
      rows: trainedRows(finished, recent, result, update + 1),
    };
  }

  #episodeMetrics(
    { version }: Progress,
    finished: readonly FinishedTicket[],
    recent: readonly PlayedTicket[],
    { optimizer, dropConstant }: UpdateSettings,
  ): MetricValues {
    const { config, thinkEnd } = this.#parts;
    return {
      ...rolloutMetrics("train", recent, thinkEnd),
      ...behaviorMetrics("train", recent, (env) => tagOf(config, env)),
      ...lagShares(recent.map(({ outcome }) => version - outcome.trajectory.version)),
      ...(config.sampler.weightsBetween === "turns" ? { "train/mixed_episodes": mixedShare(recent) } : {}),
      "train/learning_rate": optimizer.learningRate,
      ...(dropConstant ? { "train/replaced_groups": replacementCount(finished, groupsPerUpdate(config)) } : {}),
    };
  }

  #skip(progress: Progress, reason: string): Progress {
    this.#parts.log.event("warning", "skipped", `update ${progress.update + 1}: ${reason}`);
    return { ...progress, skipped: progress.skipped + 1 };
  }

  #checkGradient(result: UpdateResult, update: number): void {
    this.#brokenInARow = hasBrokenGradient(result) ? this.#brokenInARow + 1 : 0;
    if (this.#brokenInARow < BROKEN_UPDATES_MAX) return;
    throw new RunError(
      `${this.#brokenInARow} updates in a row had no finite gradient; update ${update + 1}: ${result.skipped}; start a new run with a lower learner.learningRate`,
    );
  }
}

type Context = Pick<TrainingContext, "config" | "dispatcher" | "trainer" | "log">;

interface Moment {
  /** The first update has number 0. */
  readonly update: number;
  readonly version: number;
  /** The number of roll-backs so far, and the factor that limits the actions of a turn. */
  readonly control: Pick<Control, "round" | "actions">;
  /** Env of each group of the update. */
  readonly envs: readonly string[];
}

/**
 * Gradient analysis: measures the policy's gradients (model/health/gradient-analysis.ts) every few updates. If `gradientAnalysis.groups` is 0,
 * the analysis uses the update's own episodes. Otherwise samplers play that many groups only for the analysis, because an update may have
 * too few groups for the analysis's six buckets.
 * Episodes that samplers play only for the analysis enter no loss, no count and no record. Their boards are those of the next updates.
 *
 * Source: RAGEN-2, trainer.gradient_analysis_every and gradient_analysis_env_groups (50 and 128 in RAGEN-2's experiments).
 *
 * @param own  the update's episodes. @returns no values if the analysis does not run in this update
 */
export async function measureGradients(
  context: Context,
  moment: Moment,
  own: readonly TrainingEpisode[],
  settings: UpdateSettings,
): Promise<MetricValues> {
  const { everyUpdates, split, groups } = context.config.learner.gradientAnalysis;
  if (everyUpdates === 0 || moment.update % everyUpdates !== 0) return {};
  const played = groups === 0 ? own : await playApart(context, moment);
  return played.length === 0 ? {} : trainerMetrics(await context.trainer.analyzeGradients(played, settings, split));
}

async function playApart({ config, dispatcher, log }: Context, moment: Moment): Promise<TrainingEpisode[]> {
  const finished = await dispatcher.play(analysisTickets(config, moment));
  const played = playedOf(finished);
  if (played.length < finished.length)
    log.event("warning", "gradients", `update ${moment.update + 1}: ${unplayedText(finished)}`);
  return trainerInput(played);
}

/** Tickets of the analysis. Group numbers start after all numbers that the update may use. The groups take the update's envs in turn. */
function analysisTickets(config: RunConfig, { update, version, control: { round, actions }, envs }: Moment): Ticket[] {
  const first = boardsPerUpdate(config);
  const wanted = Array.from({ length: config.learner.gradientAnalysis.groups }, (_, i) => ({
    group: first + i,
    env: envs[i % envs.length]!,
  }));
  return trainingTickets(config, update, version, round, wanted, actions);
}

/** Converts an update's numbers to metrics, and to a line of the log. All functions are pure. */
import type { UpdateResult } from "../../model/learn/update/types.ts";
import { mean } from "../../model/statistics.ts";
import { isMetricName, type MetricName, type MetricValues } from "../metrics/metrics.ts";
import { percent } from "../number-text.ts";
import type { PlayedTicket } from "../play/finished-ticket.ts";
import type { Progress } from "./progress.ts";

/** Maps the trainer's name of a number to the metric that reports the number. */
const TRAINER_METRICS: Readonly<Record<string, MetricName>> = {
  policyLoss: "loss/policy",
  valueLoss: "loss/value",
  clipHigh: "loss/clip_fraction_high",
  clipLow: "loss/clip_fraction_low",
  dualClip: "loss/dual_clip_fraction",
  valueClip: "loss/value_clip_fraction",
  ratioKl: "loss/ratio_kl",
  kl: "loss/kl",
  observationLoss: "loss/observation",
  entropy: "train/entropy",
  logProbGap: "train/log_prob_gap",
  gradNorm: "train/grad_norm",
  criticGradNorm: "train/critic_grad_norm",
  keptGroups: "train/kept_groups",
  inGroupStd: "train/in_group_std",
  zeroStdGroups: "train/zero_std_groups",
  keptInGroupStd: "train/kept_in_group_std",
  advantageAbs: "train/advantage_abs",
  covariance: "train/covariance",
  heldTokens: "train/held_tokens",
  explainedVariance: "train/explained_variance",
  criticShare: "train/critic_share",
  overlong: "train/overlong_mean",
  importance: "train/importance_mean",
  importanceCapped: "train/importance_capped",
};

/** The finite numbers that the trainer returned. @throws {RangeError} for a number that has no metric */
export function trainerMetrics(metrics: Readonly<Record<string, number>>): MetricValues {
  const finite = Object.entries(metrics).filter(([, value]) => Number.isFinite(value));
  return Object.fromEntries(finite.map(([name, value]) => [metricOf(name), value]));
}

/** True if the update took no step, and the gradient norm of the policy or of the critic is not finite. */
export const hasBrokenGradient = ({ steps, metrics: { gradNorm = 0, criticGradNorm = 0 } }: UpdateResult): boolean =>
  steps === 0 && !Number.isFinite(gradNorm + criticGradNorm);

function metricOf(name: string): MetricName {
  // The number "gradient.task.2" has the metric gradient/task_2.
  const metric = name.startsWith("gradient.") ? name.replace(".", "/").replace(".", "_") : TRAINER_METRICS[name];
  if (metric === undefined || !isMetricName(metric))
    throw new RangeError(`the trainer's number "${name}" has no metric; add it to actors/training/update-metrics.ts`);
  return metric;
}

/** @param played  not empty. @returns the share of episodes whose turns several policy versions wrote. A turn has a `version` only if it is not the trajectory's */
export const mixedShare = (played: readonly PlayedTicket[]): number =>
  mean(played.map(({ outcome }) => Number(outcome.trajectory.turns.some(({ version }) => version !== undefined))));

/** @param lags  for each episode that the update trains on: how many versions its policy is behind the newest policy; not empty */
export function lagShares(lags: readonly number[]): MetricValues {
  const share = (of: (lag: number) => boolean) => lags.filter(of).length / lags.length;
  return {
    "train/staleness": mean(lags),
    "train/lag_0": share((lag) => lag === 0),
    "train/lag_1": share((lag) => lag === 1),
    "train/lag_2": share((lag) => lag === 2),
    "train/lag_more": share((lag) => lag > 2),
  };
}

interface Speed {
  /** Number of finished updates. */
  readonly update: number;
  /** Tokens written in the update's rollout. */
  readonly tokens: number;
  readonly rolloutMs: number;
  readonly updateMs: number;
  /** Minutes of reinforcement so far, earlier sessions included. */
  readonly minutes: number;
  readonly length: { readonly updates: number; readonly minutes: number | null };
}

export const speedMetrics = ({ update, tokens, rolloutMs, updateMs, minutes, length }: Speed): MetricValues => ({
  "speed/rollout_s": rolloutMs / 1000,
  "speed/update_s": updateMs / 1000,
  ...(rolloutMs > 0 ? { "speed/tokens_per_second": tokens / (rolloutMs / 1000) } : {}),
  ...(minutes > 0 ? { "speed/updates_per_minute": update / minutes } : {}),
  "speed/left_s":
    60 *
    Math.max(
      0,
      Math.min((minutes / update) * (length.updates - update), (length.minutes ?? Number.POSITIVE_INFINITY) - minutes),
    ),
});

/** `total/updates` comes last: if a reader of the store finds this value of an update, the store has the update's other values too. */
export const totalMetrics = (progress: Progress): MetricValues => ({
  "total/episodes": progress.episodes,
  "total/tokens": progress.tokens,
  "total/actions": progress.actions,
  "total/skipped_updates": progress.skipped,
  "total/expired_tickets": progress.tickets.expired,
  "total/retried_tickets": progress.tickets.retried,
  "total/ignored_outcomes": progress.tickets.ignored,
  "total/updates": progress.update,
});

/** One line about an update. @param update  number of finished updates @param updates  number of updates that the run makes in all */
export function updateLine(update: number, updates: number, values: MetricValues): string {
  const show = (name: MetricName, digits: number) => values[name]?.toFixed(digits) ?? "–";
  return [
    `update ${update}/${updates}`,
    `success ${percent(values["train/success"] ?? null)}`,
    `reward ${show("train/reward_mean", 2)}`,
    `in-group std ${show("train/in_group_std", 2)}`,
    `entropy ${show("train/entropy", 2)}`,
    `${show("speed/tokens_per_second", 0)} tok/s`,
    `${show("speed/updates_per_minute", 0)} updates/min`,
  ].join(" · ");
}

/** An update's numbers as metrics, and as a line for people. Pure. */
import type { UpdateResult } from "../../model/learn/update/types.ts";
import { isMetricName, type MetricName } from "../metrics/metrics.ts";

/** An update's own names as metrics. */
const LEARNT: Readonly<Record<string, MetricName>> = {
  policyLoss: "loss/policy",
  valueLoss: "loss/value",
  clipHigh: "loss/clip_fraction_high",
  clipLow: "loss/clip_fraction_low",
  dualClip: "loss/dual_clip_fraction",
  valueClip: "loss/value_clip_fraction",
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
  criticShare: "train/critic_share",
  overlong: "train/overlong_mean",
  importance: "train/importance_mean",
  importanceCapped: "train/importance_capped",
};

/** @throws {RangeError} for a number that has no metric. */
export function learnt(metrics: Readonly<Record<string, number>>): Partial<Record<MetricName, number>> {
  const finite = Object.entries(metrics).filter(([, value]) => Number.isFinite(value));
  return Object.fromEntries(finite.map(([name, value]) => [metricOf(name), value]));
}

/** No step was taken, as no gradient was finite. */
export const isBroken = ({ steps, metrics: { gradNorm = 0, criticGradNorm = 0 } }: UpdateResult): boolean =>
  steps === 0 && !Number.isFinite(gradNorm + criticGradNorm);

function metricOf(name: string): MetricName {
  // "gradient.task.2" is gradient/task_2.
  const metric = name.startsWith("gradient.") ? name.replace(".", "/").replace(".", "_") : LEARNT[name];
  if (metric === undefined || !isMetricName(metric))
    throw new RangeError(`no metric for an update's "${name}"; add it to actors/training/update-metrics.ts`);
  return metric;
}

/** How far behind those were who played what was trained on. @param lags  updates, of each episode; at least one */
export function lagShares(lags: readonly number[]): Partial<Record<MetricName, number>> {
  const share = (of: (lag: number) => boolean) => lags.filter(of).length / lags.length;
  return {
    "train/staleness": lags.reduce((sum, lag) => sum + lag, 0) / lags.length,
    "train/lag_0": share((lag) => lag === 0),
    "train/lag_1": share((lag) => lag === 1),
    "train/lag_2": share((lag) => lag === 2),
    "train/lag_more": share((lag) => lag > 2),
  };
}

export type Values = Partial<Record<MetricName, number>>;

export const percent = (share: number) => `${(100 * share).toFixed(1)} %`;

/** One line of progress. @param update  made so far, of `updates` */
export function updateLine(update: number, updates: number, values: Values): string {
  const show = (name: MetricName, digits: number) => values[name]?.toFixed(digits) ?? "–";
  return [
    `update ${update}/${updates}`,
    `success ${values["train/success"] === undefined ? "–" : percent(values["train/success"])}`,
    `reward ${show("train/reward_mean", 2)}`,
    `in-group std ${show("train/in_group_std", 2)}`,
    `entropy ${show("train/entropy", 2)}`,
    `${show("speed/tokens_per_second", 0)} tok/s`,
    `${show("speed/updates_per_minute", 0)} updates/min`,
  ].join(" · ");
}

/**
 * StarPO-S: selects the groups of a rollout to learn from. It sees each trajectory as a few numbers.
 *
 * - Rewards are raw episode rewards, before penalty and normalization: after the normalization mean_std every group would have a std of 1.
 * - If the filter keeps no group, `kept` is empty, and `reason` says why. This is not an error.
 * - The order of trajectories and groups never changes. Of groups with equal scores, the first ranks first.
 * - If a rule ranks groups by spread and keeps only some, and no group has a spread, the filter keeps none. RAGEN keeps the first groups.
 */
import { deviation, mean, positionsBy, ROUNDING } from "../statistics.ts";
import { checkLength } from "./advantage/rows.ts";

/** "…_variance" is the sample standard deviation, as in RAGEN-2; for a group of one it is 0. */
export const FILTER_METRICS = [
  "reward_variance",
  "reward",
  "reward_sum",
  "entropy",
  "entropy_variance",
  "length",
] as const;
export type FilterMetric = (typeof FILTER_METRICS)[number];

interface Ranking {
  readonly metric: FilterMetric;
  /** Which values of the metric are best, and kept. */
  readonly order: "largest" | "smallest";
  /** False: the rule first drops groups that score 0 (within 1e-10). */
  readonly includeZero: boolean;
}

export type FilterRule =
  | { readonly strategy: "all" }
  /** RAGEN v1: as top_k, with the metric reward_variance. If `value` is 1, all groups stay. */
  | { readonly strategy: "top_ratio"; readonly value: number; readonly order: Ranking["order"] }
  /** Keeps the best groups until their scores add up to `value · sum of all scores - TOP_P_EPSILON` (linear), or their softmax adds up to `value`. */
  | ({ readonly strategy: "top_p"; readonly value: number; readonly mode: "linear" | "softmax" } & Ranking)
  /**
   * top_k keeps `value` times the number of all groups, and top_k_abs keeps `value` groups; both round down, but keep at least one. min_p keeps
   * the groups that score at least `value` times the best score (largest), or at most the best score divided by `value` (smallest).
   */
  | ({ readonly strategy: "top_k" | "top_k_abs" | "min_p"; readonly value: number } & Ranking);

/** RAGEN-2's value. */
const TOP_P_EPSILON = 0.01;

/** The score by which a rule ranks groups. top_ratio ignores a metric, which a config also has with this strategy. */
export const metricOf = (rule: FilterRule): FilterMetric =>
  rule.strategy === "all" || rule.strategy === "top_ratio" ? "reward_variance" : rule.metric;

export interface Candidates {
  /** (B) any integer per group; groups may differ in size. */
  readonly groups: ArrayLike<number>;
  /** (B) raw episode reward. */
  readonly rewards: ArrayLike<number>;
  /** (B) mean entropy of the policy over the written tokens, in nats; for the entropy metrics. */
  readonly entropies?: ArrayLike<number>;
  /** (B) written tokens; for the length metric. */
  readonly lengths?: ArrayLike<number>;
}

export interface Filtered {
  /** Kept groups, in the order in which they first appear. */
  readonly kept: readonly number[];
  /** (rows) indices of the kept groups' rows, ascending. */
  readonly rows: readonly number[];
  /** Why the filter keeps nothing; null if it keeps a group. */
  readonly reason: string | null;
  readonly metrics: {
    /** Kept groups / groups. */
    readonly keptShare: number;
    /** Groups whose score is 0 within 1e-10. */
    readonly zeroScoreCount: number;
    /** Means of the in-group sample std of the reward: over all groups, and over the kept groups (null if the filter keeps no group). */
    readonly rewardStd: number;
    readonly keptRewardStd: number | null;
  };
}

interface Group {
  readonly id: number;
  readonly rows: readonly number[];
  readonly score: number;
  /** Sample std of the raw reward within the group. */
  readonly rewardStd: number;
}

/**
 * Source: StarPO-S, https://arxiv.org/abs/2504.20073 (top_ratio); RAGEN-2, https://arxiv.org/abs/2604.06268 (the other strategies).
 *
 * @throws {RangeError} if there is no candidate, or a list has the wrong length.
 */
export function filterGroups(candidates: Candidates, rule: FilterRule): Filtered {
  const groups = scoreGroups(candidates, metricOf(rule));
  const selected = select(groups, rule);
  const kept = hasOnlyTies(groups, rule) ? [] : groups.filter((group) => selected.includes(group));
  const average = (of: readonly Group[]) => mean(of.map((group) => group.rewardStd));
  return {
    kept: kept.map((group) => group.id),
    rows: kept.flatMap((group) => group.rows).sort((a, b) => a - b),
    reason: kept.length > 0 ? null : explain(groups, rule),
    metrics: {
      keptShare: kept.length / groups.length,
      zeroScoreCount: groups.filter((group) => Math.abs(group.score) <= ROUNDING).length,
      rewardStd: average(groups),
      keptRewardStd: kept.length > 0 ? average(kept) : null,
    },
  };
}

function scoreGroups(candidates: Candidates, metric: FilterMetric): Group[] {
  const { groups, rewards } = candidates;
  if (rewards.length === 0) throw new RangeError("cannot filter a rollout of 0 trajectories");
  for (const [name, list] of Object.entries(candidates)) checkLength(name, list, rewards.length);
  return [...positionsBy(groups)].map(([id, rows]) => {
    const rewardStd = rows.length < 2 ? 0 : deviation(rows.map((row) => rewards[row]!));
    return { id, rows, rewardStd, score: score(candidates, metric, rows, rewardStd) };
  });
}

function score(candidates: Candidates, metric: FilterMetric, rows: readonly number[], rewardStd: number): number {
  const of = (name: "rewards" | "entropies" | "lengths") => {
    const list = candidates[name];
    if (list === undefined) throw new RangeError(`filtering by ${metric} needs ${name} of the trajectories`);
    return rows.map((row) => list[row]!);
  };
  switch (metric) {
    case "reward_variance":
      return rewardStd;
    case "reward":
      return mean(of("rewards"));
    case "reward_sum":
      return of("rewards").reduce((sum, reward) => sum + reward, 0);
    case "entropy":
      return mean(of("entropies"));
    case "entropy_variance":
      return rows.length < 2 ? 0 : deviation(of("entropies"));
    case "length":
      return mean(of("lengths"));
    default:
      return metric satisfies never;
  }
}

/** The groups that stay; none if no group qualifies. Where all scores are equal, the order of the groups decides. */
export function select(groups: readonly Group[], rule: FilterRule): readonly Group[] {
  const { strategy } = rule;
  if (strategy === "all") return groups;
  const withZeros = strategy === "top_ratio" || rule.includeZero;
  const pool = withZeros ? groups : groups.filter((group) => Math.abs(group.score) > ROUNDING);
  if (pool.length === 0) return [];
  // The sort is stable, so ties keep their order.
  const ranked = pool.toSorted((a, b) => (rule.order === "largest" ? b.score - a.score : a.score - b.score));
  switch (strategy) {
    case "top_p":
      if (rule.value >= 1) return pool;
      return rule.mode === "linear" ? linearShare(ranked, rule.value) : softmaxShare(ranked, rule);
    case "top_ratio":
    case "top_k":
      // At least one group stays, also when the filter gets few groups because others were replaced or stale.
      return ranked.slice(0, Math.max(1, Math.floor(rule.value * groups.length)));
    case "top_k_abs":
      return ranked.slice(0, Math.max(1, Math.floor(rule.value)));
    case "min_p": {
      const best = ranked[0]!.score;
      return pool.filter(({ score }) =>
        rule.order === "largest" ? score >= rule.value * best - ROUNDING : score <= best / rule.value + ROUNDING,
      );
    }
    default:
      return strategy satisfies never;
  }
}

/** True if the rule keeps only some groups and ranks by the spread of rewards, but within every group all rewards are equal. */
export function hasOnlyTies(groups: readonly Group[], rule: FilterRule): boolean {
  const { strategy } = rule;
  if (strategy === "all" || metricOf(rule) !== "reward_variance") return false;
  const isShare = strategy === "top_ratio" || strategy === "top_k" || strategy === "top_p";
  if (isShare && rule.value >= 1) return false;
  return allConstant(groups);
}

const allConstant = (groups: readonly Group[]) => groups.every((group) => group.rewardStd <= ROUNDING);

/** The best groups until their scores reach `value` times the sum, minus epsilon. No groups if a score of 0 or below comes earlier. */
function linearShare(ranked: readonly Group[], value: number): readonly Group[] {
  const threshold = value * ranked.reduce((sum, group) => sum + group.score, 0) - TOP_P_EPSILON;
  let scoreSum = 0;
  for (const [count, group] of ranked.entries()) {
    if (scoreSum >= threshold) return ranked.slice(0, count);
    if (group.score <= 0) return [];
    scoreSum += group.score;
  }
  return ranked;
}

/** The best groups until their softmax probabilities add up to `value`; at least one group. */
function softmaxShare(ranked: readonly Group[], { value, order }: { value: number; order: Ranking["order"] }): Group[] {
  const sign = order === "largest" ? 1 : -1;
  const best = sign * ranked[0]!.score;
  const weights = ranked.map((group) => Math.exp(sign * group.score - best));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  let weightSum = 0;
  const last = weights.findIndex((weight) => {
    weightSum += weight;
    return weightSum >= value * total;
  });
  return ranked.slice(0, last + 1);
}

function explain(groups: readonly Group[], rule: FilterRule): string {
  const what = `0 of ${groups.length} groups kept`;
  if (allConstant(groups))
    return `${what}: within every group all rewards are equal, so there is nothing to compare; if the task is solved, make it harder; if it is unsolved, give rewards for parts of it`;
  if (rule.strategy === "all" || rule.strategy === "top_ratio")
    throw new Error(`filtering by ${rule.strategy} kept nothing`);
  const scores = groups.map((group) => group.score);
  if (!rule.includeZero && scores.every((score) => Math.abs(score) <= ROUNDING))
    return `${what}: every group scores 0 by ${rule.metric}, and includeZero is false`;
  const range = `${rule.metric} from ${Math.min(...scores)} to ${Math.max(...scores)}`;
  return `${what}: ${rule.strategy} ${rule.value} (${rule.order}) selects nothing from ${range}`;
}

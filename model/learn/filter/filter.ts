/**
 * StarPO-S: selects the groups of a rollout to learn from. It sees each trajectory as a few numbers.
 *
 * - Rewards are raw episode rewards, before penalty and normalization: after the normalization mean_std every group would have a std of 1.
 * - If the filter keeps no group, `kept` is empty, and `reason` says why. This is not an error.
 * - The order of trajectories and groups never changes. Of groups with equal scores, the first ranks first.
 * - If a rule ranks groups by spread and keeps only some, and no group has a spread, the filter keeps none. RAGEN keeps the first groups.
 */

import { deviation, mean, positionsBy, ROUNDING } from "../../statistics.ts";
import { checkLength } from "../advantage/rows.ts";
import { allConstant, type FilterMetric, type FilterRule, type GroupScore, hasOnlyTies, select } from "./selection.ts";

export { FILTER_METRICS, type FilterMetric, type FilterRule } from "./selection.ts";

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
  readonly metrics: FilterMetrics;
}

export interface FilterMetrics {
  /** Kept groups / groups. */
  readonly keptShare: number;
  /** Groups whose score is 0 within 1e-10. */
  readonly zeroScoreCount: number;
  /** Means of the in-group sample std of the reward: over all groups, and over the kept groups (null if the filter keeps no group). */
  readonly rewardStd: number;
  readonly keptRewardStd: number | null;
}

interface Group extends GroupScore {
  readonly id: number;
  readonly rows: readonly number[];
}

/**
 * Source: StarPO-S, https://arxiv.org/abs/2504.20073 (top_ratio); RAGEN-2, https://arxiv.org/abs/2604.06268 (the other strategies).
 *
 * @throws {RangeError} if there is no candidate, a list has the wrong length, or the rule's value is out of range.
 */
export function filterGroups(candidates: Candidates, rule: FilterRule): Filtered {
  const groups = scoreGroups(candidates, "metric" in rule ? rule.metric : "reward_variance");
  const selected = select(groups, rule);
  const kept = hasOnlyTies(groups, rule) ? [] : groups.filter((group) => selected.has(group));
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

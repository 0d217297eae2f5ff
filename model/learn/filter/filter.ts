/**
 * StarPO-S: which groups of a rollout are worth learning from. Knows scores of trajectories, not trajectories.
 *
 * - Scores are raw episode rewards, before penalty and normalization: after mean_std every group would have a std of 1.
 * - Nothing to learn from is an answer, not an error: `kept` is empty and `reason` says why.
 * - The order of trajectories and groups is never changed; ties go to the group that came first.
 */

import { deviation, mean, positionsBy } from "../../statistics.ts";
import { allConstant, type FilterMetric, type FilterRule, type GroupScore, select, ZERO } from "./selection.ts";

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
  /** (B) the episode of each row, where one episode gives several rows: its first row stands for it. */
  readonly episodes?: ArrayLike<number>;
}

export interface Filtered {
  /** Kept groups, in the order in which they first appear. */
  readonly kept: readonly number[];
  /** (rows) indices of the kept groups' rows, ascending. */
  readonly rows: readonly number[];
  /** Why nothing is kept; null if something is. */
  readonly reason: string | null;
  readonly metrics: FilterMetrics;
}

export interface FilterMetrics {
  readonly groupCount: number;
  readonly keptCount: number;
  /** keptCount / groupCount. */
  readonly keptShare: number;
  /** Groups whose score is 0 within 1e-10. */
  readonly zeroScoreCount: number;
  /** Groups of one: no spread can be measured. */
  readonly loneCount: number;
  /** Mean in-group sample std of the reward, before and after; after is null if nothing is kept. */
  readonly rewardStd: number;
  readonly keptRewardStd: number | null;
}

interface Group extends GroupScore {
  readonly id: number;
  readonly rows: readonly number[];
  readonly lone: boolean;
}

/**
 * Source: StarPO-S, https://arxiv.org/abs/2504.20073 (top_ratio); RAGEN-2, https://arxiv.org/abs/2604.06268 (the others).
 *
 * @param rankConstant compat: let the order of the groups decide where all rewards within each group are equal.
 * @throws {RangeError} if there is no candidate, a list has the wrong length, or the rule's value is out of range.
 */
export function filterGroups(candidates: Candidates, rule: FilterRule, { rankConstant = false } = {}): Filtered {
  const groups = scored(candidates, metricOf(rule));
  const selected = select(groups, rule, rankConstant);
  const kept = groups.filter((group) => selected.has(group));
  const average = (of: readonly Group[]) => mean(of.map((group) => group.rewardStd));
  return {
    kept: kept.map((group) => group.id),
    rows: kept.flatMap((group) => group.rows).sort((a, b) => a - b),
    reason: kept.length > 0 ? null : explain(groups, rule),
    metrics: {
      groupCount: groups.length,
      keptCount: kept.length,
      keptShare: kept.length / groups.length,
      zeroScoreCount: groups.filter((group) => Math.abs(group.score) <= ZERO).length,
      loneCount: groups.filter((group) => group.lone).length,
      rewardStd: average(groups),
      keptRewardStd: kept.length > 0 ? average(kept) : null,
    },
  };
}

function metricOf(rule: FilterRule): FilterMetric {
  return rule.strategy === "all" || rule.strategy === "top_ratio" ? "reward_variance" : rule.metric;
}

function scored(candidates: Candidates, metric: FilterMetric): Group[] {
  const { groups, rewards, episodes } = candidates;
  if (rewards.length === 0) throw new RangeError("cannot filter a rollout of 0 trajectories");
  for (const [name, list] of Object.entries(candidates) as [string, ArrayLike<number>][]) {
    if (list.length !== rewards.length)
      throw new RangeError(`${name}: expected ${rewards.length} entries, got ${list.length}`);
  }
  return [...positionsBy(groups)].map(([id, rows]) => {
    const firsts = episodes
      ? [...positionsBy(rows.map((row) => episodes[row]!)).values()].map(([at]) => rows[at!]!)
      : rows;
    const earned = firsts.map((row) => rewards[row]!);
    const rewardStd = earned.length < 2 ? 0 : deviation(earned);
    return { id, rows, rewardStd, score: score(candidates, metric, firsts, rewardStd), lone: firsts.length === 1 };
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
  if (allConstant(groups)) return `${what}: within every group all rewards are equal, so there is nothing to compare`;
  if (rule.strategy === "top_ratio")
    return `${what}: ratio ${rule.ratio} of ${groups.length} groups is less than one group`;
  if (rule.strategy === "all") throw new Error("filtering by all kept nothing");
  if (rule.strategy === "top_k_abs") return `${what}: value ${rule.value} is less than one group`;
  const scores = groups.map((group) => group.score);
  const range = `${rule.metric} from ${Math.min(...scores)} to ${Math.max(...scores)}`;
  return `${what}: ${rule.strategy} ${rule.value} (${rule.order}) selects nothing from ${range}`;
}

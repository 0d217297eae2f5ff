/**
 * The selection strategies of RAGEN v1 and RAGEN-2: from one score per group to the groups that stay.
 * It computes no scores.
 */

import { ROUNDING } from "../../statistics.ts";

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
  /** RAGEN v1: keeps the groups with the largest ("std") or smallest ("std_rev") reward std. It keeps the share `ratio`, at least one. */
  | { readonly strategy: "top_ratio"; readonly ratio: number; readonly type: "std" | "std_rev" }
  /** Keeps the best groups until their scores add up to `value · sum of all scores - epsilon` (linear), or their softmax adds up to `value`. */
  | ({
      readonly strategy: "top_p";
      readonly value: number;
      readonly mode: "linear" | "softmax";
      readonly epsilon: number;
    } & Ranking)
  /** Keeps `value` times the number of all groups, rounded down, at least one. */
  | ({ readonly strategy: "top_k"; readonly value: number } & Ranking)
  /** Keeps `value` groups, rounded down, at least one. */
  | ({ readonly strategy: "top_k_abs"; readonly value: number } & Ranking)
  /** Keeps the groups that score at least `value` times the best score (largest), or at most the best score divided by `value` (smallest). */
  | ({ readonly strategy: "min_p"; readonly value: number } & Ranking);

/** What a selection reads of a group. */
export interface GroupScore {
  readonly score: number;
  /** Sample std of the raw reward within the group. */
  readonly rewardStd: number;
}

/**
 * The groups that stay; none if no group qualifies. Where all scores are equal, the order of the groups decides.
 *
 * @throws {RangeError} if the rule's value is out of range.
 */
export function select<G extends GroupScore>(groups: readonly G[], rule: FilterRule): ReadonlySet<G> {
  const { strategy } = rule;
  if (strategy === "all") return new Set(groups);
  if (strategy === "top_ratio") {
    check(rule.ratio > 0 && rule.ratio <= 1, "ratio", "above 0 and at most 1", rule.ratio);
    const ranked = rank(groups, rule.type === "std" ? "largest" : "smallest");
    // At least one group stays, also when the filter gets few groups because others were replaced or stale.
    return new Set(ranked.slice(0, Math.max(1, Math.floor(rule.ratio * groups.length))));
  }
  check(Number.isFinite(rule.value) && rule.value > 0, "value", "above 0", rule.value);
  const pool = rule.includeZero ? groups : groups.filter((group) => Math.abs(group.score) > ROUNDING);
  if (strategy === "top_p" && rule.value >= 1) return new Set(pool);
  if (pool.length === 0) return new Set();
  const ranked = rank(pool, rule.order);
  switch (strategy) {
    case "top_p":
      return new Set(
        rule.mode === "linear" ? linearShare(ranked, rule.value, rule.epsilon) : softmaxShare(ranked, rule),
      );
    case "top_k":
      return new Set(ranked.slice(0, Math.max(1, Math.floor(rule.value * groups.length))));
    case "top_k_abs":
      return new Set(ranked.slice(0, Math.max(1, Math.floor(rule.value))));
    case "min_p": {
      const best = ranked[0]!.score;
      const passes = (group: G) =>
        rule.order === "largest"
          ? group.score >= rule.value * best - ROUNDING
          : group.score <= best / rule.value + ROUNDING;
      return new Set(pool.filter(passes));
    }
    default:
      return strategy satisfies never;
  }
}

/** True if the rule keeps only some groups and ranks by the spread of rewards, but within every group all rewards are equal. */
export function hasOnlyTies(groups: readonly GroupScore[], rule: FilterRule): boolean {
  if (rule.strategy === "all" || (rule.strategy === "top_ratio" && rule.ratio === 1)) return false;
  if (rule.strategy === "top_p" && rule.value >= 1) return false;
  if (rule.strategy !== "top_ratio" && rule.metric !== "reward_variance") return false;
  return allConstant(groups);
}

export const allConstant = (groups: readonly GroupScore[]) => groups.every((group) => group.rewardStd <= ROUNDING);

/** Best first; the sort is stable, so ties keep their order. */
const rank = <G extends GroupScore>(groups: readonly G[], order: "largest" | "smallest"): G[] =>
  groups.toSorted((a, b) => (order === "largest" ? b.score - a.score : a.score - b.score));

/** The best groups until their scores reach `value` times the sum, minus epsilon. No groups if a score of 0 or below comes earlier. */
function linearShare<G extends GroupScore>(ranked: readonly G[], value: number, epsilon: number): readonly G[] {
  const threshold = value * ranked.reduce((sum, group) => sum + group.score, 0) - epsilon;
  let scoreSum = 0;
  for (const [count, group] of ranked.entries()) {
    if (scoreSum >= threshold) return ranked.slice(0, count);
    if (group.score <= 0) return [];
    scoreSum += group.score;
  }
  return ranked;
}

/** The best groups until their softmax probabilities add up to `value`; at least one group. */
function softmaxShare<G extends GroupScore>(
  ranked: readonly G[],
  { value, order }: { value: number; order: "largest" | "smallest" },
): readonly G[] {
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

function check(holds: boolean, name: string, allowed: string, got: number): void {
  if (!holds) throw new RangeError(`filter ${name} must be ${allowed}, got ${got}`);
}

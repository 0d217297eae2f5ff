/** Diagnostics of a rollout, as single numbers. echo-trap/echo-trap.ts combines these and other numbers into a verdict. */
import { deviation, isConstantSum, mean, positionsBy, variance } from "../statistics.ts";

export interface Spread {
  /** Mean, over the groups of at least two, of the sample std of the raw reward. A group whose rewards differ only by rounding has the std 0. */
  readonly rewardStd: number;
  /** Share of the groups of at least two whose rewards are all equal except for rounding. */
  readonly zeroStdShare: number;
}

/**
 * Spread of rewards within groups: RAGEN's earliest sign of collapse.
 *
 * Source: https://arxiv.org/abs/2504.20073, section 4.
 *
 * @param rewards (B) raw episode rewards.
 * @param groups  (B) the group of each row.
 * @returns null if no group has two members.
 */
export function rewardSpread(rewards: ArrayLike<number>, groups: ArrayLike<number>): Spread | null {
  const compared = [...positionsBy(groups).values()].filter((rows) => rows.length > 1);
  if (compared.length === 0) return null;
  const members = compared.map((rows) => rows.map((row) => rewards[row]!));
  return {
    rewardStd: mean(members.map((own) => (isConstantSum(own) ? 0 : deviation(own)))),
    zeroStdShare: members.filter(isConstantSum).length / members.length,
  };
}

/**
 * `1 - var(return - value) / var(return)` over written tokens, with population variances. 1: the critic is right up to a
 * constant. 0: the critic is no better than a constant. Below 0: the critic is worse than a constant.
 *
 * @returns null if the returns are constant or no token is written.
 */
export function explainedVariance(values: Float32Array, returns: Float32Array, written: Uint8Array): number | null {
  const at = [...written.keys()].filter((i) => written[i]);
  const targets = at.map((i) => returns[i]!);
  if (targets.length === 0) return null;
  const spread = variance(targets, 0);
  if (spread === 0) return null;
  const errors = at.map((i) => returns[i]! - values[i]!);
  return 1 - variance(errors, 0) / spread;
}

/**
 * Share of the n-grams that occurred earlier in the tokens: 0 without repetition, near 1 for a loop.
 *
 * @returns null if there are fewer than n tokens.
 */
export function repetition(tokens: ArrayLike<number>, n: number): number | null {
  const count = tokens.length - n + 1;
  if (count < 1) return null;
  const list = Array.from(tokens);
  const distinct = new Set(Array.from({ length: count }, (_, i) => list.slice(i, i + n).join(" ")));
  return 1 - distinct.size / count;
}

/** Single numbers about a rollout that say whether training is sound. Pure; what they mean together: echo-trap.ts. */
import { checkLength } from "../learn/advantage/rows.ts";
import { deviation, mean, positionsBy, variance } from "../statistics.ts";

export interface Spread {
  /** Sample std of the raw reward within a group, mean over groups of at least two. */
  readonly rewardStd: number;
  /** Share of those groups whose rewards are all equal. */
  readonly zeroStdShare: number;
  /** Groups of at least two. */
  readonly groupCount: number;
}

/**
 * How much groups differ within themselves, before or after a filter. RAGEN's earliest sign of collapse.
 *
 * Source: https://arxiv.org/abs/2504.20073, section 4.
 *
 * @param rewards (B) raw episode rewards.
 * @param groups  (B) the group of each row.
 * @returns null if no group has two members.
 */
export function rewardSpread(rewards: ArrayLike<number>, groups: ArrayLike<number>): Spread | null {
  checkLength("groups", groups, rewards.length);
  const compared = [...positionsBy(groups).values()].filter((rows) => rows.length > 1);
  if (compared.length === 0) return null;
  const stds = compared.map((rows) => deviation(rows.map((row) => rewards[row]!)));
  return {
    rewardStd: mean(stds),
    zeroStdShare: stds.filter((std) => std === 0).length / stds.length,
    groupCount: stds.length,
  };
}

/**
 * `1 - var(return - value) / var(return)` over written tokens: 1 is a perfect critic, 0 one that says the mean, below 0 a
 * harmful one. Population variances.
 *
 * @returns null if the returns do not vary (or nothing is written): then there is nothing to explain.
 */
export function explainedVariance(values: Float32Array, returns: Float32Array, written: Uint8Array): number | null {
  checkLength("values", values, written.length);
  checkLength("returns", returns, written.length);
  const at = [...written.keys()].filter((i) => written[i]);
  const targets = at.map((i) => returns[i]!);
  if (targets.length === 0) return null;
  const spread = variance(targets, 0);
  return spread === 0
    ? null
    : 1 -
        variance(
          at.map((i) => returns[i]! - values[i]!),
          0,
        ) /
          spread;
}

/**
 * Share of n-grams that the text had before: 0 for no repetition, near 1 for a loop.
 *
 * @param tokens one reply, or all that the policy wrote in an episode.
 * @returns null if there is no n-gram.
 */
export function repetition(tokens: ArrayLike<number>, n: number): number | null {
  if (!Number.isInteger(n) || n < 1) throw new RangeError(`n-grams have at least 1 token, got n ${n}`);
  const count = tokens.length - n + 1;
  if (count < 1) return null;
  const seen = new Set<string>();
  const list = Array.from(tokens);
  for (let i = 0; i < count; i++) seen.add(list.slice(i, i + n).join(" "));
  return 1 - seen.size / count;
}

/**
 * Advantages from comparing the trajectories of a group, without a critic: one number per trajectory.
 *
 * - Any number or text names a group. Groups may differ in size, because the caller leaves out failed and stale episodes.
 * - A group with one member, or with equal rewards, has advantages of exactly 0. The exception is `expertIteration`, which compares
 *   nothing.
 * - A group's advantages do not depend on other groups.
 * - All lists are (B), with one entry for each trajectory. Advantages are in reward units; those of `grpo` are in standard deviations.
 */
import { deviation, isConstant, mean, positionsBy } from "../../statistics.ts";

/** Added to the standard deviation before dividing, in reward units. */
const EPSILON = 1e-6;

type Formula = (
  reward: number,
  group: { readonly count: number; readonly mean: number; readonly deviation: number },
) => number;

function compare(rewards: ArrayLike<number>, groups: ArrayLike<number | string>, formula: Formula): Float64Array {
  const advantages = new Float64Array(rewards.length);
  for (const rows of positionsBy(groups).values()) {
    const members = rows.map((row) => rewards[row]!);
    if (isConstant(members)) continue;
    const group = { count: members.length, mean: mean(members), deviation: deviation(members) };
    for (const row of rows) advantages[row] = formula(rewards[row]!, group);
  }
  return advantages;
}

/**
 * `(R - mean) / (std + 1e-6)` within the group, with the sample std (divisor n - 1).
 *
 * Source: GRPO, https://arxiv.org/abs/2402.03300 (outcome supervision); std and epsilon are those of RAGEN and verl.
 */
export function grpo(rewards: ArrayLike<number>, groups: ArrayLike<number | string>): Float64Array {
  return compare(rewards, groups, (reward, group) => (reward - group.mean) / (group.deviation + EPSILON));
}

/**
 * `R - mean` within the group. GRPO's division by the std gives more weight to groups with a small std, which are the easy and the hard
 * groups. This formula does not divide. REINFORCE++ with baseline has the same advantage before whitening.
 *
 * Source: Dr.GRPO, https://arxiv.org/abs/2503.20783.
 */
export function drGrpo(rewards: ArrayLike<number>, groups: ArrayLike<number | string>): Float64Array {
  return compare(rewards, groups, (reward, group) => reward - group.mean);
}

/**
 * `R - (mean of the group's other episodes)` = `(R - mean) n / (n - 1)`: an unbiased baseline.
 *
 * Source: RLOO, https://arxiv.org/abs/2402.14740.
 */
export function rloo(rewards: ArrayLike<number>, groups: ArrayLike<number | string>): Float64Array {
  return compare(rewards, groups, (reward, { count, mean }) => (reward - mean) * (count / (count - 1)));
}

/**
 * `R` for an episode that succeeded, 0 for any other: the policy imitates its own successes. Episodes are not compared.
 *
 * Source: ReST-EM, https://arxiv.org/abs/2312.06585, for rewards of 0 and 1. ReST-EM fine-tunes to convergence; here each update takes
 * steps of the policy gradient.
 */
export function expertIteration(rewards: ArrayLike<number>, successes: readonly boolean[]): Float64Array {
  return Float64Array.from(rewards, (reward, row) => (successes[row] ? reward : 0));
}

/**
 * `(R - mean) / p` with p the group's share of successes; 0 if no episode of the group succeeded. These are the advantages of `drGrpo`
 * divided by p, as in the gradient of the log-likelihood of success.
 *
 * Source: MaxRL, https://arxiv.org/abs/2602.02710, for rewards of 0 and 1. The paper divides by the mean, which is p for such rewards.
 * With costs in the rewards the mean may be 0 or below, so Bunraku divides by p.
 */
export function maxRl(
  rewards: ArrayLike<number>,
  groups: ArrayLike<number | string>,
  successes: readonly boolean[],
): Float64Array {
  const advantages = drGrpo(rewards, groups);
  for (const rows of positionsBy(groups).values()) {
    const share = mean(rows.map((row) => Number(successes[row])));
    for (const row of rows) advantages[row] = share === 0 ? 0 : advantages[row]! / share;
  }
  return advantages;
}

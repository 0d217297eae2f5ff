/**
 * Advantages from comparing trajectories that began alike: one number per trajectory, no critic.
 *
 * - Groups are named by any integer, may have any size, and unequal ones (asynchronous mode loses members).
 * - A group whose rewards are all equal teaches nothing: its advantages are exactly 0.
 * - Groups are kept apart: nothing here depends on another group.
 */
import { deviation, isConstant, mean, positionsBy } from "../../statistics.ts";
import { checkLength } from "./rows.ts";

/** Added to the standard deviation before dividing, in reward units. */
const EPSILON = 1e-6;

export interface Grouping {
  /** (B) the group of each row. */
  readonly groups: ArrayLike<number>;
  /** (B) the episode of each row, where an episode gives several rows: it is counted once in its group's statistics. */
  readonly episodes?: ArrayLike<number>;
  /**
   * What the only member of a group gets. "zero": nothing, as there is nobody to compare with. "reward": its own reward,
   * as verl; needed for RAGEN v1, where every sample is a group of its own.
   */
  readonly lone?: "zero" | "reward";
}

type Formula = (
  reward: number,
  group: { readonly count: number; readonly mean: number; readonly deviation: number },
) => number;

function compare(
  rewards: ArrayLike<number>,
  { groups, episodes, lone = "zero" }: Grouping,
  formula: Formula,
): Float64Array {
  checkLength("groups", groups, rewards.length);
  if (episodes) checkLength("episodes", episodes, rewards.length);
  const advantages = new Float64Array(rewards.length);
  for (const rows of positionsBy(groups).values()) {
    const counted = episodes
      ? [...positionsBy(rows.map((row) => episodes[row]!)).values()].map(([at]) => rows[at!]!)
      : rows;
    const members = counted.map((row) => rewards[row]!);
    if (members.length === 1 && lone === "reward") {
      for (const row of rows) advantages[row] = formula(rewards[row]!, { count: 1, mean: 0, deviation: 1 });
    } else if (!isConstant(members)) {
      const group = { count: members.length, mean: mean(members), deviation: deviation(members) };
      for (const row of rows) advantages[row] = formula(rewards[row]!, group);
    }
  }
  return advantages;
}

/**
 * `(R - mean) / (std + 1e-6)` within the group, with the sample std (divisor n - 1).
 *
 * Source: GRPO, https://arxiv.org/abs/2402.03300 (outcome supervision); std and epsilon as RAGEN and verl.
 *
 * @param rewards (B) episode rewards, any unit.
 * @returns (B) advantages, in standard deviations.
 */
export function grpo(rewards: ArrayLike<number>, grouping: Grouping): Float64Array {
  return compare(rewards, grouping, (reward, group) => (reward - group.mean) / (group.deviation + EPSILON));
}

/**
 * `R - mean` within the group: no division, so that easy and hard groups keep their weight. Also the baseline of
 * REINFORCE++ with baseline, before whitening.
 *
 * Source: Dr.GRPO, https://arxiv.org/abs/2503.20783.
 *
 * @returns (B) advantages, in reward units.
 */
export function drGrpo(rewards: ArrayLike<number>, grouping: Grouping): Float64Array {
  return compare(rewards, grouping, (reward, group) => reward - group.mean);
}

/**
 * `R - (mean of the group's others)` = `(R - mean) n / (n - 1)`: an unbiased baseline.
 *
 * Source: RLOO, https://arxiv.org/abs/2402.14740.
 *
 * @returns (B) advantages, in reward units.
 */
export function rloo(rewards: ArrayLike<number>, grouping: Grouping): Float64Array {
  return compare(rewards, grouping, (reward, { count, mean }) =>
    count === 1 ? reward : (reward - mean) * (count / (count - 1)),
  );
}

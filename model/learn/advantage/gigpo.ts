/**
 * Group-in-group advantages, without a critic: they compare the whole trajectories of a group, and the turns of a group that have the
 * same anchor. An anchor names the state in which a turn began.
 */

import { drGrpo, grpo } from "./group.ts";

export interface Gigpo {
  /** Discount per turn in the returns of turns. */
  readonly gammaTurn: number;
  /** How to compare numbers. mean_std: subtract their mean and divide by their standard deviation. mean: only subtract. */
  readonly normalize: "mean_std" | "mean";
}

/**
 * `A[row, turn] = A_trajectory[row] + A_turn[row, turn]`, where the second term has the paper's weight, 1. The first term compares summed
 * rewards of the group's trajectories. The second term compares `sum_j>=k gammaTurn^(j-k) r_j` among all turns of the group that began at the same
 * anchor. For a turn whose anchor occurs once, the second term is 0.
 *
 * Source: GiGPO, https://arxiv.org/abs/2505.10978.
 *
 * @param rewards (B)(turns) reward of each turn.
 * @param anchors (B)(turns) name of the state in which each turn began; equal names mean equal states.
 * @param groups  (B) the group of each trajectory.
 * @returns (B)(turns) advantages, one for all tokens of a turn.
 */
export function gigpo(
  rewards: readonly (readonly number[])[],
  anchors: readonly (readonly string[])[],
  groups: ArrayLike<number>,
  { gammaTurn, normalize }: Gigpo,
): number[][] {
  const compare = normalize === "mean_std" ? grpo : drGrpo;
  const wholes = compare(
    rewards.map((row) => row.reduce((sum, reward) => sum + reward, 0)),
    groups,
  );
  const flatAnchors = anchors.flatMap((row, b) => row.map((anchor) => `${groups[b]} ${anchor}`));
  const flatReturns = rewards.flatMap((row) => turnReturns(row, gammaTurn));
  const flat = compare(flatReturns, flatAnchors);
  let at = 0;
  return rewards.map((row, b) => row.map(() => wholes[b]! + flat[at++]!));
}

/** `G_k = r_k + gamma G_k+1`. */
function turnReturns(rewards: readonly number[], gamma: number): number[] {
  const returns = rewards.slice();
  for (let turn = returns.length - 2; turn >= 0; turn--) returns[turn]! += gamma * returns[turn + 1]!;
  return returns;
}

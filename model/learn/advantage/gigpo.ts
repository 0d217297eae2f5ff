/**
 * Group-in-group advantages: trajectories of a group are compared as wholes, and turns that met the same state
 * ("anchor") are compared with each other. No critic. Knows anchors as opaque names.
 */

import { drGrpo, grpo } from "./group.ts";
import { checkLength } from "./rows.ts";

export interface Gigpo {
  /** Discount per turn of the turn's return. */
  readonly gammaTurn: number;
  /** Weight of the turn-level advantage; 1 in the paper. */
  readonly turnWeight: number;
  /** Divide by the standard deviation of the group (of trajectories, of turns), or only subtract its mean. */
  readonly normalize: "mean_std" | "mean";
}

/**
 * `A[row, turn] = A_trajectory[row] + turnWeight A_turn[row, turn]`. The first compares summed rewards within the group;
 * the second compares `sum_j>=k gammaTurn^(j-k) r_j` among all turns of the group that began at the same anchor. An anchor
 * met once compares with nobody: 0.
 *
 * Source: GiGPO, https://arxiv.org/abs/2505.10978.
 *
 * @param rewards (B)(turns) what each turn earned.
 * @param anchors (B)(turns) the state each turn began in; equal names are equal states.
 * @param groups  (B) the group of each trajectory.
 * @returns (B)(turns) advantages, one for all tokens of a turn.
 */
export function gigpo(
  rewards: readonly (readonly number[])[],
  anchors: readonly (readonly string[])[],
  groups: ArrayLike<number>,
  { gammaTurn, turnWeight, normalize }: Gigpo,
): number[][] {
  checkLength("anchors", anchors, rewards.length);
  const compare = normalize === "mean_std" ? grpo : drGrpo;
  const wholes = compare(
    rewards.map((row) => row.reduce((sum, reward) => sum + reward, 0)),
    { groups },
  );
  const names = new Map<string, number>();
  const flatAnchors = anchors.flatMap((row, b) => {
    checkLength(`row ${b}: anchors`, row, rewards[b]!.length);
    return row.map((anchor) => indexOf(names, `${groups[b]} ${anchor}`));
  });
  const flatReturns = rewards.flatMap((row) => turnReturns(row, gammaTurn));
  const flat = compare(flatReturns, { groups: flatAnchors });
  let at = 0;
  return rewards.map((row, b) => row.map(() => wholes[b]! + turnWeight * flat[at++]!));
}

/** `G_k = r_k + gamma G_k+1`. */
function turnReturns(rewards: readonly number[], gamma: number): number[] {
  const returns = rewards.slice();
  for (let turn = returns.length - 2; turn >= 0; turn--) returns[turn]! += gamma * returns[turn + 1]!;
  return returns;
}

function indexOf(names: Map<string, number>, name: string): number {
  const index = names.get(name) ?? names.size;
  names.set(name, index);
  return index;
}

/**
 * Target policy optimization. A group's target is the policy's own probabilities of the episodes, moved towards the better episodes.
 * The loss is the cross-entropy to the target q. Its gradient with respect to an episode's log-probability is `p - q`, with p the
 * policy's probability of the episode. The gradient is 0 when the policy reaches the target.
 *
 * Source: TPO, https://arxiv.org/abs/2604.06159, with temperature 1.
 */
import { mean, positionsBy } from "../../statistics.ts";

/** The rewards of a group count as equal if their population std is at most this, as in the paper's code. */
const SPREAD_MIN = 1e-6;

/**
 * `q_i = p_i exp(u_i) / sum`, with u = (reward - group mean) / population std, or u = 0 if the group's rewards are equal.
 *
 * @param rewards  (B) episode rewards, any unit.
 * @param logProbs (B) log-probability of each episode by the policy that played it, in nats.
 * @param groups   (B) the group of each row.
 * @returns (B) the target; it sums to 1 in each group.
 */
export function tpoTarget(
  rewards: ArrayLike<number>,
  logProbs: ArrayLike<number>,
  groups: ArrayLike<number>,
): Float64Array {
  const tilted = Float64Array.from(logProbs);
  for (const rows of positionsBy(groups).values()) {
    const members = rows.map((row) => rewards[row]!);
    const center = mean(members);
    const spread = Math.sqrt(mean(members.map((reward) => (reward - center) ** 2)));
    if (spread <= SPREAD_MIN) continue;
    for (const row of rows) tilted[row]! += (rewards[row]! - center) / spread;
  }
  return groupPolicy(tilted, groups);
}

/** (B) `exp(logProb) / sum over the group`: the policy's probability of each episode among the played episodes of the group. */
export function groupPolicy(logProbs: ArrayLike<number>, groups: ArrayLike<number>): Float64Array {
  const policy = new Float64Array(logProbs.length);
  for (const rows of positionsBy(groups).values()) {
    const highest = Math.max(...rows.map((row) => logProbs[row]!));
    const total = rows.reduce((sum, row) => sum + Math.exp(logProbs[row]! - highest), 0);
    for (const row of rows) policy[row] = Math.exp(logProbs[row]! - highest) / total;
  }
  return policy;
}

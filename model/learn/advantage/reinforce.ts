/** Discounted returns on tokens: the advantage of REINFORCE++ before whitening. No critic, no groups. */
import { gae } from "./gae.ts";
import type { Rows } from "./rows.ts";

/**
 * `G_t = r_t + gamma G_next`, backwards along each row, on written tokens; 0 elsewhere. G_next is the next written token's,
 * so a late reward reaches early turns.
 *
 * Source: REINFORCE++, https://arxiv.org/abs/2501.03262.
 *
 * @param rewards (B, T) rewards on tokens.
 * @throws {RangeError} if a token that the policy did not write has a reward: it would be lost.
 */
export function discountedReturns(rows: Rows, rewards: Float32Array, gamma: number): Float32Array {
  // With values 0 and lambda 1, the advantage is the return.
  const { advantages } = gae(rows, rewards, new Float32Array(rewards.length), { gamma, lambda: 1 });
  return advantages.map((value, i) => (rows.written[i] ? value : 0));
}

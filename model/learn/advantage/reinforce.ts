/** Discounted returns on tokens: the advantage of REINFORCE++ before whitening. No critic, no groups. */
import { checkLength, type Rows, rowCount } from "./rows.ts";

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
  const { width, written } = rows;
  checkLength("rewards", rewards, written.length);
  const returns = new Float32Array(written.length);
  for (let row = 0; row < rowCount(rows); row++) {
    let running = 0;
    for (let i = (row + 1) * width - 1; i >= row * width; i--) {
      if (written[i]) {
        running = rewards[i]! + gamma * running;
        returns[i] = running;
      } else if (rewards[i] !== 0) {
        throw new RangeError(
          `row ${row}: reward ${rewards[i]} at column ${i - row * width}, which the policy did not write`,
        );
      }
    }
  }
  return returns;
}

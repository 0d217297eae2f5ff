/**
 * A mix of critic and group baseline: the better predictor of this batch's returns has the larger weight.
 * This estimator is Bunraku's own: inverse-variance weights of GAE (https://arxiv.org/abs/1506.02438) and RLOO.
 */
import { positionsBy } from "../../statistics.ts";
import { rloo } from "./group.ts";
import { overTokens, type Rows } from "./rows.ts";

export interface Hybrid {
  /** (B, T) mixed advantages, in reward units, 0 where not written. */
  readonly advantages: Float32Array;
  /** Weight of the critic, 0 to 1. */
  readonly criticShare: number;
}

/**
 * `A = w A_critic + (1 - w) A_group`, with `w = e_group / (e_critic + e_group)`. e_critic is the mean of `(return - V)^2` over written
 * tokens. e_group is the mean of `(R - mean of the group's other rows)^2` over the rows whose group has other rows. A row that is alone
 * in its group uses the critic only.
 *
 * @param critic  (B, T) the critic's values, and GAE's advantages (not whitened) and returns from these values.
 * @param rewards (B) episode rewards.
 * @param groups  (B) the group of each row.
 */
export function hybrid(
  rows: Rows,
  critic: { readonly advantages: Float32Array; readonly returns: Float32Array; readonly values: Float32Array },
  rewards: ArrayLike<number>,
  groups: ArrayLike<number>,
): Hybrid {
  const { written, width } = rows;
  const relative = rloo(rewards, groups);
  const alone = new Set([...positionsBy(groups).values()].filter((group) => group.length === 1).flat());
  let criticSquares = 0;
  let tokens = 0;
  for (let i = 0; i < written.length; i++) {
    if (!written[i]) continue;
    criticSquares += (critic.returns[i]! - critic.values[i]!) ** 2;
    tokens++;
  }
  // Rows that are alone add 0.
  const groupSquares = relative.reduce((sum, error) => sum + error ** 2, 0);
  const compared = relative.length - alone.size;
  const criticError = criticSquares / tokens;
  const groupError = compared > 0 ? groupSquares / compared : Number.POSITIVE_INFINITY;
  const criticShare = share(criticError, groupError);
  const spread = overTokens(rows, relative);
  const advantages = spread.map((group, i) => {
    if (!written[i]) return 0;
    const weight = alone.has(Math.floor(i / width)) ? 1 : criticShare;
    return weight * critic.advantages[i]! + (1 - weight) * group;
  });
  return { advantages, criticShare };
}

/** Inverse-variance weight of the baseline with the error `first`; 0.5 if both errors are 0. */
function share(first: number, second: number): number {
  if (second === Number.POSITIVE_INFINITY) return 1;
  return first + second === 0 ? 0.5 : second / (first + second);
}

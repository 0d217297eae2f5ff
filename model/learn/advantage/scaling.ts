/** Factors on finished advantages: by group spread, by the filter's kept share, by length. This file knows no estimator. */
import { deviation, mean, positionsBy } from "../../statistics.ts";

export interface Scaling {
  readonly softReweight: boolean;
  readonly filterLossScaling: "none" | "linear" | "sqrt";
  readonly lengthWeighting: boolean;
  /** For ablations: every advantage is 0. */
  readonly zero: boolean;
}

/**
 * (B) the factor on the advantages of each row, 0 or more.
 *
 * @param rewards   (B) raw episode rewards.
 * @param groups    (B) the group of each row.
 * @param lengths   (B) number of written tokens.
 * @param keptShare share of the groups that the filter kept.
 */
export function rowFactors(
  rows: {
    readonly rewards: ArrayLike<number>;
    readonly groups: ArrayLike<number>;
    readonly lengths: ArrayLike<number>;
    readonly keptShare: number;
  },
  { softReweight: soft, filterLossScaling, lengthWeighting, zero }: Scaling,
): Float64Array {
  const { rewards, groups, lengths, keptShare } = rows;
  if (zero) return new Float64Array(rewards.length);
  const spreads = soft ? softReweight(rewards, groups) : null;
  const weights = lengthWeighting ? lengthWeights(lengths) : null;
  const scale = filterLossScale(filterLossScaling, keptShare);
  return Float64Array.from(rewards, (_, row) => scale * (spreads?.[row] ?? 1) * (weights?.[row] ?? 1));
}

/**
 * Soft reweighting: `std_g / (max_g std_g + 1e-6)` for each row of group g. It acts like a filter that drops no group.
 * A group of one has no spread and gets 0.
 *
 * Source: RAGEN-2, https://arxiv.org/abs/2604.06268.
 *
 * @param rewards (B) raw episode rewards.
 * @returns (B) factors from 0 to just under 1.
 */
export function softReweight(rewards: ArrayLike<number>, groups: ArrayLike<number>): Float64Array {
  const spreads = [...positionsBy(groups).values()].map((rows) => ({
    rows,
    spread: rows.length < 2 ? 0 : deviation(rows.map((row) => rewards[row]!)),
  }));
  const widest = spreads.reduce((most, { spread }) => Math.max(most, spread), 0);
  const factors = new Float64Array(rewards.length);
  for (const { rows, spread } of spreads) for (const row of rows) factors[row] = spread / (widest + 1e-6);
  return factors;
}

/**
 * Factor for all advantages after a filter kept a share of the groups: 1 (none), the share (linear), or the share's square root (sqrt).
 *
 * Source: RAGEN-2's filter_loss_scaling.
 */
export function filterLossScale(scaling: "none" | "linear" | "sqrt", keptShare: number): number {
  return { none: 1, linear: keptShare, sqrt: Math.sqrt(keptShare) }[scaling];
}

/**
 * Length weighting: advantages of row b times `mean length / (length_b + 1e-6)`. With these factors, long rows count no more than short rows.
 *
 * Source: RAGEN's grpo_advantage_length_weight.
 *
 * @param lengths (B) written tokens of each row; at least 1.
 */
export function lengthWeights(lengths: ArrayLike<number>): Float64Array {
  const average = mean(lengths);
  return Float64Array.from(lengths, (length) => average / (length + 1e-6));
}

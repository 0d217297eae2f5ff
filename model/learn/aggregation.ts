/**
 * Two kinds of weights for written tokens. `tokenWeights` turns the mean of a loss into a weighted sum over tokens. `importanceWeights`
 * corrects for tokens that another policy sampled. This file computes with plain arrays and knows no tensors.
 *
 * - `tokenWeights` takes a whole minibatch. A micro-batch uses a slice of these weights, so the losses of the micro-batches add up to the
 *   minibatch's loss, however the minibatch is split.
 * - Rows without a written token are padding: they have no weight and are not counted.
 */
import { overTokens, type Rows, rowCount } from "./advantage/rows.ts";

export type Aggregation =
  /** All tokens count equally: 1 / tokens. */
  | "token-mean"
  /** 1 / rows: long rows count for more. */
  | "seq-mean-token-sum"
  /** All rows count equally: 1 / (rows * tokens of the row). */
  | "seq-mean-token-mean"
  /** 1 / tokensMax, as in verl: a sum over rows. `sampleInputs` (update/prepare.ts) passes tokensMax times the rows, for a mean over rows. */
  | "seq-mean-token-sum-norm";

/**
 * (B, T) weights; 0 where not written.
 *
 * Source: the four values of verl's loss_agg_mode. verl counts the tokens and rows of a micro-batch. Bunraku counts those of
 * the minibatch.
 *
 * @param tokensMax for "seq-mean-token-sum-norm": the divisor; verl takes the width of the batch.
 * @throws {RangeError} if no token is written.
 */
export function tokenWeights(rows: Rows, aggregation: Aggregation, tokensMax = rows.width): Float32Array {
  const lengths = rowLengths(rows);
  const tokens = lengths.reduce((sum, length) => sum + length, 0);
  const count = lengths.filter((length) => length > 0).length;
  if (tokens === 0) throw new RangeError("no token of the minibatch is written, so there is no loss");
  const weightOf: Readonly<Record<Aggregation, (length: number) => number>> = {
    "token-mean": () => 1 / tokens,
    "seq-mean-token-sum": () => 1 / count,
    "seq-mean-token-mean": (length) => 1 / (count * length),
    "seq-mean-token-sum-norm": () => 1 / tokensMax,
  };
  return overTokens(rows, lengths.map(weightOf[aggregation]));
}

/** (B) written tokens of each row. */
export function rowLengths(rows: Rows): number[] {
  return Array.from({ length: rowCount(rows) }, (_, row) =>
    rows.written.subarray(row * rows.width, (row + 1) * rows.width).reduce((sum, one) => sum + one, 0),
  );
}

export interface ImportanceRule {
  /** "token": each token has its own ratio. "sequence": each token has the product of the ratios of its row. */
  readonly level: "token" | "sequence";
  /** Largest weight; at least 1. */
  readonly cap: number;
}

/**
 * Truncated importance sampling: `min(exp(learner - sampler), cap)` where written, 0 elsewhere. The weight multiplies the token's
 * loss. It corrects for a token that another policy sampled: an older policy, or the same policy with other rounding.
 *
 * Source: https://fengyao.notion.site/off-policy-rl; truncation https://arxiv.org/abs/1802.01561 (V-trace).
 *
 * @param learner (B, T) log-probabilities by the policy at the start of the update. The loss uses them as old log-probabilities.
 * @param sampler (B, T) log-probabilities recorded at sampling.
 */
export function importanceWeights(
  rows: Rows,
  learner: Float32Array,
  sampler: Float32Array,
  { cap, level }: ImportanceRule,
): Float32Array {
  const gaps = learner.map((value, i) => (rows.written[i] ? value - sampler[i]! : 0));
  const sums = Array.from({ length: rowCount(rows) }, (_, row) =>
    gaps.subarray(row * rows.width, (row + 1) * rows.width).reduce((sum, gap) => sum + gap, 0),
  );
  return gaps.map((gap, i) => {
    if (!rows.written[i]) return 0;
    return Math.min(Math.exp(level === "token" ? gap : sums[Math.floor(i / rows.width)]!), cap);
  });
}

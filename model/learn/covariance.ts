/**
 * Covariance of a token's log-probability and its advantage. Where the covariance is large, a step makes likely tokens likelier, and
 * entropy falls. Clip-Cov and KL-Cov limit the change of a few such tokens. This file computes with plain arrays and knows no loss.
 *
 * Source: https://arxiv.org/abs/2505.22617, sections 3 and 4; tokens are chosen as in verl's clip_cov and kl_cov.
 */
import { sequence, shuffle } from "../rng.ts";
import { mean } from "../statistics.ts";
import type { Rows } from "./advantage/rows.ts";

export type CovarianceRule =
  /** Clip-Cov: some tokens, drawn at random from those whose covariance lies between the bounds, have no policy loss. */
  | {
      readonly treatment: "clip";
      readonly share: number;
      readonly bounds: readonly [number, number];
      /** Seed and name of the random numbers of this draw: plain data, so that the rule can cross to the trainer's thread. */
      readonly draw: readonly [seed: number, name: string];
    }
  /** KL-Cov: the tokens with the largest covariance have an additional loss of `coefficient * |log ratio|`. */
  | { readonly treatment: "kl"; readonly share: number; readonly coefficient: number };

/**
 * (B, T) `(advantage - mean advantage) * (logProb - mean logProb)` where written, 0 elsewhere; means over written tokens.
 *
 * @param advantages  (B, T)
 * @param recordedLogProbs  (B, T) as of the time of sampling. A token that no sampler wrote has the current policy's log-probability. verl takes
 *   all log-probabilities from the policy in training. In the first minibatch the two are equal.
 */
export function covariances({ written }: Rows, advantages: Float32Array, recordedLogProbs: Float32Array): Float64Array {
  const meanOf = (values: Float32Array) => mean(values.filter((_, i) => written[i] === 1));
  const [advantage, logProb] = [meanOf(advantages), meanOf(recordedLogProbs)];
  return Float64Array.from(written, (one, i) =>
    one ? (advantages[i]! - advantage) * (recordedLogProbs[i]! - logProb) : 0,
  );
}

export interface HeldBack {
  /** (B, T) the advantages of the policy loss. */
  readonly advantages: Float32Array;
  /** (B, T) factors on `weight * |log ratio|`; null: the loss has no such term. */
  readonly factors: Float32Array | null;
  /** Share of the written tokens that the rule chose. */
  readonly share: number;
}

/** @param covariance  (B, T) from `covariances` */
export function holdBack(
  rows: Rows,
  advantages: Float32Array,
  covariance: Float64Array,
  rule: CovarianceRule | null,
): HeldBack {
  if (rule === null) return { advantages, factors: null, share: 0 };
  const chosen = chosenTokens(rows, covariance, rule);
  const share = chosen.length / rows.written.reduce((sum, one) => sum + one, 0);
  if (rule.treatment === "clip") {
    const clipped = advantages.slice();
    for (const i of chosen) clipped[i] = 0;
    return { advantages: clipped, factors: null, share };
  }
  const factors = new Float32Array(advantages.length);
  for (const i of chosen) factors[i] = rule.coefficient;
  return { advantages, factors, share };
}

/**
 * Indices of the chosen tokens. Both rules choose `floor(share * written tokens)` tokens, but at least one. KL-Cov chooses those with the
 * largest covariance. Clip-Cov draws them at random from the tokens between the bounds; if there are fewer such tokens, it chooses all.
 */
function chosenTokens({ written }: Rows, covariance: Float64Array, rule: CovarianceRule): number[] {
  const tokens = [...written.keys()].filter((i) => written[i] === 1);
  const count = Math.max(1, Math.floor(rule.share * tokens.length));
  if (rule.treatment === "kl") return tokens.sort((a, b) => covariance[b]! - covariance[a]!).slice(0, count);
  const [low, high] = rule.bounds;
  const between = tokens.filter((i) => covariance[i]! > low && covariance[i]! < high);
  return shuffle(between, sequence(...rule.draw)).slice(0, count);
}

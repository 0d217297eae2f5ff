/** KL divergence of a policy from its reference, in plain numbers, and controllers of the KL coefficient. This file knows no loss. */

export const KL_ESTIMATORS = ["k1", "abs", "k2", "k3", "k3+"] as const;
export type KlEstimator = (typeof KL_ESTIMATORS)[number];

export interface KlTerm {
  readonly estimator: KlEstimator;
  readonly coefficient: number;
}

/** Exponents of ratios and of k3 are clamped to at most this size, so that neither exp nor its gradient overflows. */
export const EXPONENT_MAX = 20;

/**
 * KL(policy || reference) per token, by the formulas of `klEstimate` (loss.ts) in plain numbers. For a penalty in the reward.
 *
 * @param logProbs, reference  of the sampled tokens; any equal shape.
 */
export function klNumbers(
  logProbs: ArrayLike<number>,
  reference: ArrayLike<number>,
  estimator: KlEstimator,
): Float32Array {
  return Float32Array.from(logProbs, (logProb, i) => ESTIMATES[estimator](logProb - reference[i]!));
}

const k3 = (d: number) => clip(Math.exp(clip(-d, EXPONENT_MAX)) + d - 1, 10);

const ESTIMATES: Readonly<Record<KlEstimator, (d: number) => number>> = {
  k1: (d) => d,
  abs: Math.abs,
  k2: (d) => d ** 2 / 2,
  k3,
  "k3+": k3,
};

const clip = (x: number, max: number) => Math.min(max, Math.max(-max, x));

/**
 * (B, T) `- coefficient * KL` on written tokens, 0 elsewhere: the penalty of PPO with KL in the reward.
 *
 * @param kl (B, T) by any estimator, as numbers.
 */
export function klInReward(kl: Float32Array, written: Uint8Array, coefficient: number): Float32Array {
  return kl.map((one, i) => (written[i] ? -coefficient * one : 0));
}

/** The horizon of the adaptive KL control, in trajectories. The value is verl's. */
const KL_HORIZON = 10_000;

/**
 * The adaptive coefficient after one update, `coefficient * (1 + clip(kl / target - 1, -0.2, 0.2) * samples / KL_HORIZON)`. It moves so that the
 * measured KL approaches `target`.
 *
 * Source: https://arxiv.org/abs/1909.08593, section 2.2.
 *
 * @param kl      mean KL of the update, in nats.
 * @param samples number of trajectories in the update.
 */
export function controlKl(coefficient: number, target: number, kl: number, samples: number): number {
  const error = clip(kl / target - 1, 0.2);
  return coefficient * (1 + (error * samples) / KL_HORIZON);
}

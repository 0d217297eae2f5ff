/**
 * Policy, value and KL losses in differentiable TensorFlow.js operations, run eagerly or traced into a compiled step.
 * This file knows no model and no optimizer.
 *
 * - A loss is `sum(weights * loss per token)`. The weights hold the mask and the normalizer of the whole minibatch
 *   (`tokenWeights`), so the losses and gradients of micro-batches add up to the minibatch's.
 * - No shape and no branch depends on a tensor's values.
 */
import * as tf from "@tensorflow/tfjs-core";
import { EXPONENT_MAX, type KlEstimator } from "./kl.ts";

export type PolicyRule =
  /** Clipped surrogate. `dualClip` bounds the ratio where the advantage is negative; null: no bound. */
  | { readonly kind: "ppo"; readonly clipLow: number; readonly clipHigh: number; readonly dualClip: number | null }
  /** As ppo without dual clip. All tokens of a context have one ratio: the geometric mean of their ratios. */
  | { readonly kind: "gspo"; readonly clipLow: number; readonly clipHigh: number }
  /** REINFORCE weighted by the clipped ratio. The gradient takes the ratio as a constant, so clipped tokens have a gradient too. */
  | { readonly kind: "cispo"; readonly clipLow: number; readonly clipHigh: number }
  /** The loss has the log-probability itself, without a ratio. */
  | { readonly kind: "reinforce" };

/** All (B, T). Only `logProbs` is differentiated. */
export interface PolicyTensors {
  readonly logProbs: tf.Tensor;
  /** Log-probabilities by the old policy, which is in the ratio's denominator. */
  readonly oldLogProbs: tf.Tensor;
  readonly advantages: tf.Tensor;
  /** From `tokenWeights` (aggregation.ts), by the loss's aggregation. */
  readonly weights: tf.Tensor;
  /** From `tokenWeights` by "token-mean": the weights of the metrics' averages. */
  readonly shares: tf.Tensor;
  /** 1 / written tokens of the context; for gspo. */
  readonly sequenceShares?: tf.Tensor;
}

/** Scalars. Like the losses, the metrics of micro-batches add up to those of the minibatch. */
export interface PolicyLoss {
  readonly loss: tf.Scalar;
  /**
   * clipHighShare: share of tokens with a positive advantage and a ratio above 1 + clipHigh. clipLowShare: share of tokens with a negative
   * advantage and a ratio below 1 - clipLow. For cispo, both shares also count tokens with an advantage of the other sign.
   */
  readonly clipHighShare: tf.Scalar;
  readonly clipLowShare: tf.Scalar;
  /** Share of tokens that the dual clip bounds. */
  readonly dualClipShare: tf.Scalar;
  /** Mean of old minus new log-probability, in nats. */
  readonly ratioKl: tf.Scalar;
}

/**
 * ppo:   `max(-A rho, -A clip(rho, 1 - clipLow, 1 + clipHigh))`. Where A < 0, the dual clip limits this to `-A dualClip`.
 * gspo:  the formula of ppo without dual clip, with `rho = exp(mean over the context of log rho_t)`.
 * cispo: `-A stop(clip(rho, 1 - clipLow, 1 + clipHigh)) logProb`.
 * reinforce: `-A logProb`.
 *
 * The code computes ppo and gspo with A+ = max(A, 0) and A- = min(A, 0): `-A+ min(rho, 1 + clipHigh) - A- clip(rho, 1 - clipLow, dualClip)`.
 *
 * Source: PPO https://arxiv.org/abs/1707.06347; dual clip https://arxiv.org/abs/1912.09729; clip-higher
 * https://arxiv.org/abs/2503.14476; GSPO https://arxiv.org/abs/2507.18071; CISPO https://arxiv.org/abs/2506.13585; REINFORCE
 * https://doi.org/10.1007/BF00992696.
 */
export function policyLoss(tensors: PolicyTensors, rule: PolicyRule): PolicyLoss {
  const { logProbs, oldLogProbs, advantages, weights, shares } = tensors;
  const ratioKl = tf.neg(total(tf.sub(logProbs, oldLogProbs), shares)) as tf.Scalar;
  if (rule.kind === "reinforce") {
    const none = total(tf.zerosLike(shares), shares);
    const loss = tf.neg(total(tf.mul(advantages, logProbs), weights)) as tf.Scalar;
    return { loss, clipHighShare: none, clipLowShare: none, dualClipShare: none, ratioKl };
  }
  const logRatio = tf.clipByValue(tf.sub(logProbs, oldLogProbs), -EXPONENT_MAX, EXPONENT_MAX);
  // gspo: (B, 1), each row's mean over its written tokens.
  const ratio = tf.exp(rule.kind === "gspo" ? tf.sum(tf.mul(logRatio, tensors.sequenceShares!), 1, true) : logRatio);
  const positiveAdvantage = tf.maximum(advantages, 0);
  const negativeAdvantage = tf.minimum(advantages, 0);
  const low = 1 - rule.clipLow;
  const high = 1 + rule.clipHigh;
  const ceiling = rule.kind === "ppo" && rule.dualClip !== null ? rule.dualClip : Number.POSITIVE_INFINITY;
  const perToken =
    rule.kind === "cispo"
      ? tf.mul(tf.mul(advantages, detach(tf.clipByValue(ratio, low, high))), logProbs)
      : tf.add(
          tf.mul(positiveAdvantage, tf.minimum(ratio, high)),
          tf.mul(negativeAdvantage, between(ratio, low, ceiling)),
        );
  const share = (first: tf.Tensor, second: tf.Tensor) =>
    total(tf.mul(tf.cast(first, "float32"), tf.cast(second, "float32")), shares);
  const negative = tf.less(advantages, 0);
  const clippable = (sign: tf.Tensor) => (rule.kind === "cispo" ? tf.greater(tf.abs(advantages), 0) : sign);
  return {
    loss: tf.neg(total(perToken, weights)),
    clipHighShare: share(clippable(tf.greater(advantages, 0)), tf.greater(ratio, high)),
    clipLowShare: share(clippable(negative), tf.less(ratio, low)),
    dualClipShare: Number.isFinite(ceiling)
      ? share(negative, tf.greater(ratio, ceiling))
      : total(tf.zerosLike(shares), shares),
    ratioKl,
  };
}

const total = (values: tf.Tensor, weights: tf.Tensor): tf.Scalar => tf.sum(tf.mul(values, weights));

const between = (x: tf.Tensor, low: number, high: number) =>
  Number.isFinite(high) ? tf.clipByValue(x, low, high) : tf.maximum(x, low);

export interface ValueTensors {
  /** (B, T) by the critic in training; differentiated. */
  readonly values: tf.Tensor;
  /** (B, T) by the critic before this update. */
  readonly oldValues: tf.Tensor;
  /** (B, T) targets. */
  readonly returns: tf.Tensor;
  readonly weights: tf.Tensor;
  readonly shares: tf.Tensor;
}

/**
 * `max((v - R)^2, (clip(v, v_old - c, v_old + c) - R)^2) / 2` per token.
 *
 * Source: PPO's clipped value loss; RAGEN's c is 0.5.
 */
export function valueLoss({ values, oldValues, returns, weights, shares }: ValueTensors, clip: number) {
  // These bounds do not change a value within them. v_old + clip(v - v_old) would round such a value and count it as clipped.
  const clipped = tf.maximum(tf.minimum(values, tf.add(oldValues, clip)), tf.sub(oldValues, clip));
  const free = tf.square(tf.sub(values, returns));
  const bounded = tf.square(tf.sub(clipped, returns));
  return {
    loss: tf.mul(total(tf.maximum(free, bounded), weights), 0.5) as tf.Scalar,
    /** Share of tokens where the clipped error is larger than the unclipped error. */
    clipShare: total(tf.cast(tf.greater(bounded, free), "float32"), shares),
  };
}

/**
 * KL(policy || reference) per token, from the log-probabilities of the sampled token, with d = logProbs - reference:
 *
 * - k1: d. Unbiased, but its gradient is zero on average: use it in the reward, not in a loss.
 * - abs: |d|.
 * - k2: d^2 / 2.
 * - k3: exp(-d) + d - 1, with the exponent clamped to [-20, 20]. The result is not negative, and is clamped to at most 10.
 * - k3+: the value of k3 with the gradient of k2.
 *
 * Source: http://joschu.net/blog/kl-approx.html; the clamps are verl's.
 *
 * @param logProbs  (B, T) differentiable.
 * @param reference (B, T).
 * @returns (B, T) in nats.
 */
export function klEstimate(logProbs: tf.Tensor, reference: tf.Tensor, estimator: KlEstimator): tf.Tensor {
  const d = tf.sub(logProbs, reference);
  return ESTIMATES[estimator](d);
}

const k2 = (d: tf.Tensor) => tf.mul(tf.square(d), 0.5);

function k3(d: tf.Tensor): tf.Tensor {
  const ratio = tf.exp(tf.clipByValue(tf.neg(d), -EXPONENT_MAX, EXPONENT_MAX));
  return tf.clipByValue(tf.sub(tf.add(ratio, d), 1), -10, 10);
}

/** |x| with a gradient of 0 at 0, as in PyTorch; the gradient of tf.abs at 0 is -1. If the policy equals its reference, x is 0 at each token. */
function absolute(x: tf.Tensor): tf.Tensor {
  return tf.customGrad((value, save) => {
    const x = value as tf.Tensor;
    (save as tf.GradSaveFunc)([x]);
    const sign = (saved: tf.Tensor) =>
      tf.sub(tf.cast(tf.greater(saved, 0), "float32"), tf.cast(tf.less(saved, 0), "float32"));
    return { value: tf.abs(x), gradFunc: (dy, saved) => tf.mul(dy as tf.Tensor, sign(saved[0]!)) };
  })(x);
}

const ESTIMATES: Readonly<Record<KlEstimator, (d: tf.Tensor) => tf.Tensor>> = {
  k1: (d) => d,
  abs: absolute,
  k2,
  k3,
  "k3+": (d) => {
    const value = k2(d);
    return tf.add(value, detach(tf.sub(k3(d), value)));
  },
};

/** The same values without a gradient. */
function detach(x: tf.Tensor): tf.Tensor {
  return tf.customGrad((value) => ({
    value: (value as tf.Tensor).clone(),
    gradFunc: (dy) => tf.zerosLike(dy as tf.Tensor),
  }))(x);
}

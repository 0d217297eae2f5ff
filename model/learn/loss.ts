/**
 * Policy and value losses in TensorFlow.js operations: run eagerly or traced into a compiled step, differentiable.
 * Knows no model and no optimiser.
 *
 * - A loss is `sum(weights * loss per token)`. The weights hold mask and normaliser of the whole minibatch
 *   (`tokenWeights`), so losses and gradients of micro-batches simply add up to the minibatch's.
 * - No shape and no branch depends on a tensor's values.
 */
import * as tf from "@tensorflow/tfjs-core";
import { detach } from "./kl-term.ts";

/** Log-ratios are kept within this, so that neither exp nor its gradient overflows. */
const LOG_RATIO_MAX = 20;

export type PolicyRule =
  /** Clipped surrogate. `dualClip`: where the advantage is negative, the ratio counts for at most this; null for no limit. */
  | { readonly kind: "ppo"; readonly clipLow: number; readonly clipHigh: number; readonly dualClip: number | null }
  /** The ratio of the whole sequence, to the power of 1 / its length, clipped likewise. */
  | { readonly kind: "gspo"; readonly clipLow: number; readonly clipHigh: number }
  /** REINFORCE weighted by the clipped ratio, which itself has no gradient: clipped tokens still learn. */
  | { readonly kind: "cispo"; readonly clipLow: number; readonly clipHigh: number };

/** All (B, T). Only `logProbs` is differentiated. */
export interface PolicyTensors {
  readonly logProbs: tf.Tensor;
  /** Of the policy that the ratio compares with. */
  readonly oldLogProbs: tf.Tensor;
  readonly advantages: tf.Tensor;
  /** `tokenWeights` by the loss's aggregation. */
  readonly weights: tf.Tensor;
  /** `tokenWeights` "token-mean": what metrics are averaged with. */
  readonly shares: tf.Tensor;
  /** `sequenceShares`; for gspo. */
  readonly sequenceShares?: tf.Tensor;
}

/** Scalars. Like the loss, metrics of micro-batches add up to the minibatch's. */
export interface PolicyLoss {
  readonly loss: tf.Scalar;
  /** Share of tokens clipped at 1 + clipHigh (advantage above 0), and at 1 - clipLow (below 0). */
  readonly clipHighShare: tf.Scalar;
  readonly clipLowShare: tf.Scalar;
  /** Share of tokens held by the dual clip. */
  readonly dualClipShare: tf.Scalar;
  /** Mean of old minus new log-probability, in nats. */
  readonly ratioKl: tf.Scalar;
}

/**
 * ppo:   `max(-A rho, -A clip(rho, 1 - clipLow, 1 + clipHigh))`, and where A < 0 at most `-A dualClip`.
 * gspo:  the same without dual clip, `rho = exp(mean over the sequence of log rho_t)`.
 * cispo: `-A stop(clip(rho, 1 - clipLow, 1 + clipHigh)) logProb`.
 *
 * Written with A+ = max(A, 0) and A- = min(A, 0): `-A+ min(rho, 1 + clipHigh) - A- clip(rho, 1 - clipLow, dualClip)`.
 *
 * Source: PPO https://arxiv.org/abs/1707.06347; dual clip https://arxiv.org/abs/1912.09729; clip-higher
 * https://arxiv.org/abs/2503.14476; GSPO https://arxiv.org/abs/2507.18071; CISPO https://arxiv.org/abs/2506.13585.
 */
export function policyLoss(tensors: PolicyTensors, rule: PolicyRule): PolicyLoss {
  const { logProbs, oldLogProbs, advantages, weights, shares } = tensors;
  const logRatio = tf.clipByValue(tf.sub(logProbs, oldLogProbs), -LOG_RATIO_MAX, LOG_RATIO_MAX);
  const ratio = tf.exp(rule.kind === "gspo" ? sequenceMean(logRatio, tensors) : logRatio);
  const gains = tf.maximum(advantages, 0);
  const losses = tf.minimum(advantages, 0);
  const low = 1 - rule.clipLow;
  const high = 1 + rule.clipHigh;
  const ceiling = rule.kind === "ppo" && rule.dualClip !== null ? rule.dualClip : Number.POSITIVE_INFINITY;
  const perToken =
    rule.kind === "cispo"
      ? tf.mul(tf.mul(advantages, detach(tf.clipByValue(ratio, low, high))), logProbs)
      : tf.add(tf.mul(gains, tf.minimum(ratio, high)), tf.mul(losses, between(ratio, low, ceiling)));
  const share = (first: tf.Tensor, second: tf.Tensor) =>
    total(tf.mul(tf.cast(first, "float32"), tf.cast(second, "float32")), shares);
  const negative = tf.less(advantages, 0);
  return {
    loss: tf.neg(total(perToken, weights)),
    clipHighShare: share(tf.greater(advantages, 0), tf.greater(ratio, high)),
    clipLowShare: share(negative, tf.less(ratio, low)),
    dualClipShare: Number.isFinite(ceiling)
      ? share(negative, tf.greater(ratio, ceiling))
      : total(tf.zerosLike(shares), shares),
    ratioKl: tf.neg(total(tf.sub(logProbs, oldLogProbs), shares)),
  };
}

const total = (values: tf.Tensor, weights: tf.Tensor): tf.Scalar => tf.sum(tf.mul(values, weights));

const between = (x: tf.Tensor, low: number, high: number) =>
  Number.isFinite(high) ? tf.clipByValue(x, low, high) : tf.maximum(x, low);

/** (B, 1): each row's mean over its written tokens. */
function sequenceMean(logRatio: tf.Tensor, { sequenceShares }: PolicyTensors): tf.Tensor {
  if (sequenceShares === undefined) throw new RangeError("gspo compares whole sequences: pass sequenceShares");
  return tf.sum(tf.mul(logRatio, sequenceShares), 1, true);
}

export interface ValueTensors {
  /** (B, T) of the critic being trained; differentiated. */
  readonly values: tf.Tensor;
  /** (B, T) of the critic before this update, and its targets. */
  readonly oldValues: tf.Tensor;
  readonly returns: tf.Tensor;
  readonly weights: tf.Tensor;
  readonly shares: tf.Tensor;
}

/**
 * `max((v - R)^2, (v_old + clip(v - v_old, -c, c) - R)^2) / 2` per token.
 *
 * Source: PPO's clipped value loss; RAGEN's c is 0.5.
 */
export function valueLoss({ values, oldValues, returns, weights, shares }: ValueTensors, clip: number) {
  const clipped = tf.add(oldValues, tf.clipByValue(tf.sub(values, oldValues), -clip, clip));
  const free = tf.square(tf.sub(values, returns));
  const bounded = tf.square(tf.sub(clipped, returns));
  return {
    loss: tf.mul(total(tf.maximum(free, bounded), weights), 0.5) as tf.Scalar,
    /** Share of tokens where the clipped error is the larger. */
    clipShare: total(tf.cast(tf.greater(bounded, free), "float32"), shares),
  };
}

/** (B, T) values and what each weighs: the policy loss's weights times a coefficient. */
interface Weighed {
  readonly values: tf.Tensor;
  readonly weights: tf.Tensor;
}

/** `policy - sum(entropy) + sum(KL)`, each weighed per token; an absent one is not computed. */
export function regularised(
  policy: tf.Scalar,
  { entropy, kl }: { readonly entropy: Weighed | null; readonly kl: Weighed | null },
): tf.Scalar {
  let loss: tf.Tensor = policy;
  if (entropy !== null) loss = tf.sub(loss, total(entropy.values, entropy.weights));
  if (kl !== null) loss = tf.add(loss, total(kl.values, kl.weights));
  return loss as tf.Scalar;
}

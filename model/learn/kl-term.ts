/** How far a policy is from its reference, per token, as tensors that a loss is made of. */
import * as tf from "@tensorflow/tfjs-core";
import { EXPONENT_MAX, type KlEstimator } from "./kl.ts";

/**
 * KL(policy || reference) per token, from the log-probabilities of the sampled token, with d = logProbs - reference:
 *
 * - k1: d. Unbiased, but its gradient is zero on average: for the reward, not for a loss.
 * - abs: |d|.
 * - k2: d^2 / 2.
 * - k3: exp(-d) + d - 1, the exponent clamped to [-20, 20] and the result to [-10, 10]. Never negative.
 * - k3+: the value of k3 with the gradient of k2.
 *
 * Source: http://joschu.net/blog/kl-approx.html; clamps as verl.
 *
 * @param logProbs  (B, T) differentiable.
 * @param reference (B, T).
 * @returns (B, T) in nats.
 */
export function klEstimate(logProbs: tf.Tensor, reference: tf.Tensor, estimator: KlEstimator): tf.Tensor {
  const d = tf.sub(logProbs, reference);
  switch (estimator) {
    case "k1":
      return d;
    case "abs":
      return tf.abs(d);
    case "k2":
      return tf.mul(tf.square(d), 0.5);
    case "k3":
      return k3(d);
    case "k3+": {
      const k2 = tf.mul(tf.square(d), 0.5);
      return tf.add(k2, detach(tf.sub(k3(d), k2)));
    }
    default:
      return estimator satisfies never;
  }
}

function k3(d: tf.Tensor): tf.Tensor {
  const ratio = tf.exp(tf.clipByValue(tf.neg(d), -EXPONENT_MAX, EXPONENT_MAX));
  return tf.clipByValue(tf.sub(tf.add(ratio, d), 1), -10, 10);
}

/** The same values, through which no gradient flows. */
export function detach(x: tf.Tensor): tf.Tensor {
  return tf.customGrad((value) => ({
    value: (value as tf.Tensor).clone(),
    gradFunc: (dy) => tf.zerosLike(dy as tf.Tensor),
  }))(x);
}

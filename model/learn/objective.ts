/**
 * The objectives of training: imitation of demonstrations, policy gradient, value regression. An objective turns the network's scores
 * of the written tokens into a loss. It knows no network.
 */
import * as tf from "@tensorflow/tfjs-core";
import type { Sequence } from "./batch.ts";
import type { KlTerm } from "./kl.ts";
import { klEstimate, type PolicyRule, type PolicyTensors, policyLoss, type ValueTensors, valueLoss } from "./loss.ts";

/** The policy's scores of each written token, (B, W) each. */
interface TokenScores {
  readonly logProbs: tf.Tensor;
  readonly entropies: tf.Tensor;
}

/** The critic's value of the state before each written token, (B, W). */
interface ValueScores {
  readonly values: tf.Tensor;
}

interface Loss {
  readonly loss: tf.Scalar;
  readonly metrics: Readonly<Record<string, tf.Scalar>>;
}

/** The output layer that an objective reads. A network may have both. */
export type Head = "tokens" | "value";

interface ObjectiveOf<H extends Head, Scores> {
  readonly head: H;
  /** Names the compiled function; equal names must mean equal functions. */
  readonly name: string;
  /** Names of the per-token inputs, (B, W) each, besides the tokens themselves. */
  readonly inputs: readonly string[];
  readonly loss: (scores: Scores, inputs: Readonly<Record<string, tf.Tensor>>) => Loss;
}

/** A loss over written tokens. Losses and metrics are sums, so the sums of micro-batches add up to the minibatch's. */
export type Objective = ObjectiveOf<"tokens", TokenScores> | ObjectiveOf<"value", ValueScores>;

/** Per-token values of every sequence, by input name: [sequence][written token]. */
export type TokenInputs = Readonly<Record<string, readonly ArrayLike<number>[]>>;

/** Cross-entropy of the demonstrated tokens: `-sum(weights · logProb)`. */
export const imitation: Objective = {
  head: "tokens",
  name: "imitate",
  inputs: ["weights"],
  loss: ({ logProbs, entropies }, { weights }) => ({
    loss: tf.neg(tf.sum(tf.mul(logProbs, weights!))) as tf.Scalar,
    metrics: { entropy: tf.sum(tf.mul(entropies, weights!)) as tf.Scalar },
  }),
};

/** The weights of `imitation` with which all written tokens count equally. */
export function evenWeights(demos: readonly Sequence[]): Float32Array[] {
  const tokens = demos.reduce((sum, { written }) => sum + written.length, 0);
  return demos.map(({ written }) => new Float32Array(written.length).fill(1 / tokens));
}

export interface PolicySettings {
  readonly rule: PolicyRule;
  readonly entropyCoefficient: number;
  /** null: no KL term in the loss. The gradient of k1 is zero on average, so k1 is here only for comparisons with RAGEN. */
  readonly kl: KlTerm | null;
}

interface ExtraTerms {
  /** True: the loss includes the cross-entropy of the env's tokens, weighted by `observationWeights` (update/update.ts). */
  readonly hasObservationTerm?: boolean;
  /** True: the loss includes KL-Cov's term (covariance.ts), weighted by `covarianceWeights` (update/prepare.ts). */
  readonly hasCovarianceTerm?: boolean;
}

/**
 * Policy gradient on sampled tokens: clipped ratio, entropy bonus, KL to a reference.
 * The ratio is exp(logProbs - oldLogProbs). `weights` come from aggregation.ts. `entropyWeights` and `klWeights` are these weights
 * times the coefficients.
 */
export function policyObjective(
  { rule, entropyCoefficient, kl }: PolicySettings,
  { hasObservationTerm = false, hasCovarianceTerm = false }: ExtraTerms = {},
): Objective {
  const hasEntropyBonus = entropyCoefficient !== 0;
  const inputs = ["oldLogProbs", "advantages", "weights", "shares"];
  if (rule.kind === "gspo") inputs.push("sequenceShares");
  if (hasEntropyBonus) inputs.push("entropyWeights");
  if (kl !== null) inputs.push("reference", "klWeights");
  if (hasObservationTerm) inputs.push("observationWeights");
  if (hasCovarianceTerm) inputs.push("covarianceWeights");
  return {
    head: "tokens",
    // The name has no coefficients, because the coefficients are in the weights and may change with every update.
    name: `policy ${JSON.stringify([rule, hasEntropyBonus, kl?.estimator, hasObservationTerm, hasCovarianceTerm])}`,
    inputs,
    loss: ({ logProbs, entropies }, x) => {
      const given = x as Omit<PolicyTensors, "logProbs">;
      const { oldLogProbs, shares } = given;
      const policy = policyLoss({ ...given, logProbs }, rule);
      const weighted = (values: tf.Tensor, weights: tf.Tensor) => tf.sum(tf.mul(values, weights)) as tf.Scalar;
      const mean = (values: tf.Tensor) => weighted(values, shares);
      const divergence = kl === null ? null : klEstimate(logProbs, x["reference"]!, kl.estimator);
      const observation = hasObservationTerm ? tf.neg<tf.Scalar>(weighted(logProbs, x["observationWeights"]!)) : null;
      let loss = policy.loss;
      if (hasEntropyBonus) loss = tf.sub(loss, weighted(entropies, x["entropyWeights"]!));
      if (divergence !== null) loss = tf.add(loss, weighted(divergence, x["klWeights"]!));
      if (hasCovarianceTerm)
        loss = tf.add(loss, weighted(klEstimate(logProbs, oldLogProbs, "abs"), x["covarianceWeights"]!));
      if (observation !== null) loss = tf.add(loss, observation);
      return {
        loss,
        metrics: {
          policyLoss: policy.loss,
          clipHigh: policy.clipHighShare,
          clipLow: policy.clipLowShare,
          dualClip: policy.dualClipShare,
          ratioKl: policy.ratioKl,
          entropy: mean(entropies),
          ...(divergence === null ? {} : { kl: mean(divergence) }),
          ...(observation === null ? {} : { observationLoss: observation }),
          logProbGap: mean(tf.abs(tf.sub(logProbs, oldLogProbs))),
        },
      };
    },
  };
}

/** Clipped squared error of the critic's values. @param clip  how far a value may move from its value before the update, in reward units */
export function valueObjective(clip: number): Objective {
  return {
    head: "value",
    name: `value ${clip}`,
    inputs: ["oldValues", "returns", "weights", "shares"],
    loss: ({ values }, x) => {
      const { loss, clipShare } = valueLoss({ ...(x as Omit<ValueTensors, "values">), values }, clip);
      return { loss, metrics: { valueLoss: loss, valueClip: clipShare } };
    },
  };
}

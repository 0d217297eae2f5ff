/** What a policy is trained towards: to say what a demonstration says, or to do more of what was rewarded. */
import * as tf from "@tensorflow/tfjs-core";
import type { KlEstimator } from "./kl.ts";
import { klEstimate } from "./kl-term.ts";
import { type PolicyRule, policyLoss, regularised, valueLoss } from "./loss.ts";
import type { Objective } from "./objective.ts";

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

export interface PolicySettings {
  readonly rule: PolicyRule;
  readonly entropyCoefficient: number;
  /** null: no KL term in the loss. k1 has no gradient on average: for comparisons with RAGEN only. */
  readonly kl: { readonly estimator: KlEstimator; readonly coefficient: number } | null;
}

/**
 * Policy gradient on sampled tokens: clipped ratio, entropy bonus, KL to a reference.
 * `oldLogProbs` are those that the ratio compares with. Weights: see aggregation.ts; `entropyWeights` and `klWeights` are these
 * times the coefficients.
 */
export function policyObjective({ rule, entropyCoefficient, kl }: PolicySettings): Objective {
  const hopeful = entropyCoefficient !== 0;
  const inputs = ["oldLogProbs", "advantages", "weights", "shares"];
  if (rule.kind === "gspo") inputs.push("sequenceShares");
  if (hopeful) inputs.push("entropyWeights");
  if (kl !== null) inputs.push("reference", "klWeights");
  return {
    head: "tokens",
    // Without the coefficients, which may change with every update: they are in the weights.
    name: `policy ${JSON.stringify([rule, hopeful, kl?.estimator])}`,
    inputs,
    loss: ({ logProbs, entropies }, x) => {
      const { oldLogProbs, advantages, weights, shares, sequenceShares } = x as Record<string, tf.Tensor>;
      const policy = policyLoss(
        {
          logProbs,
          oldLogProbs: oldLogProbs!,
          advantages: advantages!,
          weights: weights!,
          shares: shares!,
          ...(sequenceShares === undefined ? {} : { sequenceShares }),
        },
        rule,
      );
      const mean = (values: tf.Tensor) => tf.sum(tf.mul(values, shares!)) as tf.Scalar;
      const divergence = kl === null ? null : klEstimate(logProbs, x["reference"]!, kl.estimator);
      return {
        loss: regularised(policy.loss, {
          entropy: hopeful ? { values: entropies, weights: x["entropyWeights"]! } : null,
          kl: divergence === null ? null : { values: divergence, weights: x["klWeights"]! },
        }),
        metrics: {
          policyLoss: policy.loss,
          clipHigh: policy.clipHighShare,
          clipLow: policy.clipLowShare,
          dualClip: policy.dualClipShare,
          ratioKl: policy.ratioKl,
          entropy: mean(entropies),
          ...(divergence === null ? {} : { kl: mean(divergence) }),
          logProbGap: mean(tf.abs(tf.sub(logProbs, oldLogProbs!))),
        },
      };
    },
  };
}

/** The critic's: clipped squared error to the returns. @param clip  how far a value may move, in reward units */
export function valueObjective(clip: number): Objective {
  return {
    head: "value",
    name: `value ${clip}`,
    inputs: ["oldValues", "returns", "weights", "shares"],
    loss: ({ values }, x) => {
      const { oldValues, returns, weights, shares } = x as Record<string, tf.Tensor>;
      const tensors = { values, oldValues: oldValues!, returns: returns!, weights: weights!, shares: shares! };
      const { loss, clipShare } = valueLoss(tensors, clip);
      return { loss, metrics: { valueLoss: loss, valueClip: clipShare } };
    },
  };
}

/** The inputs and weights of one gradient, for every written token of some of the prepared episodes. */
import { tokenWeights } from "../aggregation.ts";
import type { TokenInputs } from "../objective.ts";
import { episodeRows, splitBySample } from "../sequences.ts";
import type { PreparedUpdate } from "./prepare.ts";
import type { UpdateSettings } from "./types.ts";

export type Minibatch = Pick<PreparedUpdate, "samples" | "inputs">;

/** The episodes at these indices. */
export function minibatchOf({ samples, inputs }: PreparedUpdate, indices: readonly number[]): Minibatch {
  const chosen = Object.entries(inputs).map(([name, values]) => [name, indices.map((i) => values[i]!)] as const);
  return { samples: indices.map((i) => samples[i]!), inputs: Object.fromEntries(chosen) };
}

/** [sample][written token] each. The weights are normalized over the episodes of the whole minibatch. */
export function sampleInputs({ samples, inputs }: Minibatch, settings: UpdateSettings): TokenInputs {
  const { aggregation, policy, writtenTokensMax } = settings;
  const rows = episodeRows(samples);
  const bySample = (laid: Float32Array) => splitBySample(samples, rows.split(laid));
  // Times the number of episodes, because verl's seq-mean-token-sum-norm is a sum over rows and Bunraku's a mean.
  const weights = tokenWeights(rows, aggregation, writtenTokensMax * samples.length);
  const times = (coefficient: number) => bySample(weights.map((weight) => weight * coefficient));
  const { covarianceFactors, ...perToken } = inputs;
  const factors = covarianceFactors === undefined ? null : rows.lay(covarianceFactors);
  return {
    ...Object.fromEntries(Object.entries(perToken).map(([name, values]) => [name, splitBySample(samples, values)])),
    ...(factors === null ? {} : { covarianceWeights: bySample(weights.map((weight, i) => weight * factors[i]!)) }),
    weights: bySample(weights),
    entropyWeights: times(policy.entropyCoefficient),
    klWeights: times(policy.kl?.coefficient ?? 0),
    shares: bySample(tokenWeights(rows, "token-mean")),
    // gspo's ratio is that of one context: the network sees no more of an episode at once.
    sequenceShares: samples.flat().map(({ written }) => new Float32Array(written.length).fill(1 / written.length)),
  };
}

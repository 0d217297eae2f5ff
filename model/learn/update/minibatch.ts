/** Some of the prepared trajectories as what one gradient is computed from: inputs and weights, for every written token. */
import { tokenWeights } from "../aggregation.ts";
import type { TokenInputs } from "../objective.ts";
import { cut } from "../sequences.ts";
import type { Prepared } from "./prepare.ts";
import type { UpdateSettings } from "./update.ts";
import { gridOf } from "./written-rows.ts";

export type Part = Pick<Prepared, "samples" | "inputs">;

/** The trajectories at these indices. */
export function partOf({ samples, inputs }: Prepared, indices: readonly number[]): Part {
  const part = Object.entries(inputs).map(([name, values]) => [name, indices.map((i) => values[i]!)] as const);
  return { samples: indices.map((i) => samples[i]!), inputs: Object.fromEntries(part) };
}

/** [sample][written token] each. Weights are dealt out over episodes, and hold the normaliser of the whole part. */
export function sampleInputs({ samples, inputs }: Part, settings: UpdateSettings): TokenInputs {
  const { aggregation, policy, writtenTokensMax } = settings;
  const grid = gridOf(samples);
  const deal = (laid: Float32Array) => cut(samples, grid.split(laid));
  // Divided by the rows as well, as its name says; verl's sums over them.
  const weights = tokenWeights(grid, aggregation, writtenTokensMax * samples.length);
  const times = (coefficient: number) => deal(weights.map((weight) => weight * coefficient));
  return {
    ...Object.fromEntries(Object.entries(inputs).map(([name, values]) => [name, cut(samples, values)])),
    weights: deal(weights),
    entropyWeights: times(policy.entropyCoefficient),
    klWeights: times(policy.kl?.coefficient ?? 0),
    shares: deal(tokenWeights(grid, "token-mean")),
    // A sequence's ratio (gspo) is that of one context: the network sees no more of an episode at once.
    sequenceShares: samples.flat().map(({ written }) => new Float32Array(written.length).fill(1 / written.length)),
  };
}

/**
 * TPO's advantages before a gradient step: the target probabilities minus those of the current policy. The current
 * policy's probabilities need a forward pass over all episodes of every group that the step contains.
 */
import { groupPolicy } from "../advantage/tpo.ts";
import type { Aggregation } from "../aggregation.ts";
import type { TrainedPolicy } from "../network.ts";
import { joinByEpisode, type Samples } from "../sequences.ts";
import type { UpdateSettings } from "./types.ts";

/** The policy that training moves towards, as probabilities of the episodes of each group. */
export interface TargetPolicy {
  /** (B) */
  readonly groups: readonly number[];
  /** (B) */
  readonly targetProbabilities: ArrayLike<number>;
  /** (B)(W) factors on the advantages. */
  readonly advantageFactors: readonly Float32Array[];
}

/** Log-probability of an episode: the mean over its tokens if the aggregation is seq-mean-token-mean, else their sum. */
export function episodeLogProb(tokens: ArrayLike<number>, aggregation: Aggregation): number {
  const sum = Array.from(tokens).reduce((total, logProb) => total + logProb, 0);
  return aggregation === "seq-mean-token-mean" ? sum / tokens.length : sum;
}

/** (indices)(W) factor · (q - p) of each episode at `indices`, with q and p of tpo.ts. @param samples  (B) */
export async function advantagesTowards(
  { groups, targetProbabilities, advantageFactors }: TargetPolicy,
  policy: Pick<TrainedPolicy, "score">,
  samples: readonly Samples[],
  indices: readonly number[],
  { limits, temperature, aggregation }: UpdateSettings,
): Promise<Float32Array[]> {
  const touched = new Set(indices.map((i) => groups[i]!));
  const members = [...groups.keys()].filter((i) => touched.has(groups[i]!));
  const own = members.map((i) => samples[i]!);
  const { logProbs } = await policy.score(own.flat(), limits, temperature);
  const now = joinByEpisode(own, logProbs).map((tokens) => episodeLogProb(tokens, aggregation));
  const present = groupPolicy(
    now,
    members.map((i) => groups[i]!),
  );
  return indices.map((i) =>
    advantageFactors[i]!.map((factor) => factor * (targetProbabilities[i]! - present[members.indexOf(i)]!)),
  );
}

/**
 * Computes the inputs of a gradient step from the kept episodes: old log-probabilities, advantages, targets of the critic, and the
 * reference's log-probabilities. Each input is [episode][written token], over all contexts of an episode.
 *
 * - Advantages are estimated over the whole update, never over a minibatch.
 * - "Written tokens" are those that the loss is on, which may be more than the replies (loss-mask.ts). A token that no sampler
 *   wrote has no recorded log-probability. The current policy's log-probability replaces it, so the token's ratio starts at 1.
 * - Some settings multiply the policy loss of an episode or a token by a factor. The code multiplies the advantages instead, which gives
 *   the same policy loss. The entropy and KL terms do not change.
 */
import { explainedVariance } from "../../health/diagnostics.ts";
import { mean } from "../../statistics.ts";
import { rawReward, type Trajectory } from "../../trajectory.ts";
import { type Advantages, estimateAdvantages, NEEDS_CRITIC } from "../advantage/advantage.ts";
import { rowFactors } from "../advantage/scaling.ts";
import { importanceWeights, rowLengths, tokenWeights } from "../aggregation.ts";
import { covariances, holdBack } from "../covariance.ts";
import { klInReward, klNumbers } from "../kl.ts";
import { lossMask } from "../loss-mask.ts";
import type { TrainedPolicy } from "../network.ts";
import type { TokenInputs } from "../objective.ts";
import { normalizeTurns } from "../reward.ts";
import { type EpisodeRows, episodeRows, joinByEpisode, type Samples, samplesOf, splitBySample } from "../sequences.ts";
import type { ScoredEpisode } from "./score.ts";
import { episodeLogProb, type TargetPolicy } from "./towards-target.ts";
import type { UpdateNetworks, UpdateSettings } from "./types.ts";

export interface PreparedUpdate {
  readonly samples: readonly Samples[];
  /** Advantages of the tokens that the policy wrote, even if the loss is on more tokens. */
  readonly replyAdvantages: readonly Float32Array[];
  readonly inputs: TokenInputs;
  /** null for all estimators but tpo, which computes its advantages again before each step. */
  readonly target: TargetPolicy | null;
  readonly metrics: Readonly<Record<string, number>>;
}

/** The kept episodes, before advantages. */
interface KeptEpisodes {
  readonly episodes: readonly ScoredEpisode[];
  readonly rows: EpisodeRows;
  /** (B)(W) positions of the written tokens. */
  readonly positions: readonly Int32Array[];
  /** (B)(W) log-probabilities recorded at sampling. A token that no sampler wrote has the current policy's. */
  readonly sampled: readonly Float32Array[];
  /** (B)(W) log-probabilities by this policy, with its current parameters. */
  logProbs(policy: Pick<TrainedPolicy, "score">): Promise<Float32Array[]>;
}

/** @param keptShare  share of the groups that the filter kept; for filter loss scaling */
export async function prepare(
  networks: UpdateNetworks<TrainedPolicy>,
  episodes: readonly ScoredEpisode[],
  keptShare: number,
  settings: UpdateSettings,
): Promise<PreparedUpdate> {
  const { critic, reference } = networks;
  const onReplies = settings.lossOn === "replies";
  const trained = episodes.map(({ trajectory }) => ({ ...trajectory, written: lossMask(trajectory, settings.lossOn) }));
  const samples = trained.map(samplesOf);
  const rows = episodeRows(samples);
  const positions = trained.map(writtenPositions);
  const sequences = samples.flat();
  const { limits, temperature } = settings;
  const logProbs = async (policy: Pick<TrainedPolicy, "score">) =>
    joinByEpisode(samples, (await policy.score(sequences, limits, temperature)).logProbs);
  const current = onReplies ? null : await logProbs(networks.policy);
  const kept: KeptEpisodes = {
    episodes,
    rows,
    positions,
    sampled: episodes.map(({ trajectory: { written, logProbs } }, i) =>
      Float32Array.from(positions[i]!, (at, w) => (written[at] === 1 ? logProbs[at]! : current![i]![w]!)),
    ),
    logProbs,
  };
  const hasKlTerm = settings.policy.kl !== null || settings.klInReward !== null;
  if (hasKlTerm && reference === null)
    throw new RangeError("a KL term needs a reference policy: set networks.reference");
  const referenceLogProbs = hasKlTerm ? await kept.logProbs(reference!) : null;
  const values =
    critic !== null && settings.critic !== null ? joinByEpisode(samples, await critic.values(sequences, limits)) : null;

  const estimate = advantagesOf(kept, values, referenceLogProbs, settings);
  const factors = await advantageFactors(networks, kept, keptShare, settings);
  const advantages = estimate.advantages.map((advantage, i) => advantage * factors.weights[i]!);
  const covariance = covariances(rows, advantages, rows.lay(kept.sampled));
  const held = holdBack(rows, advantages, covariance, settings.covariance);
  const perToken = rows.split(held.advantages);
  const replyAdvantages = perToken.map((row, i) =>
    row.filter((_, w) => episodes[i]!.trajectory.written[positions[i]![w]!] === 1),
  );
  const metrics: Record<string, number> = {
    ...estimate.measured,
    ...factors.measured,
    advantageAbs: mean(perToken.flatMap((row) => [...row.map(Math.abs)])),
    covariance: mean(covariance.filter((_, i) => rows.written[i] === 1)),
    ...(settings.covariance === null ? {} : { heldTokens: held.share }),
  };
  const inputs: Record<string, readonly ArrayLike<number>[]> = {
    oldLogProbs: factors.oldLogProbs,
    advantages: perToken,
  };
  if (held.factors !== null) inputs["covarianceFactors"] = rows.split(held.factors);
  if (referenceLogProbs !== null && settings.policy.kl !== null) inputs["reference"] = referenceLogProbs;
  if (values !== null && estimate.returns !== null) {
    inputs["oldValues"] = values;
    inputs["returns"] = rows.split(estimate.returns);
    const explained = explainedVariance(rows.lay(values), estimate.returns, rows.written);
    if (explained !== null) metrics["explainedVariance"] = explained;
  }
  const target =
    estimate.targetProbabilities === undefined
      ? null
      : {
          groups: episodes.map(({ group }) => group),
          targetProbabilities: estimate.targetProbabilities,
          advantageFactors: rows.split(factors.weights),
        };
  return { samples, replyAdvantages, inputs, target, metrics };
}

const writtenPositions = ({ written }: Trajectory) => Int32Array.from(written.keys().filter((i) => written[i] === 1));

function advantagesOf(
  { episodes, rows, positions, sampled }: KeptEpisodes,
  values: readonly Float32Array[] | null,
  referenceLogProbs: readonly Float32Array[] | null,
  { estimator, aggregation, klInReward: penalty }: UpdateSettings,
): Advantages {
  const turns = episodes.map(({ trajectory, earned, score, scale }, i) => {
    const column = new Map(Array.from(positions[i]!, (position, at) => [position, at]));
    const ends = trajectory.turns.map(({ end }) => column.get(end)!);
    return normalizeTurns({ ends, rewards: earned }, score, scale);
  });
  const kl =
    penalty === null
      ? null
      : rows.lay(sampled.map((row, i) => klNumbers(row, referenceLogProbs![i]!, penalty.estimator)));
  const tokenExtras = kl === null ? null : klInReward(kl, rows.written, penalty!.coefficient);
  const logProbs = estimator.kind === "tpo" ? sampled.map((tokens) => episodeLogProb(tokens, aggregation)) : null;
  const estimate = estimateAdvantages(
    {
      width: rows.width,
      written: rows.written,
      turns,
      groups: episodes.map(({ group }) => group),
      anchors: episodes.map(({ anchors }) => anchors),
      successes: episodes.map(({ success }) => success),
      ...(values !== null && NEEDS_CRITIC.has(estimator.kind) ? { values: rows.lay(values) } : {}),
      ...(tokenExtras === null ? {} : { tokenExtras }),
      ...(logProbs === null ? {} : { logProbs }),
    },
    estimator,
  );
  if (kl === null) return estimate;
  const tokens = rowLengths(rows).reduce((sum, length) => sum + length, 0);
  return { ...estimate, measured: { ...estimate.measured, kl: kl.reduce((sum, one) => sum + one, 0) / tokens } };
}

interface AdvantageFactors {
  /** (B, W) */
  readonly weights: Float32Array;
  /** (B)(W) the old log-probabilities of the ratios. */
  readonly oldLogProbs: readonly Float32Array[];
  readonly measured: Readonly<Record<string, number>>;
}

async function advantageFactors(
  { policy }: UpdateNetworks<TrainedPolicy>,
  { episodes, rows, sampled, logProbs }: KeptEpisodes,
  keptShare: number,
  { scaling, importance }: UpdateSettings,
): Promise<AdvantageFactors> {
  const rewards = episodes.map(({ trajectory }) => rawReward(trajectory));
  const groups = episodes.map(({ group }) => group);
  const perRow = rowFactors({ rewards, groups, lengths: rowLengths(rows), keptShare }, scaling);
  const weights = Float32Array.from(rows.written, (_, i) => perRow[Math.floor(i / rows.width)]!);
  if (importance === null) return { weights, oldLogProbs: sampled, measured: {} };
  const oldLogProbs = await logProbs(policy);
  const [learner, sampler] = [rows.lay(oldLogProbs), rows.lay(sampled)];
  const ratios = importanceWeights(rows, learner, sampler, importance);
  const written = [...rows.written.keys()].filter((i) => rows.written[i] === 1);
  return {
    weights: weights.map((weight, i) => weight * ratios[i]!),
    oldLogProbs,
    measured: {
      importance: mean(written.map((i) => ratios[i]!)),
      importanceCapped: mean(written.map((i) => Number(ratios[i] === Math.fround(importance.cap)))),
      logProbGap: mean(written.map((i) => Math.abs(learner[i]! - sampler[i]!))),
    },
  };
}

/** Some of the prepared episodes: their samples, and for each written token the inputs of the loss. */
export type Minibatch = Pick<PreparedUpdate, "samples" | "inputs">;

/** The minibatch of the episodes at these indices. */
export function minibatchOf({ samples, inputs }: PreparedUpdate, indices: readonly number[]): Minibatch {
  const chosen = Object.entries(inputs).map(([name, values]) => [name, indices.map((i) => values[i]!)] as const);
  return { samples: indices.map((i) => samples[i]!), inputs: Object.fromEntries(chosen) };
}

/** The inputs of the loss, [sample][written token] each. The weights are normalized over the whole minibatch. */
export function sampleInputs({ samples, inputs }: Minibatch, settings: UpdateSettings): TokenInputs {
  const { aggregation, policy, writtenTokensMax } = settings;
  const rows = episodeRows(samples);
  const bySample = (laid: Float32Array) => splitBySample(samples, rows.split(laid));
  // With the number of episodes in the divisor, seq-mean-token-sum-norm is a mean over rows. In verl it is a sum over rows.
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
    // gspo has one ratio for each context, not for each episode: the network sees only one context at a time.
    sequenceShares: samples.flat().map(({ written }) => new Float32Array(written.length).fill(1 / written.length)),
  };
}

/**
 * One StarPO update with a group-relative baseline in float64, straight from the papers: filter, advantages, loss, a gradient by
 * central differences, clipped AdamW. Slow; shares only the rules' parameters with model/.
 */

import type { TrainingEpisode, UpdateSettings } from "../../../../model/learn/update/types.ts";
import type { ModelConfig } from "../../../../model/policy/model-config.ts";
import { referenceLogProbs } from "../../policy/tiny-policy.ts";

interface Reference {
  readonly parameters: Float64Array;
  readonly kept: readonly TrainingEpisode[];
  readonly gradientNorm: number;
}

export const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;
/** Sample standard deviation. */
export const deviation = (values: readonly number[]) =>
  Math.sqrt(values.reduce((sum, value) => sum + (value - mean(values)) ** 2, 0) / (values.length - 1));
const raw = ({ trajectory }: TrainingEpisode) => trajectory.turns.reduce((sum, { reward }) => sum + reward, 0);
const penalized = ({ trajectory }: TrainingEpisode) =>
  trajectory.turns.reduce((sum, { reward, penalty }) => sum + reward + penalty, 0);
const clip = (x: number, low: number, high: number) => Math.min(high, Math.max(low, x));

/** (T)(V) log-probabilities of the token after each token, given the tokens of the same context up to there. */
export function referenceScores(
  model: ModelConfig,
  flat: ArrayLike<number>,
  { tokens, contexts }: Pick<TrainingEpisode["trajectory"], "tokens" | "contexts">,
  temperature: number,
) {
  return contexts.flatMap((start, i) =>
    referenceLogProbs(model, flat, tokens.slice(start, contexts[i + 1] ?? tokens.length), temperature),
  );
}

/** The advantage of a group's member: from its score, the group's scores, the group's share of successes, and whether the member succeeded. */
const COMPARED: Record<
  string,
  (score: number, scores: readonly number[], share: number, succeeded: boolean) => number
> = {
  grpo: (score, scores) => (score - mean(scores)) / (deviation(scores) + 1e-6),
  "dr-grpo": (score, scores) => score - mean(scores),
  rloo: (score, scores) => score - (sumOf(scores) - score) / (scores.length - 1),
  "max-rl": (score, scores, share) => (share === 0 ? 0 : (score - mean(scores)) / share),
  "expert-iteration": (score, _scores, _share, succeeded) => (succeeded ? score : 0),
};
const sumOf = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0);

/** @param settings  top_ratio by std; an estimator of COMPARED; k1 in the reward; one epoch and one minibatch */
export function referenceUpdate(
  model: ModelConfig,
  start: Float32Array,
  reference: Float32Array,
  played: readonly TrainingEpisode[],
  settings: UpdateSettings,
): Reference {
  const { filter, policy, optimizer, temperature, estimator, importance, scaling, overlong, klInReward } = settings;
  if (filter.strategy !== "top_ratio" || !(estimator.kind in COMPARED || estimator.kind === "tpo"))
    throw new Error("not what this reference is for");
  const groups = [...new Set(played.map(({ group }) => group))];
  const membersOf = (group: number) => played.filter((one) => one.group === group);
  const spread = (group: number) => deviation(membersOf(group).map(raw));
  const ranked = groups.toSorted((a, b) => spread(b) - spread(a));
  const best = ranked.slice(0, Math.floor(filter.value * groups.length));
  const kept = played.filter(({ group }) => best.includes(group));
  const scoresOf = (flat: ArrayLike<number>, { trajectory }: TrainingEpisode) =>
    referenceScores(model, flat, trajectory, temperature);
  const writtenOf = ({ trajectory }: TrainingEpisode) =>
    [...trajectory.written.keys()].filter((t) => trajectory.written[t] === 1);
  /** (W) of the written tokens. */
  const logProbsOf = (scores: number[][], one: TrainingEpisode) =>
    writtenOf(one).map((t) => scores[t - 1]![one.trajectory.tokens[t]!]!);
  const sampled = (one: TrainingEpisode) => writtenOf(one).map((t) => one.trajectory.logProbs[t]!);
  const referred = new Map(played.map((one) => [one, logProbsOf(scoresOf(reference, one), one)]));
  const now = new Map(kept.map((one) => [one, logProbsOf(scoresOf(start, one), one)]));

  const score = (one: TrainingEpisode) => {
    const kl = sumOf(sampled(one).map((logProb, i) => logProb - referred.get(one)![i]!));
    let from = -1;
    const long = one.trajectory.turns.map(({ end }) => {
      const tokens = writtenOf(one).filter((t) => t > from && t <= end).length;
      from = end;
      return overlong === null ? 0 : clip((overlong.tokensMax - overlong.margin - tokens) / overlong.margin, -1, 0);
    });
    return penalized(one) + (overlong?.weight ?? 0) * sumOf(long) - (klInReward?.coefficient ?? 0) * kl;
  };
  const lengths = kept.map((one) => writtenOf(one).length);
  const tokens = sumOf(lengths);
  const widest = Math.max(...best.map(spread));
  const advantages = kept.map((one, i) => {
    if (estimator.kind === "tpo") return 0;
    let advantage = COMPARED[estimator.kind]!(
      score(one),
      membersOf(one.group).map(score),
      mean(membersOf(one.group).map(({ success }) => Number(success))),
      one.success!,
    );
    if (scaling.softReweight) advantage *= spread(one.group) / (widest + 1e-6);
    if (scaling.filterLossScaling === "sqrt") advantage *= Math.sqrt(best.length / groups.length);
    if (scaling.lengthWeighting) advantage *= tokens / kept.length / (lengths[i]! + 1e-6);
    return advantage;
  });
  const corrections = kept.map((one) => {
    const gaps = now.get(one)!.map((logProb, i) => logProb - sampled(one)[i]!);
    if (importance === null) return gaps.map(() => 1);
    return gaps.map((gap) => Math.min(importance.cap, Math.exp(importance.level === "token" ? gap : sumOf(gaps))));
  });
  const shareOf = (i: number) => {
    if (settings.aggregation === "token-mean") return 1 / tokens;
    if (settings.aggregation === "seq-mean-token-sum") return 1 / kept.length;
    if (settings.aggregation === "seq-mean-token-mean") return 1 / kept.length / lengths[i]!;
    return 1 / kept.length / settings.writtenTokensMax;
  };

  /** KL-Cov and Clip-Cov choose by these numbers. Clip-Cov takes all tokens between its bounds here, which is right for a share of 1. */
  const perToken = kept.flatMap((one, i) =>
    sampled(one).map((logProb, k) => ({ i, k, logProb, advantage: advantages[i]! * corrections[i]![k]! })),
  );
  const centers = {
    a: mean(perToken.map(({ advantage }) => advantage)),
    p: mean(perToken.map(({ logProb }) => logProb)),
  };
  const covariances = perToken.map(({ i, k, logProb, advantage }) => ({
    i,
    k,
    value: (advantage - centers.a) * (logProb - centers.p),
  }));
  const { covariance } = settings;
  const largest = covariances
    .toSorted((a, b) => b.value - a.value)
    .slice(0, Math.max(1, Math.floor(tokens * (covariance?.share ?? 0))));
  const isHeld = (i: number, k: number) => largest.some((one) => one.i === i && one.k === k);
  const isClipped = (i: number, k: number) => {
    if (covariance?.treatment !== "clip") return false;
    const { value } = covariances.find((one) => one.i === i && one.k === k)!;
    return value > covariance.bounds[0] && value < covariance.bounds[1];
  };

  /** Positions of the env's tokens after the first reply of their context. */
  const observedOf = ({ trajectory: { written, contexts } }: TrainingEpisode) =>
    [...written.keys()].filter((t) => {
      const begin = contexts.findLast((start) => start <= t)!;
      return written[t] === 0 && written.subarray(begin, t).includes(1);
    });
  const observed = sumOf(kept.map((one) => observedOf(one).length));

  /** TPO's cross-entropy to its target, over the episodes of each group. */
  const groupLogProbs = (logProbs: readonly number[]) => {
    const total = Math.log(sumOf(logProbs.map(Math.exp)));
    return logProbs.map((logProb) => logProb - total);
  };
  const crossEntropy = (flat: Float64Array) =>
    sumOf(
      best.map((group) => {
        const members = membersOf(group);
        // The mean of an episode's tokens, or their sum.
        const share = (one: TrainingEpisode) =>
          settings.aggregation === "seq-mean-token-mean" ? writtenOf(one).length : 1;
        const old = members.map((one) => sumOf(sampled(one)) / share(one));
        const scores = members.map(score);
        const spread = Math.sqrt(mean(scores.map((one) => (one - mean(scores)) ** 2)));
        const target = groupLogProbs(old.map((logProb, i) => logProb + (scores[i]! - mean(scores)) / spread));
        const now = groupLogProbs(members.map((one) => sumOf(logProbsOf(scoresOf(flat, one), one)) / share(one)));
        return -sumOf(target.map((logProb, i) => Math.exp(logProb) * now[i]!));
      }),
    ) /
    kept.length /
    (settings.aggregation === "seq-mean-token-mean" ? 1 : settings.writtenTokensMax);

  const { rule } = policy;
  const loss = (flat: Float64Array) => {
    let sum = estimator.kind === "tpo" ? crossEntropy(flat) : 0;
    for (const [i, one] of kept.entries()) {
      const all = scoresOf(flat, one);
      const logProbs = logProbsOf(all, one);
      const old = importance === null ? sampled(one) : now.get(one)!;
      const drift = mean(logProbs.map((logProb, k) => logProb - old[k]!));
      for (const [k, t] of writtenOf(one).entries()) {
        const advantage = isClipped(i, k) ? 0 : advantages[i]! * corrections[i]![k]!;
        const bounded = (ratio: number) =>
          rule.kind === "reinforce" ? ratio : clip(ratio, 1 - rule.clipLow, 1 + rule.clipHigh);
        const ratio = Math.exp(rule.kind === "gspo" ? drift : logProbs[k]! - old[k]!);
        let surrogate = Math.min(ratio * advantage, bounded(ratio) * advantage);
        if (rule.kind === "ppo" && advantage < 0 && rule.dualClip !== null) {
          surrogate = Math.max(surrogate, rule.dualClip * advantage);
        }
        if (rule.kind === "reinforce") surrogate = advantage * logProbs[k]!;
        // cispo's coefficient has no gradient: it stays as it is at the start.
        if (rule.kind === "cispo")
          surrogate = bounded(Math.exp(now.get(one)![k]! - old[k]!)) * advantage * logProbs[k]!;
        const distribution = all[t - 1]!;
        const entropy = -distribution.reduce((total, logProb) => total + Math.exp(logProb) * logProb, 0);
        const apart = logProbs[k]! - referred.get(one)![k]!;
        const k3 = Math.exp(-apart) + apart - 1;
        const token = -surrogate - policy.entropyCoefficient * entropy + (policy.kl?.coefficient ?? 0) * k3;
        const held = covariance?.treatment === "kl" && isHeld(i, k) ? covariance.coefficient : 0;
        sum += (token + held * Math.abs(logProbs[k]! - old[k]!)) * shareOf(i);
      }
      for (const t of observedOf(one)) {
        sum -= (settings.observationLoss / observed) * all[t - 1]![one.trajectory.tokens[t]!]!;
      }
    }
    return sum;
  };

  const flat = Float64Array.from(start);
  const step = 1e-5;
  const gradient = flat.map((value, i) => {
    flat[i] = value + step;
    const above = loss(flat);
    flat[i] = value - step;
    const below = loss(flat);
    flat[i] = value;
    return (above - below) / (2 * step);
  });
  const gradientNorm = Math.hypot(...gradient);
  const scale = Math.min(1, optimizer.clipNorm / (gradientNorm + 1e-6));
  const { learningRate, weightDecay, epsilon } = optimizer;
  // The first step of Adam: both corrected moments are the gradient's own.
  const parameters = flat.map((value, i) => {
    const g = gradient[i]! * scale;
    return value * (1 - learningRate * weightDecay) - (learningRate * g) / (Math.abs(g) + epsilon);
  });
  return { parameters, kept, gradientNorm };
}

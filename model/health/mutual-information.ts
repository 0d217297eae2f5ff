/**
 * RAGEN-2's collapse metrics. They measure whether a thought depends on its prompt. RAGEN-2 calls a thought a reasoning. The metrics
 * come from a matrix of M reasonings (rows) and N distinct prompts (columns): the log-probability of each reasoning under each prompt
 * (cross-score.ts).
 *
 * - Entropy and information are in nats.
 */
import { deviation, mean } from "../statistics.ts";

export interface CrossScores {
  /** (M)(N) M at least 1; mean log-probability per token of reasoning i under prompt j. */
  readonly perToken: readonly (readonly number[])[];
  /** (M) tokens of each reasoning, at least 1. The log-probability of the whole reasoning is perToken * length. */
  readonly lengths: readonly number[];
  /** (M) column of each reasoning's own prompt. */
  readonly own: readonly number[];
}

/** Running means of the std of the marginals (`marginal_i` at `collapseMetrics`): of scores per token, and of scores of whole reasonings. */
export interface MarginalSpread {
  readonly perToken: number;
  readonly perSequence: number;
}

export interface Collapse {
  /** By RAGEN-2's names, without the prefix `collapse/`: mi_estimate, retrieval_accuracy@2, conditional_entropy_est, ... */
  readonly metrics: Readonly<Record<string, number>>;
  /** The argument `before` of the next call. */
  readonly spread: MarginalSpread;
}

export const COLLAPSE_DEFAULTS = { epsilon: 1e-3, decay: 0.9 };

/** `collapseMetrics` also measures, for each of these k, whether a reasoning's own prompt is among the k best. */
const RANKS = [2, 4, 8];

/**
 * With matched_i = the score of reasoning i under its own prompt and marginal_i = logsumexp_j score_ij - log N:
 * `mi_estimate = mean(matched - marginal)`, at most log N; `conditional_entropy_est = -mean(matched)`, an estimate of H(reasoning | prompt);
 * `mi_zscore = mean(matched - marginal) / (population std of marginal + epsilon)`. Metrics with `ema` in the name use the running mean of the std.
 * Retrieval: the share of reasonings whose own prompt scores best, or is among the k best; of equal scores the lower column ranks first.
 *
 * @param before  the `spread` of the previous call; null at the first call.
 *
 * Source: RAGEN-2, https://arxiv.org/abs/2604.06268.
 */
export function collapseMetrics(
  { perToken, lengths, own }: CrossScores,
  before: MarginalSpread | null,
  { epsilon, decay } = COLLAPSE_DEFAULTS,
): Collapse {
  const sums = perToken.map((row, i) => row.map((score) => score * lengths[i]!));
  const token = information(perToken, own, before?.perToken ?? null, epsilon, decay);
  const sequence = information(sums, own, before?.perSequence ?? null, epsilon, decay);
  const metrics: Record<string, number> = {
    mi_estimate: token.mutual,
    mi_upper_bound: Math.log(perToken[0]!.length),
    matched_log_prob_mean: token.matched,
    marginal_log_prob_mean: token.marginal,
    mi_seq_estimate: sequence.mutual,
    conditional_entropy_est: -token.matched,
    reasoning_entropy_est: -token.marginal,
    conditional_entropy_seq_est: -sequence.matched,
    reasoning_entropy_seq_est: -sequence.marginal,
    marginal_std: token.std,
    marginal_std_seq: sequence.std,
    mi_zscore: token.zscore,
    mi_zscore_seq: sequence.zscore,
    marginal_std_ema: token.running,
    marginal_std_ema_seq: sequence.running,
    mi_zscore_ema: token.zscoreRunning,
    mi_zscore_ema_seq: sequence.zscoreRunning,
    ...retrieval(perToken, own, 1, ""),
  };
  for (const rank of RANKS) Object.assign(metrics, retrieval(perToken, own, rank, `@${rank}`));
  return { metrics, spread: { perToken: token.running, perSequence: sequence.running } };
}

function information(
  scores: readonly (readonly number[])[],
  own: readonly number[],
  before: number | null,
  epsilon: number,
  decay: number,
) {
  const matched = scores.map((row, i) => row[own[i]!]!);
  const marginals = scores.map((row) => logSumExp(row) - Math.log(row.length));
  const mutual = mean(matched.map((score, i) => score - marginals[i]!));
  const std = deviation(marginals, 0);
  const running = before === null ? std : decay * before + (1 - decay) * std;
  return {
    mutual,
    matched: mean(matched),
    marginal: mean(marginals),
    std,
    running,
    zscore: mutual / (std + epsilon),
    zscoreRunning: mutual / (running + epsilon),
  };
}

function logSumExp(values: readonly number[]): number {
  const most = Math.max(...values);
  return most + Math.log(values.reduce((sum, value) => sum + Math.exp(value - most), 0));
}

function retrieval(scores: readonly (readonly number[])[], own: readonly number[], rank: number, suffix: string) {
  const found = scores.filter((row, i) => {
    const mine = row[own[i]!]!;
    return row.filter((score, j) => score > mine || (score === mine && j < own[i]!)).length < rank;
  });
  const accuracy = found.length / scores.length;
  const chance = Math.min(1, rank / scores[0]!.length);
  return {
    [`retrieval_accuracy${suffix}`]: accuracy,
    [`retrieval_chance_level${suffix}`]: chance,
    [`retrieval_above_chance${suffix}`]: accuracy - chance,
  };
}

/** True at the steps at which RAGEN-2 measures collapse: step 1, and the multiples of `every`. */
export const isCollapseStep = (step: number, every: number): boolean => step === 1 || (step > 0 && step % every === 0);

/**
 * Golden cases of masks, rewards, filters, advantages, losses and collapse metrics: inputs from the file, run through
 * `model/`. Knows the file's shapes; holds no answer. A vector it does not know is a check that fails.
 *
 * Inputs that a vector leaves out come from where the Python that wrote the file took them: H8 renders the messages of H6,
 * `gae_v2` reuses `gae_v1`'s tensors, the KL vectors those of the policy loss.
 */
import * as tf from "@tensorflow/tfjs-core";
import "@tensorflow/tfjs-backend-cpu";
import { type BiLevelGae, biLevelGae, type Estimate, gae, turnsFromRewards } from "../../model/advantage/gae.ts";
import { drGrpo, type Grouping, grpo, rloo } from "../../model/advantage/group.ts";
import { discountedReturns } from "../../model/advantage/reinforce.ts";
import { overTokens, type Rows, whiten } from "../../model/advantage/rows.ts";
import { type Aggregation, tokenWeights } from "../../model/aggregation.ts";
import { type Candidates, type FilterMetric, type FilterRule, filterGroups } from "../../model/filter.ts";
import { KL_ESTIMATORS, type KlEstimator, klEstimate } from "../../model/kl.ts";
import { policyLoss, valueLoss } from "../../model/loss.ts";
import { collapseMetrics, isCollapseStep, type MarginalSpread } from "../../model/mutual-information.ts";
import { type Normalisation, normaliseRewards } from "../../model/reward.ts";
import type { Check } from "./check.ts";
import { maskChecks } from "./masks.ts";

export const checks: Readonly<Record<string, (body: unknown, file?: unknown) => Check[]>> = {
  H8: maskChecks,
  H9: (body) => rewardChecks(body as H9),
  H10: (body) => lossChecks(body as H10),
  X2: (body) => collapseChecks(body as X2),
};

/** One check per key of `expected`; a key that we do not have fails as undefined. */
function perKey(
  prefix: string,
  expected: Readonly<Record<string, unknown>>,
  got: Readonly<Record<string, unknown>>,
): Check[] {
  return Object.entries(expected).map(([key, value]) => ({ name: `${prefix}${key}`, expected: value, got: got[key] }));
}

const unknown = (name: string): Check => ({ name, expected: "a vector this runner knows", got: "unknown" });

interface FilterCase {
  params: Partial<{
    value: number;
    filter_type: "largest" | "smallest";
    strategy: "top_p" | "top_k" | "top_k_abs" | "min_p";
    top_p_prob_mode: "linear" | "softmax";
    include_zero: boolean;
    selection_eps: number;
    metric: FilterMetric;
    note: string;
  }>;
  kept_groups: number[];
}
interface FilterVectors<Case> {
  scores: number[];
  num_groups: number;
  group_size: number;
  cases: Case[];
}
interface Earned {
  scores: number[];
  group_ids: number[];
  tags?: string[];
  penalties: number[];
}
type NormalisationCase = Normalisation & { out: number[] };
interface H9 {
  v1: Earned & {
    results: NormalisationCase[];
    group_size_1_note: Earned & NormalisationCase;
    v1_filter: FilterVectors<{ ratio: number; type: "std" | "std_rev"; kept: number[] }> & { group_std: number[] };
  };
  v2_filter: FilterVectors<FilterCase> & { defaults: FilterCase["params"] };
}

function rewardChecks({ v1, v2_filter }: H9): Check[] {
  const lone = v1.group_size_1_note;
  const { v1_filter } = v1;
  const candidates = groupsOf(v1_filter.scores, v1_filter.group_size);
  return [
    ...v1.results.map((rule) => normalisationCheck(v1, rule)),
    normalisationCheck(lone, lone),
    {
      name: "v1_filter: group_std",
      expected: v1_filter.group_std,
      got: Array.from({ length: v1_filter.num_groups }, (_, group) => {
        const { rewards } = groupsOf(v1_filter.scores, v1_filter.group_size);
        const members = Array.from(rewards).slice(group * v1_filter.group_size, (group + 1) * v1_filter.group_size);
        return filterGroups(groupsOf(members, members.length), { strategy: "all" }).metrics.rewardStd;
      }),
    },
    ...v1_filter.cases.map(({ ratio, type, kept }) => ({
      name: `v1_filter: ${type} ${ratio}`,
      expected: kept,
      got: filterGroups(candidates, { strategy: "top_ratio", ratio, type }, { rankConstant: true }).kept,
    })),
    ...v2_filter.cases.flatMap((vector) => filterChecks(v2_filter, vector)),
  ];
}

function normalisationCheck({ scores, penalties, group_ids, tags }: Earned, rule: NormalisationCase): Check {
  const earned = { rewards: scores, penalties, groups: group_ids, tags: tags ?? scores.map(() => "") };
  const got = Array.from(normaliseRewards(earned, rule).scores);
  return { name: `${rule.method} by ${rule.grouping}`, expected: rule.out, got };
}

const groupsOf = (rewards: number[], size: number): Candidates => ({
  rewards,
  groups: rewards.map((_, i) => Math.floor(i / size)),
});

function filterChecks({ defaults, scores, group_size, num_groups }: H9["v2_filter"], vector: FilterCase): Check[] {
  const { params, kept_groups, ...measured } = vector;
  const { note, ...given } = params;
  const rule = { ...defaults, ...given };
  const { kept, metrics } = filterGroups(
    groupsOf(note === undefined ? scores : repeatedGroup(note, num_groups), group_size),
    {
      strategy: rule.strategy!,
      value: rule.value!,
      mode: rule.top_p_prob_mode!,
      epsilon: rule.selection_eps!,
      metric: rule.metric!,
      order: rule.filter_type!,
      includeZero: rule.include_zero!,
    } as FilterRule,
    { rankConstant: true },
  );
  const name = `v2_filter ${JSON.stringify(params)}: `;
  return [
    { name: `${name}kept_groups`, expected: kept_groups, got: kept },
    ...perKey(name, measured, {
      kept_ratio: metrics.keptShare,
      zero_count: metrics.zeroScoreCount,
      chosen_in_group_std: metrics.keptRewardStd,
    }),
  ];
}

/** Some vectors give their scores in words only: "all groups [0,.004,0,.004]: ...". */
function repeatedGroup(note: string, groups: number): number[] {
  const members = /all groups \[([^\]]+)\]/.exec(note)?.[1]?.split(",").map(Number);
  if (members === undefined || members.some(Number.isNaN))
    throw new Error(`cannot read the scores from the note "${note}"`);
  return Array.from({ length: groups }, () => members).flat();
}

type Matrix = number[][];
interface TokenVectors {
  rewards: Matrix;
  values: Matrix;
  mask: Matrix;
  gamma: number;
  lam: number;
  high_level_gamma: number;
  returns: Matrix;
  advantages_whitened: Matrix;
}
interface PolicyVectors {
  old_log_prob: Matrix;
  log_prob: Matrix;
  advantages: Matrix;
  mask: Matrix;
  clip_low: number;
  clip_high: number;
  clip_c: number;
}
interface ScoreVectors {
  scores: number[];
  episode_ids?: number[];
  advantages?: Matrix;
  advantage_per_row?: number[];
}
interface ValueVectors {
  vpreds: number[];
  returns: number[];
  values: number[];
  cliprange_value: number;
  mask?: number[];
}
interface H10 {
  v1: Record<string, unknown>;
  v2: Record<string, unknown>;
}

function lossChecks({ v1, v2 }: H10): Check[] {
  void tf.engine().setBackend("cpu");
  const first = (vectors: Record<string, unknown>, prefix: string) =>
    Object.entries(vectors).find(([name]) => name.startsWith(prefix))?.[1];
  const borrowed = {
    gae: first(v1, "gae_v1") as TokenVectors | undefined,
    policy: first(v1, "policy_loss") as PolicyVectors | undefined,
    scores: first(v2, "grpo_episode_dedup") as ScoreVectors | undefined,
  };
  return [
    ...Object.entries(v1).flatMap(([name, vector]) => lossCheck("all", name, vector, borrowed)),
    ...Object.entries(v2).flatMap(([name, vector]) => lossCheck("written", name, vector, borrowed)),
  ];
}

interface Borrowed {
  gae: TokenVectors | undefined;
  policy: PolicyVectors | undefined;
  scores: ScoreVectors | undefined;
}

/** `over`: which columns the version's GAE steps over. */
function lossCheck(over: "all" | "written", name: string, vector: unknown, { gae, policy, scores }: Borrowed): Check[] {
  if (name.startsWith("bilevel")) return tokenChecks(name, vector as TokenVectors, biLevel);
  if (name.startsWith("gae")) {
    const [, gamma, lam] = /gamma([\d.]+)_lam([\d.]+)$/.exec(name) ?? [];
    const whole = { ...gae, ...(vector as object), gamma: Number(gamma), lam: Number(lam) } as TokenVectors;
    return tokenChecks(name, whole, (given) => flatGae(given, over), Object.keys(vector as object));
  }
  if (name.startsWith("policy_loss_")) return policyChecks(name, vector as PolicyVectors & Record<string, unknown>);
  if (name.startsWith("kl_") && policy) return [klCheck(name, vector as Matrix, policy)];
  if (name.startsWith("value_loss")) return valueChecks(name, vector as ValueVectors & Record<string, unknown>);
  if (name.startsWith("grpo_no_dedup") && scores) {
    return scoreChecks(name, { scores: scores.scores, ...(vector as object) } as ScoreVectors);
  }
  return scoreChecks(name, vector as ScoreVectors);
}

const flat = (rows: Matrix) => Float32Array.from(rows.flat());
const rowsOf = (mask: Matrix): Rows => ({ width: mask[0]!.length, written: Uint8Array.from(mask.flat()) });
const unflat = (values: ArrayLike<number>, width: number): Matrix =>
  Array.from({ length: values.length / width }, (_, row) => Array.from(values).slice(row * width, (row + 1) * width));

function biLevel({ rewards, values, mask, gamma, lam, high_level_gamma }: TokenVectors): Estimate {
  const rule: BiLevelGae = { gamma, lambda: lam, gammaTurn: high_level_gamma };
  return biLevelGae(rowsOf(mask), turnsFromRewards(rowsOf(mask), flat(rewards)), flat(values), rule);
}

function flatGae({ rewards, values, mask, gamma, lam }: TokenVectors, over: "all" | "written"): Estimate {
  return gae(rowsOf(mask), flat(rewards), flat(values), { gamma, lambda: lam, over });
}

function tokenChecks(
  name: string,
  vector: TokenVectors,
  run: (vector: TokenVectors) => Estimate,
  keys = ["returns", "advantages_whitened"],
): Check[] {
  const rows = rowsOf(vector.mask);
  const { advantages, returns } = run(vector);
  const whitened = unflat(whiten(advantages, rows.written), rows.width);
  const got: Record<string, unknown> = { returns: unflat(returns, rows.width), advantages_whitened: whitened };
  return keys
    .filter((key) => key === "returns" || key === "advantages_whitened")
    .map((key) => ({ name: `${name}: ${key}`, expected: vector[key as keyof TokenVectors], got: got[key] }));
}

/** One score per sample of one group (or of a group each: RAGEN v1's unique uid), on a full mask. */
function scoreChecks(name: string, vector: ScoreVectors): Check[] {
  const { scores, episode_ids, advantages, advantage_per_row } = vector;
  const width = advantages?.[0]?.length ?? 1;
  const rows: Rows = { width, written: new Uint8Array(scores.length * width).fill(1) };
  const unique = name.includes("unique_uid");
  const grouping: Grouping = {
    groups: scores.map((_, row) => (unique ? row : 0)),
    lone: "reward",
    ...(episode_ids ? { episodes: episode_ids } : {}),
  };
  const got = estimate(name, scores, rows, grouping);
  if (got === null) return [unknown(name)];
  return [{ name, expected: advantages ?? advantage_per_row, got: advantages ? unflat(got, width) : Array.from(got) }];
}

function estimate(name: string, scores: number[], rows: Rows, grouping: Grouping): Float32Array | null {
  if (/^(dr_?grpo|grpo_no_std)/.test(name)) return overTokens(rows, drGrpo(scores, grouping));
  if (name.startsWith("grpo")) return overTokens(rows, grpo(scores, grouping));
  if (name.startsWith("rloo")) return overTokens(rows, rloo(scores, grouping));
  if (name.startsWith("rf++_baseline")) return whiten(overTokens(rows, drGrpo(scores, grouping)), rows.written);
  const gamma = /^rf\+\+_gamma([\d.]+)$/.exec(name)?.[1];
  if (gamma === undefined) return null;
  const rewards = new Float32Array(rows.written.length);
  for (const [row, score] of scores.entries()) rewards[(row + 1) * rows.width - 1] = score;
  return whiten(discountedReturns(rows, rewards, Number(gamma), "reset"), rows.written);
}

const scalar = (value: tf.Tensor) => value.dataSync()[0]!;

function policyChecks(name: string, vector: PolicyVectors & Record<string, unknown>): Check[] {
  const { old_log_prob, log_prob, advantages, mask, clip_low, clip_high, clip_c, ...expected } = vector;
  const rows = rowsOf(mask);
  const shape: [number, number] = [mask.length, rows.width];
  const got = tf.tidy((): Record<string, number> => {
    const { loss, clipHighShare, clipLowShare, dualClipShare, ratioKl } = policyLoss(
      {
        logProbs: tf.tensor2d(log_prob),
        oldLogProbs: tf.tensor2d(old_log_prob),
        advantages: tf.tensor2d(advantages),
        weights: tf.tensor2d(tokenWeights(rows, name.slice("policy_loss_".length) as Aggregation), shape),
        shares: tf.tensor2d(tokenWeights(rows, "token-mean"), shape),
      },
      { kind: "ppo", clipLow: clip_low, clipHigh: clip_high, dualClip: clip_c },
    );
    return {
      pg_loss: scalar(loss),
      clipfrac: scalar(clipHighShare) + scalar(clipLowShare),
      clipfrac_lower: scalar(dualClipShare),
      ppo_kl: scalar(ratioKl),
    };
  });
  return perKey(`${name}: `, expected, got);
}

const KL_NAMES: Record<string, KlEstimator> = { kl: "k1", mse: "k2", low_var_kl: "k3" };

function klCheck(name: string, expected: Matrix, { log_prob, old_log_prob }: PolicyVectors): Check {
  const given = name.slice("kl_".length);
  const estimator = KL_ESTIMATORS.find((one) => one === given) ?? KL_NAMES[given];
  if (estimator === undefined) return unknown(name);
  const got = tf.tidy(() => klEstimate(tf.tensor2d(log_prob), tf.tensor2d(old_log_prob), estimator).dataSync());
  return { name, expected, got: unflat(got, expected[0]!.length) };
}

function valueChecks(name: string, vector: ValueVectors & Record<string, unknown>): Check[] {
  const { vpreds, returns, values, cliprange_value, mask = vpreds.map(() => 1), ...expected } = vector;
  const got = tf.tidy((): Record<string, number> => {
    const shares = tf.tensor2d(tokenWeights(rowsOf([mask]), "token-mean"), [1, mask.length]);
    const row = (numbers: number[]) => tf.tensor2d([numbers]);
    const { loss, clipShare } = valueLoss(
      { values: row(vpreds), oldValues: row(values), returns: row(returns), weights: shares, shares },
      cliprange_value,
    );
    return { loss: scalar(loss), clipfrac: scalar(clipShare) };
  });
  return perKey(`${name}: `, expected, got);
}

interface X2 {
  cross_log_probs_per_token: Matrix;
  lengths: number[];
  group_ids: number[];
  std_eps: number;
  ema_decay: number;
  should_compute: Record<string, boolean>;
  compute_freq?: number;
  [call: string]: unknown;
}

const PREFIX = "collapse/";
/** RAGEN-2's default interval; the file lists steps only. */
const COMPUTE_FREQ = 5;

/** The calls, in the file's order, share one running mean; "..._times_1_5" multiplies the log-probabilities first. */
function collapseChecks(vectors: X2): Check[] {
  const { cross_log_probs_per_token, lengths, group_ids, std_eps, ema_decay, should_compute, compute_freq } = vectors;
  const calls = Object.entries(vectors).filter(([name]) => /_call(_|$)/.test(name)) as [
    string,
    Record<string, number>,
  ][];
  let spread: MarginalSpread | null = null;
  const measured: Check[] = [];
  for (const [name, expected] of calls) {
    const factor = Number(/times_([\d_]+)$/.exec(name)?.[1]?.replace("_", ".") ?? 1);
    const perToken = cross_log_probs_per_token.map((row) => row.map((score) => score * factor));
    const rule = { epsilon: std_eps, decay: ema_decay };
    const result = collapseMetrics({ perToken, lengths, own: group_ids }, spread, rule);
    spread = result.spread;
    const named = Object.fromEntries(Object.entries(result.metrics).map(([key, value]) => [PREFIX + key, value]));
    measured.push(...perKey(`${name}: `, expected, named));
  }
  const steps = Object.fromEntries(
    Object.keys(should_compute).map((step) => [step, isCollapseStep(Number(step), compute_freq ?? COMPUTE_FREQ)]),
  );
  return [...measured, ...perKey("should_compute: ", should_compute, steps)];
}

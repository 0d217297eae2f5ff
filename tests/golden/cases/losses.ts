/**
 * Golden case H10: advantages and losses. Some vectors share inputs: `gae_v2` uses the tensors of `gae_v1`, and the KL vectors use the
 * tensors of the policy loss.
 */
import * as tf from "@tensorflow/tfjs-core";
import "@tensorflow/tfjs-backend-cpu";
import {
  type BiLevelGae,
  biLevelGae,
  discountedReturns,
  type Estimate,
  gae,
} from "../../../model/learn/advantage/gae.ts";
import { drGrpo, grpo, rloo } from "../../../model/learn/advantage/group.ts";
import { overTokens, type Rows, whiten } from "../../../model/learn/advantage/rows.ts";
import { type Aggregation, tokenWeights } from "../../../model/learn/aggregation.ts";
import { KL_ESTIMATORS, type KlEstimator } from "../../../model/learn/kl.ts";
import { klEstimate, policyLoss, valueLoss } from "../../../model/learn/loss.ts";
import { type Check, matrixOf, perKey, vectorChecks } from "./check.ts";
import { everyColumn, oncePerEpisode, turnsFromRewards } from "./ragen.ts";

const unknown = (name: string): Check => ({ name, expected: "a vector this runner knows", got: "unknown" });

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
  /** verl's switch: false is Dr.GRPO. */
  norm_adv_by_std_in_grpo?: boolean;
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

export function lossChecks(body: unknown): Check[] {
  const { v1, v2 } = body as H10;
  void tf.engine().setBackend("cpu");
  const first = (vectors: Record<string, unknown>, prefix: string) =>
    Object.entries(vectors).find(([name]) => name.startsWith(prefix))?.[1];
  const borrowed = {
    gae: first(v1, "gae_v1") as TokenVectors | undefined,
    policy: first(v1, "policy_loss") as PolicyVectors | undefined,
    scores: first(v2, "grpo_episode_dedup") as ScoreVectors | undefined,
  };
  return [
    ...lossVectors(v1).flatMap(([name, vector]) => vectorChecks(name, () => lossCheck("all", name, vector, borrowed))),
    ...lossVectors(v2).flatMap(([name, vector]) =>
      vectorChecks(name, () => lossCheck("written", name, vector, borrowed)),
    ),
  ];
}

/** The vectors without notes, which may stand between the vectors and in them. */
function lossVectors(vectors: Record<string, unknown>): [string, unknown][] {
  return Object.entries(vectors)
    .filter(([name]) => name !== "note")
    .map(([name, vector]) => {
      if (typeof vector !== "object" || vector === null || Array.isArray(vector)) return [name, vector];
      const { note: _, ...rest } = vector as Record<string, unknown>;
      return [name, rest];
    });
}

interface Borrowed {
  gae: TokenVectors | undefined;
  policy: PolicyVectors | undefined;
  scores: ScoreVectors | undefined;
}

/** @param over  the columns that this version's GAE visits */
function lossCheck(over: "all" | "written", name: string, vector: unknown, { gae, policy, scores }: Borrowed): Check[] {
  if (name.startsWith("bilevel")) return tokenChecks(name, vector as TokenVectors, biLevel);
  if (name.startsWith("gae")) {
    const [, gamma, lam] = /gamma([\d.]+)_lam([\d.]+)$/.exec(name) ?? [];
    const whole = { ...gae, gamma: Number(gamma), lam: Number(lam), ...(vector as object) } as TokenVectors;
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

function biLevel({ rewards, values, mask, gamma, lam, high_level_gamma }: TokenVectors): Estimate {
  const rule: BiLevelGae = { gamma, lambda: lam, gammaTurn: high_level_gamma };
  return biLevelGae(rowsOf(mask), turnsFromRewards(rowsOf(mask), flat(rewards)), flat(values), rule);
}

function flatGae({ rewards, values, mask, gamma, lam }: TokenVectors, over: "all" | "written"): Estimate {
  const rows = over === "all" ? everyColumn(rowsOf(mask)) : rowsOf(mask);
  return gae(rows, flat(rewards), flat(values), { gamma, lambda: lam });
}

function tokenChecks(
  name: string,
  vector: TokenVectors,
  run: (vector: TokenVectors) => Estimate,
  keys = ["returns", "advantages_whitened"],
): Check[] {
  const rows = rowsOf(vector.mask);
  const { advantages, returns } = run(vector);
  const whitened = matrixOf(whiten(advantages, rows.written), rows.width);
  const got: Record<string, unknown> = { returns: matrixOf(returns, rows.width), advantages_whitened: whitened };
  return keys
    .filter((key) => key === "returns" || key === "advantages_whitened")
    .map((key) => ({ name: `${name}: ${key}`, expected: vector[key as keyof TokenVectors], got: got[key] }));
}

/** One score per sample, on a full mask. The samples form one group, or each sample is a group (RAGEN v1's unique uid). */
function scoreChecks(name: string, vector: ScoreVectors): Check[] {
  const { scores, episode_ids, norm_adv_by_std_in_grpo = true, advantages, advantage_per_row } = vector;
  const width = advantages?.[0]?.length ?? 1;
  const rows: Rows = { width, written: new Uint8Array(scores.length * width).fill(1) };
  const asked = norm_adv_by_std_in_grpo ? name : `${name}_no_std`;
  const got = estimate(asked, scores, rows, episode_ids ?? [...scores.keys()]);
  if (got === null) return [unknown(name)];
  return [
    { name, expected: advantages ?? advantage_per_row, got: advantages ? matrixOf(got, width) : Array.from(got) },
  ];
}

function estimate(name: string, scores: number[], rows: Rows, episodes: number[]): Float32Array | null {
  const isDrGrpo = /dr_?grpo|no_std/.test(name);
  // For a group of one, verl subtracts nothing from the reward, and GRPO divides it by 1 + epsilon.
  if (/^\w*grpo\w*unique_uid/.test(name)) {
    const divisor = isDrGrpo ? 1 : 1 + 1e-6;
    return overTokens(
      rows,
      scores.map((score) => score / divisor),
    );
  }
  if (isDrGrpo) return overTokens(rows, oncePerEpisode(scores, episodes, drGrpo));
  if (name.startsWith("grpo")) return overTokens(rows, oncePerEpisode(scores, episodes, grpo));
  if (name.startsWith("rloo")) return overTokens(rows, oncePerEpisode(scores, episodes, rloo));
  if (name.startsWith("rf++_baseline")) {
    return whiten(overTokens(rows, oncePerEpisode(scores, episodes, drGrpo)), rows.written);
  }
  const gamma = /^rf\+\+_gamma([\d.]+)$/.exec(name)?.[1];
  if (gamma === undefined) return null;
  const rewards = new Float32Array(rows.written.length);
  for (const [row, score] of scores.entries()) rewards[(row + 1) * rows.width - 1] = score;
  return whiten(discountedReturns(rows, rewards, Number(gamma)), rows.written);
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
  return { name, expected, got: matrixOf(got, expected[0]!.length) };
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

/**
 * Penalty, normalization and overlong shaping of episode rewards. Groups and tags are opaque names. No function
 * changes the raw reward in place: filters need it.
 */

import { deviation, mean, positionsBy } from "../statistics.ts";
import type { Turns } from "./advantage/rows.ts";

/** In reward units. A group with at most this standard deviation counts as constant. Otherwise the divisor is the deviation plus EPSILON. */
const EPSILON = 1e-6;

export interface Normalization {
  /** The rewards that are compared: those of a group ("state"), of an env tag ("inductive"), or of the whole batch. */
  readonly grouping: "state" | "inductive" | "batch";
  /** identity: x. mean: x - mean. mean_std: (x - mean) / (std + 1e-6). asym_clip: mean_std, clamped to [-1, 3]. */
  readonly method: "identity" | "mean" | "mean_std" | "asym_clip";
}

export interface NormalizedRewards {
  /** (B) reward units (identity, mean) or standard deviations. */
  readonly scores: Float64Array;
  /** (B) factor on the centered rewards; 1 for identity. */
  readonly scales: Float64Array;
}

export interface RewardsAndPenalties {
  /** (B) summed rewards of the turns, in the env's unit. */
  readonly rewards: ArrayLike<number>;
  /** (B) summed penalties of the format and of overlong replies, 0 or negative. */
  readonly penalties: ArrayLike<number>;
  /** (B) group and env tag of each row. */
  readonly groups: ArrayLike<number>;
  readonly tags: ArrayLike<string>;
}

/**
 * Adds the penalty, then normalizes. If every group has one member, the method is identity, as in RAGEN. If only some groups
 * have one member, these members get 0.
 *
 * Source: RAGEN ctx_manager reward_normalization; standard deviations with divisor n - 1.
 */
export function normalizeRewards(
  { rewards, penalties, groups, tags }: RewardsAndPenalties,
  { grouping, method }: Normalization,
): NormalizedRewards {
  const keys = { state: groups, inductive: tags, batch: Array.from(rewards, () => "batch") }[grouping];
  const scores = Float64Array.from(rewards, (reward, i) => reward + penalties[i]!);
  const compared = [...positionsBy<unknown>(keys).values()];
  const scales = new Float64Array(scores.length).fill(1);
  if (method === "identity" || compared.length >= scores.length) return { scores, scales };
  for (const rows of compared) {
    const members = rows.map((row) => scores[row]!);
    const center = mean(members);
    const spread = members.length < 2 ? 0 : deviation(members);
    const scale = scaleOf(members.length, spread, method);
    for (const row of rows) {
      const score = (scores[row]! - center) * scale;
      scores[row] = method === "asym_clip" ? Math.min(3, Math.max(-1, score)) : score;
      scales[row] = scale;
    }
  }
  return { scores, scales };
}

function scaleOf(count: number, spread: number, method: Exclude<Normalization["method"], "identity">): number {
  if (count < 2) return 0;
  if (method === "mean") return 1;
  return spread <= EPSILON ? 0 : 1 / (spread + EPSILON);
}

/**
 * Turn rewards whose sum is the episode's normalized score: each turn keeps its scaled reward and penalty, and the last turn also gets the
 * difference to the score. So estimators that use the rewards of turns work with normalization. RAGEN's use_turn_scores does not
 * allow normalization.
 *
 * @param turns  at least one; reward plus penalty of each turn, and the column of the turn's last token.
 * @param score  the episode's score by `normalizeRewards`. @param scale  the episode's scale.
 */
export function normalizeTurns({ ends, rewards }: Turns, score: number, scale: number): Turns {
  const scaled = rewards.map((reward) => reward * scale);
  const sum = scaled.reduce((total, reward) => total + reward, 0);
  return { ends, rewards: scaled.with(-1, scaled.at(-1)! + score - sum) };
}

/**
 * DAPO's penalty for long replies: 0 up to `tokensMax - margin`, then linear down to -1 at `tokensMax`.
 *
 * Source: DAPO, https://arxiv.org/abs/2503.14476, equation 13.
 *
 * @param tokens written tokens of the reply. @param margin  above 0, at most `tokensMax`
 * @returns reward to add, -1 to 0.
 */
export function overlongPenalty(tokens: number, { tokensMax, margin }: { tokensMax: number; margin: number }): number {
  return Math.max(-1, Math.min(0, (tokensMax - margin - tokens) / margin));
}

/**
 * A finished episode as the learner gets it. A trajectory holds numbers only: no text, no env, no process.
 * T: tokens of the trajectory. V: tokens of the vocabulary.
 */

/** Place and reward of one turn. */
export interface TurnSpan {
  /** Index of the turn's last written token in `tokens`. */
  readonly end: number;
  /** Sum of the rewards of the turn's actions, in the env's unit, without the penalty. */
  readonly reward: number;
  /** Format penalty of the turn; 0 or negative. */
  readonly penalty: number;
  /** Policy version that wrote the turn's reply. If absent, the trajectory's version wrote the reply. */
  readonly version?: number | undefined;
}

export interface Trajectory {
  /** (T) token ids of prompts, observations and replies, in the order in which the policy read or wrote them; context after context. */
  readonly tokens: Int32Array;
  /** (T) 1 where the policy sampled the token; forced prefixes and observations are 0. */
  readonly written: Uint8Array;
  /** (T) natural-log probability at sampling temperature, recorded when the token was sampled; 0 where not written. */
  readonly logProbs: Float32Array;
  /**
   * Index in `tokens` where each context begins; the first is 0. A context is one text that the policy reads: the whole episode,
   * or a new text each time that earlier turns drop out. A reply is marked as written in one context only, even if later contexts
   * repeat it.
   */
  readonly contexts: readonly number[];
  /** The turns in order. Turn ends are recorded, never inferred from rewards. */
  readonly turns: readonly TurnSpan[];
  /** Policy version that wrote every token, except in turns with a version of their own. `digest`: sha256 (hex) of this version's weights. */
  readonly version: number;
  readonly digest: string;
}

/** Sum of the turns' rewards, before penalty and normalization. */
export function rawReward(trajectory: Pick<Trajectory, "turns">): number {
  return trajectory.turns.reduce((sum, turn) => sum + turn.reward, 0);
}

export function penalizedReward(trajectory: Pick<Trajectory, "turns">): number {
  return trajectory.turns.reduce((sum, turn) => sum + turn.reward + turn.penalty, 0);
}

export const writtenTokens = ({ written }: Pick<Trajectory, "written">): number =>
  written.reduce((sum, one) => sum + one, 0);

/**
 * Why the learner cannot use a trajectory: arrays of different lengths, unknown tokens, a context without a prompt or a reply, turns
 * that do not end on a written token, numbers that are not finite. A single NaN would make every weight NaN.
 *
 * @param vocabulary  V
 * @returns the first fault and its place; null if there is none.
 */
export function trajectoryFault(
  { tokens, written, logProbs, contexts, turns }: Trajectory,
  vocabulary: number,
): string | null {
  const { length } = tokens;
  if (written.length !== length || logProbs.length !== length) {
    return `${length} tokens, but ${written.length} written marks and ${logProbs.length} log-probabilities`;
  }
  const unknown = tokens.findIndex((token) => token < 0 || token >= vocabulary);
  if (unknown !== -1) return `token ${tokens[unknown]} at ${unknown}; the vocabulary has ${vocabulary}`;
  const unmarked = written.findIndex((mark) => mark > 1);
  if (unmarked !== -1) return `mark ${written[unmarked]} at ${unmarked}; expected 0 or 1`;
  const infinite = logProbs.findIndex((logProb) => !Number.isFinite(logProb));
  if (infinite !== -1) return `log-probability ${logProbs[infinite]} at token ${infinite}`;
  const misplaced = contexts.findIndex((at, i) => !(i === 0 ? at === 0 : at > contexts[i - 1]!) || at >= length);
  if (contexts.length === 0 || misplaced !== -1) {
    return `contexts begin at [${contexts.slice(0, 16)}]; they must begin at 0 and ascend within ${length} tokens`;
  }
  const empty = contexts.findIndex((at, i) => written[at] === 1 || !written.subarray(at, contexts[i + 1]).includes(1));
  if (empty !== -1) return `context ${empty} does not begin with a prompt, or has no written token`;
  let before = -1;
  for (const [turn, { end, reward, penalty }] of turns.entries()) {
    if (!(end > before) || written[end] !== 1)
      return `turn ${turn} ends at ${end}, which is not a written token after ${before}`;
    if (!Number.isFinite(reward + penalty)) return `turn ${turn} has reward ${reward} and penalty ${penalty}`;
    before = end;
  }
  const last = written.lastIndexOf(1);
  if (last !== before) return `token ${last} is written after the end of the last turn, ${before}`;
  return null;
}

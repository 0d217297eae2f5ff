/**
 * What a finished episode hands to the learner. Numbers only: no text, no env, no process.
 *
 * Dimension letters (docs/algorithms.md): T tokens of a trajectory, B batch, V vocabulary, P groups, N trajectories per group.
 */

/** Where one turn of a trajectory lies and what it earned. */
export interface TurnSpan {
  /** Index of the turn's last written token in `tokens`. */
  readonly end: number;
  /** Sum of the rewards of the turn's actions, in the env's unit, without the penalty. */
  readonly reward: number;
  /** Format penalty of the turn; 0 or negative. */
  readonly penalty: number;
}

export interface Trajectory {
  /** (T) token ids: prompts, observations and replies, in the order the policy saw them; context after context. */
  readonly tokens: Int32Array;
  /** (T) 1 where the policy sampled the token (forced prefixes and observations are 0). */
  readonly written: Uint8Array;
  /** (T) natural-log probability at sampling temperature, recorded when the token was sampled; 0 where not written. */
  readonly logProbs: Float32Array;
  /**
   * Where each context begins in `tokens`; the first is 0. A context is what the policy read as one text: one for the whole
   * episode, or a new one whenever earlier turns were left out. Each written token is in one context, as written once.
   */
  readonly contexts: readonly number[];
  /** In order. Turn ends are carried, never inferred from rewards. */
  readonly turns: readonly TurnSpan[];
  /** Policy version that wrote every token, and the sha256 (hex) of its weights. */
  readonly version: number;
  readonly digest: string;
}

/** Sum of rewards over turns: the raw return, before any penalty or normalization. */
export function rawReward(trajectory: Pick<Trajectory, "turns">): number {
  return trajectory.turns.reduce((sum, turn) => sum + turn.reward, 0);
}

/** Raw reward plus format penalties: what the advantage is computed from. */
export function penalizedReward(trajectory: Pick<Trajectory, "turns">): number {
  return trajectory.turns.reduce((sum, turn) => sum + turn.reward + turn.penalty, 0);
}

/** How many tokens the policy wrote. */
export const writtenTokens = ({ written }: Pick<Trajectory, "written">): number =>
  written.reduce((sum, one) => sum + one, 0);

/**
 * What makes a trajectory unfit to be learnt from: arrays of different lengths, tokens that do not exist, turns that do not end
 * on a written token, numbers that are none. One such number would make every weight NaN.
 *
 * @param vocabulary  V: tokens that there are
 * @returns what is wrong, with where it was found; null if nothing is.
 */
export function trajectoryFault(
  { tokens, written, logProbs, contexts, turns }: Trajectory,
  vocabulary: number,
): string | null {
  const { length } = tokens;
  if (written.length !== length || logProbs.length !== length) {
    return `${length} tokens, but ${written.length} marks of who wrote them and ${logProbs.length} log-probabilities`;
  }
  const unknown = tokens.findIndex((token) => token < 0 || token >= vocabulary);
  if (unknown !== -1) return `token ${tokens[unknown]} at ${unknown}, and there are ${vocabulary}`;
  const unmarked = written.findIndex((mark) => mark > 1);
  if (unmarked !== -1) return `mark ${written[unmarked]} at ${unmarked}; expected 0 or 1`;
  const none = logProbs.findIndex((logProb) => !Number.isFinite(logProb));
  if (none !== -1) return `log-probability ${logProbs[none]} at token ${none}`;
  const begin = contexts.findIndex((at, i) => !(i === 0 ? at === 0 : at > contexts[i - 1]!) || at >= length);
  if (contexts.length === 0 || begin !== -1) {
    return `contexts that begin at [${contexts.slice(0, 16)}] are no parts of ${length} tokens`;
  }
  const mute = contexts.findIndex((at, i) => written[at] === 1 || !written.subarray(at, contexts[i + 1]).includes(1));
  if (mute !== -1) return `context ${mute} does not begin with a prompt, or nothing was written in it`;
  let before = -1;
  for (const [turn, { end, reward, penalty }] of turns.entries()) {
    if (!(end > before) || written[end] !== 1)
      return `turn ${turn} ends at ${end}, which is no written token after ${before}`;
    if (!Number.isFinite(reward + penalty)) return `turn ${turn} earned ${reward} and ${penalty}`;
    before = end;
  }
  return null;
}

/**
 * Loss masks and reward positions as RAGEN derives them: by counting turn-start tokens. Compat only.
 * In strict mode nothing is derived: a trajectory carries which tokens the policy wrote and where its turns end.
 *
 * Token sequences start with a system turn, then users and assistants alternate; left padding counts as turn 0. Results
 * have one column less than the tokens: column t belongs to the target tokens[t + 1].
 */

export interface ChatTokens {
  /** Ids that open and close a turn: "<|im_start|>" and "<|im_end|>" for Qwen. */
  readonly turnStart: number;
  readonly turnEnd: number;
}

/** (L) 0 in padding, 1 in the system turn, even in user turns, odd from 3 on in assistant turns. */
function turnIndices(tokens: Int32Array, turnStart: number): Int32Array {
  let turn = 0;
  return tokens.map((token) => {
    if (token === turnStart) turn++;
    return turn;
  });
}

/**
 * (L - 1) 1 where RAGEN trains. Assistant turns train their role header too, and the next turn's start token.
 *
 * Source: RAGEN ctx_manager get_masks_and_scores.
 *
 * @param trained "replies": assistant turns (enable_response_mask True). "all": everything behind the system turn.
 */
export function ragenMask(tokens: Int32Array, { turnStart }: ChatTokens, trained: "replies" | "all"): Uint8Array {
  const turns = turnIndices(tokens, turnStart);
  return Uint8Array.from(turns.subarray(0, -1), (turn) => (turn > 1 && (trained === "all" || turn % 2 === 1) ? 1 : 0));
}

/**
 * (L - 1) rewards on target tokens: the sum on the last column, or each turn's on the token behind its turn-end token
 * (Qwen's newline), where the turn is in the tokens; the reward of a turn that is not there is lost.
 *
 * Source: RAGEN ctx_manager get_masks_and_scores, use_turn_scores False and True, for Qwen.
 *
 * @param turnRewards reward of each assistant turn, in order.
 */
export function ragenScores(
  tokens: Int32Array,
  { turnStart, turnEnd }: ChatTokens,
  turnRewards: readonly number[],
  placement: "turns" | "end",
): Float32Array {
  const scores = new Float32Array(tokens.length - 1);
  if (placement === "end") {
    scores[scores.length - 1] = turnRewards.reduce((sum, reward) => sum + reward, 0);
    return scores;
  }
  const turns = turnIndices(tokens, turnStart);
  for (let i = 0; i < scores.length; i++) {
    const turn = (turns[i]! - 3) / 2;
    if (tokens[i] === turnEnd && Number.isInteger(turn) && turn >= 0) scores[i] = turnRewards[turn] ?? 0;
  }
  return scores;
}

/**
 * The tokens that the loss is on, by `learner.lossOn`. Source: RAGEN ctx_manager get_masks_and_scores. RAGEN finds the assistant's turns
 * by counting turn-start tokens. Here a turn is the assistant's if the policy wrote in it, so a reply that a prompt quotes has no loss.
 */
import type { RoleMarks } from "../text/dialogue.ts";
import type { Trajectory } from "../trajectory.ts";

/** `turns`: the assistant's turns (RAGEN's enable_response_mask True), or all turns after the system message (False). */
export type LossOn = "replies" | { readonly turns: "assistant" | "all"; readonly marks: RoleMarks };

/**
 * (T) 1 where the loss is on the token. An assistant's turn includes its role header, the tokens after the reply, and the token
 * that starts the next turn. RAGEN's mask marks predictions, which are one place earlier.
 */
export function lossMask(trajectory: Pick<Trajectory, "tokens" | "written" | "contexts">, lossOn: LossOn): Uint8Array {
  const { tokens, written, contexts } = trajectory;
  if (lossOn === "replies") return written;
  const { turns, marks } = lossOn;
  const mask = new Uint8Array(tokens.length);
  for (const [i, from] of contexts.entries()) {
    const to = contexts[i + 1] ?? tokens.length;
    const starts: number[] = [];
    // A policy may sample the token that starts a message; such a token starts no turn.
    for (let at = from; at < to; at++) if (tokens[at] === marks.messageStart && written[at] === 0) starts.push(at);
    if (turns === "all") {
      const hasSystem = starts.length > 1 && marks.system.every((token, k) => tokens[starts[0]! + 1 + k] === token);
      // Nothing predicts the first token of a context.
      mask.fill(1, (hasSystem ? starts[1]! : from) + 1, to);
    } else {
      for (const [k, start] of starts.entries()) {
        const next = starts[k + 1] ?? to;
        if (written.subarray(start, next).includes(1)) mask.fill(1, start + 1, Math.min(next + 1, to));
      }
    }
  }
  return mask;
}

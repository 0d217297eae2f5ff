/**
 * Converts a recorded episode to chats for supervised fine-tuning by other trainers. The function is pure.
 *
 * - A chat is one whole context of the policy, so the messages before each reply are exactly what the policy saw. If every turn only
 *   extended the context, the episode is one chat.
 * - Another trainer trains on every reply once: if a later chat repeats a reply, the reply has weight 0 in the later chat.
 */
import type { EpisodeRules } from "../../envs/env.ts";
import type { EnvTag } from "../../envs/tag.ts";
import { shownReply } from "../../envs/text/answer.ts";
import { type AnsweredTurn, type ContextOptions, contextMessages } from "../../envs/text/context.ts";
import type { Message } from "../../envs/text/prompt.ts";
import type { RunConfig } from "../config/config.ts";
import type { PlayedOutcome } from "../protocol.ts";

/** `weight` has the meaning of OpenAI's fine-tuning files: with weight 0, the trainer does not train on the message. */
export type ChatMessage = Message & { readonly weight?: 0 };

/** The chats of one episode. The last parameter has the rules of the episode's env. */
export function chatsOf(
  { turns, trajectory }: Pick<PlayedOutcome, "turns" | "trajectory">,
  tag: EnvTag,
  { prompt, env }: Pick<RunConfig, "prompt" | "env">,
  { actionsMax, actionsPerTurnMax }: Pick<EpisodeRules, "actionsMax" | "actionsPerTurnMax">,
): ChatMessage[][] {
  const mode: ContextOptions["mode"] = prompt.context === "single_turn" ? "single_turn" : "limited_multi_turn";
  const most = prompt.context === "full" ? null : prompt.contextTurnsMax;
  const shown = { layout: prompt.layout, compat: prompt.compat !== "strict", think: env.think, mode };
  let actionsLeft = actionsMax;
  const answered = turns.map(({ observation, reply, actions, reward }): AnsweredTurn => {
    const turn = { observation, reply, actions, reward, actionsLeft };
    actionsLeft -= actions.length;
    return turn;
  });
  const read = { compat: shown.compat, think: env.think, actionsPerTurnMax };
  const before = answered.map((turn) => ({ ...turn, reply: shownReply(turn.reply, read) }));
  const chats: ChatMessage[][] = [];
  let first = 0;
  for (const [turn, { dropped, reply }] of turns.entries()) {
    const endsContext =
      turn === turns.length - 1 || trajectory.contexts[chats.length + 1] === trajectory.turns[turn]!.end + 1;
    if (!endsContext) continue;
    const window = Math.min(most ?? turn + 1, turn + 1) - dropped;
    const messages = contextMessages(
      tag,
      { answered: before.slice(0, turn), now: answered[turn]! },
      { ...shown, window },
    );
    // The oldest reply of this chat is the reply of turn `turn + 1 - window`. Earlier chats contain the replies before turn `first`.
    let repeated = first - (turn + 1 - window);
    const weighted = messages.map((message) =>
      message.role === "assistant" && repeated-- > 0 ? { ...message, weight: 0 as const } : message,
    );
    chats.push([...weighted, { role: "assistant", content: reply }]);
    first = turn + 1;
  }
  return chats;
}

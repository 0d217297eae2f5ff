/** Prompts and replies of an episode as text. Pure. */
import type { Dialogue } from "../../model/text/dialogue.ts";
import type { EpisodeRow } from "../protocol.ts";
import type { WrittenToken } from "./answers.ts";

/** `replyText` is for whole replies and puts a prefix before the text. The tokens here are no whole reply, so the prefix is cut off. */
const PREFIX = "<answer>";

/** Written tokens, one list for each turn; null if the episode was not played. */
export function tokensByTurn(
  { outcome, advantage, tokenAdvantages }: EpisodeRow,
  dialogue: Dialogue,
): WrittenToken[][] | null {
  if (!("trajectory" in outcome)) return null;
  const { tokens, written, logProbs, turns } = outcome.trajectory;
  let at = 0;
  let count = 0;
  return turns.map(({ end }) => {
    const list: WrittenToken[] = [];
    for (; at <= end; at++) {
      if (written[at] !== 1) continue;
      const own = tokenAdvantages?.[count++] ?? advantage;
      list.push({ text: textOf(dialogue, tokens[at]!), logProb: logProbs[at]!, advantage: own });
    }
    return list;
  });
}

/**
 * The prompt text before each reply, with the marks of the chat template: the new part of the context, or all of it if the context is
 * new. Null if the episode was not played.
 */
export function promptTexts({ outcome }: EpisodeRow, dialogue: Dialogue): string[] | null {
  if (!("trajectory" in outcome)) return null;
  const { tokens, written, turns } = outcome.trajectory;
  return turns.map(({ end }, turn) => {
    const start = turn === 0 ? 0 : turns[turn - 1]!.end + 1;
    const prompt = tokens.subarray(start, end + 1).filter((_, i) => written[start + i] !== 1);
    return textOfTokens(dialogue, prompt);
  });
}

/** A token that ends a reply has no text and is shown as a mark. */
function textOf(dialogue: Dialogue, token: number): string {
  if (dialogue.stops.includes(token)) return "⏎";
  return textOfTokens(dialogue, [token]);
}

const textOfTokens = (dialogue: Dialogue, tokens: Parameters<Dialogue["replyText"]>[0]): string =>
  dialogue.replyText(tokens, PREFIX).slice(PREFIX.length);

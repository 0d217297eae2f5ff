/** What the policy was told and what it wrote in an episode, as text. Pure. */
import type { Dialogue } from "../../model/text/dialogue.ts";
import type { EpisodeRow } from "../protocol.ts";
import type { WrittenToken } from "./answers.ts";

const PREFIX = "<answer>";

/** One list for each turn; null if the episode was not played. */
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
 * What was put before each reply, with the marks of the policy's own layout: what is new in its context, or all of it where the
 * context is a new one. Null if the episode was not played.
 */
export function toldTexts({ outcome }: EpisodeRow, dialogue: Dialogue): string[] | null {
  if (!("trajectory" in outcome)) return null;
  const { tokens, written, turns } = outcome.trajectory;
  return turns.map(({ end }, turn) => {
    const start = turn === 0 ? 0 : turns[turn - 1]!.end + 1;
    const told = tokens.subarray(start, end + 1).filter((_, i) => written[start + i] !== 1);
    return dialogue.replyText(told, PREFIX).slice(PREFIX.length);
  });
}

/** Of a token that ends a reply, and says nothing: a mark. */
function textOf(dialogue: Dialogue, token: number): string {
  if (dialogue.stops.includes(token)) return "⏎";
  return dialogue.replyText([token], PREFIX).slice(PREFIX.length);
}

/**
 * Parses the actions of a reply. Does not know which actions exist.
 *
 * Source: RAGEN ContextManager._parse_response. Whitespace means the characters that Python's `strip` removes.
 */
import type { EpisodeRules } from "../env.ts";

export const ACTION_SEPARATOR = "||";

export interface ReplyRules extends Pick<EpisodeRules, "think" | "actionsPerTurnMax"> {
  /** True if an answer is one action, whatever separators it contains. */
  readonly wholeAnswer?: boolean;
}

export interface ParsedReply {
  /** The actions of the reply. Each action is trimmed and not empty, but the game may not know the action. */
  readonly actions: readonly string[];
  /** The reply, rebuilt from its parsed parts; if `formed` is false, the whole reply. RAGEN shows this text in prompts and trains on it. */
  readonly cleaned: string;
  /** True if the reply has the required form. */
  readonly formed: boolean;
}

/** A reply as later prompts show it: with `compat` as RAGEN rebuilds it, otherwise as the policy wrote it. */
export function shownReply(reply: string, rules: ReplyRules & { readonly compat: boolean }): string {
  return rules.compat ? parseReply(reply, rules).cleaned : reply;
}

/** One of the characters that Python's `strip` removes and its `\s` matches. */
export const SPACE = "[\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]";
const EDGES = new RegExp(`^${SPACE}+|${SPACE}+$`, "g");
const THOUGHT_AND_ANSWER = new RegExp(`<think>(.*?)</think>${SPACE}*<answer>(.*?)</answer>`, "s");
const ANSWER = /<answer>(.*?)<\/answer>/s;
const TAGS = ["<think>", "</think>", "<answer>", "</answer>", "<|im_start|>", "<|im_end|>"];

export function parseReply(reply: string, rules: ReplyRules): ParsedReply {
  const match = (rules.think ? THOUGHT_AND_ANSWER : ANSWER).exec(reply);
  if (match === null) return { actions: [], cleaned: reply, formed: false };
  let answer = withoutTags(match[rules.think ? 2 : 1]!);
  let actions = (rules.wholeAnswer ? [answer] : answer.split(ACTION_SEPARATOR))
    .map(strip)
    .filter((action) => action !== "");
  if (actions.length > rules.actionsPerTurnMax) {
    actions = actions.slice(0, rules.actionsPerTurnMax);
    answer = actions.join(` ${ACTION_SEPARATOR} `);
  }
  const thought = rules.think ? `<think>${withoutTags(match[1]!)}</think>` : "";
  return { actions, cleaned: `${thought}<answer>${answer}</answer>`, formed: true };
}

function withoutTags(text: string): string {
  return TAGS.reduce((kept, tag) => (kept.includes(tag) ? strip(kept.replaceAll(tag, "")) : kept), strip(text));
}

/** Python's `str.strip()`. */
function strip(text: string): string {
  return text.replace(EDGES, "");
}

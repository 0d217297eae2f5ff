/**
 * Reads a model's reply: which actions it asks for. Knows no game and which actions exist.
 *
 * Source: RAGEN ContextManager._parse_response; whitespace is Python's.
 */

export const ACTION_SEPARATOR = "||";

export interface ReplyRules {
  /** Replies are `<think>…</think><answer>…</answer>`, or `<answer>…</answer>` alone. */
  readonly think: boolean;
  /** Actions beyond these are ignored. */
  readonly actionsPerTurnMax: number;
}

export interface ParsedReply {
  /** As asked for, trimmed, never empty; unknown names included. */
  readonly actions: readonly string[];
  /** The reply without what was not read: RAGEN shows and trains this text. The whole reply if it had not the form. */
  readonly cleaned: string;
  /** False if the reply had not the asked-for form. */
  readonly formed: boolean;
}

const SPACE = "[\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]";
const EDGES = new RegExp(`^${SPACE}+|${SPACE}+$`, "g");
const THOUGHT_AND_ANSWER = new RegExp(`<think>(.*?)</think>${SPACE}*<answer>(.*?)</answer>`, "s");
const ANSWER = /<answer>(.*?)<\/answer>/s;
const MARKS = ["<think>", "</think>", "<answer>", "</answer>", "<|im_start|>", "<|im_end|>"];

export function parseReply(reply: string, rules: ReplyRules): ParsedReply {
  const match = (rules.think ? THOUGHT_AND_ANSWER : ANSWER).exec(reply);
  if (match === null) return { actions: [], cleaned: reply, formed: false };
  let answer = withoutMarks(match[rules.think ? 2 : 1]!);
  let actions = answer
    .split(ACTION_SEPARATOR)
    .map(stripped)
    .filter((action) => action !== "");
  if (actions.length > rules.actionsPerTurnMax) {
    actions = actions.slice(0, rules.actionsPerTurnMax);
    answer = actions.join(` ${ACTION_SEPARATOR} `);
  }
  const thought = rules.think ? `<think>${withoutMarks(match[1]!)}</think>` : "";
  return { actions, cleaned: `${thought}<answer>${answer}</answer>`, formed: true };
}

function withoutMarks(text: string): string {
  return MARKS.reduce((kept, mark) => stripped(kept.replaceAll(mark, "")), text);
}

/** Python's `str.strip()`. */
function stripped(text: string): string {
  return text.replace(EDGES, "");
}

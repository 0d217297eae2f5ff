/**
 * A whole dialogue as chat messages, with all or part of what was said before: for hosted models, and for policies with
 * a limited memory. A pure function over the history; nothing is dropped from the history itself.
 *
 * Source: RAGEN ContextManager (v1 max_context_window; v2 context_window_mode and SimpleMemory).
 */

import type { Turn } from "../env.ts";
import type { EnvTag } from "../tag.ts";
import { alfworldMemory } from "./alfworld-memory.ts";
import {
  compact,
  firstPrompt,
  type Layout,
  type Message,
  nextPrompt,
  openingMessages,
  type PromptOptions,
  rewardText,
  stateText,
  turnText,
} from "./prompt.ts";

/**
 * full: every turn. limited_multi_turn: a dialogue of the last turns. single_turn: one message that sums up the last
 * turns.
 */
export const CONTEXT_MODES = ["full", "limited_multi_turn", "single_turn"] as const;
export type ContextMode = (typeof CONTEXT_MODES)[number];

/** A turn that was asked for and answered. */
export interface AnsweredTurn extends Pick<Turn, "reward" | "actions"> {
  /** What the agent saw before it replied. */
  readonly observation: string;
  readonly actionsLeft: number;
  readonly reply: string;
}

export interface History {
  readonly answered: readonly AnsweredTurn[];
  /** The turn asked for now; null for the finished dialogue, which then ends with the last reply. */
  readonly now: { readonly observation: string; readonly actionsLeft: number } | null;
}

export interface ContextOptions extends PromptOptions {
  readonly layout: Layout;
  readonly mode: ContextMode;
  /** Turns shown, the one asked for included; -1 for all. */
  readonly window: number;
}

/** @throws {RangeError} for an empty history, a bad window, or a finished dialogue in one message. */
export function contextMessages(tag: EnvTag, history: History, options: ContextOptions): Message[] {
  const { mode, window } = options;
  if (!Number.isInteger(window) || window === 0 || window < -1) {
    throw new RangeError(`context window must be -1 (all turns) or at least 1, got ${window}`);
  }
  const turnCount = history.answered.length + (history.now === null ? 0 : 1);
  if (turnCount === 0) throw new RangeError("a dialogue needs at least one turn, found none");
  const from = mode === "full" || window === -1 ? 0 : Math.max(0, turnCount - window);
  return mode === "single_turn"
    ? summaryMessages(tag, history, from, options)
    : dialogueMessages(tag, history, from, options);
}

function dialogueMessages(tag: EnvTag, history: History, from: number, options: ContextOptions): Message[] {
  const turns = history.answered.length + (history.now === null ? 0 : 1);
  return Array.from({ length: turns - from }, (_, i) => {
    const answered = history.answered[from + i];
    const asked = turnMessages(tag, history, from + i, from, options);
    return answered === undefined ? asked : [...asked, { role: "assistant" as const, content: answered.reply }];
  }).flat();
}

/**
 * What the agent is told at one turn of a dialogue.
 *
 * @param turn  from 0
 * @param from  the first turn that the dialogue shows
 */
export function turnMessages(
  tag: EnvTag,
  { answered, now }: History,
  turn: number,
  from: number,
  options: Omit<ContextOptions, "mode" | "window">,
): Message[] {
  const { layout, compat = false } = options;
  // RAGEN warns while generating only, so that what it trains on is not what was said.
  const warn = !compat || now !== null;
  const before = answered[turn - 1];
  const { observation, actionsLeft } = answered[turn] ?? now!;
  // RAGEN v1 counts the turns it shows.
  const number = layout === "ragen-v1" && compat ? turn - from + 1 : turn + 1;
  if (turn > from) {
    const { reward, actions } = before!;
    const played = { turn: number - 2, observation, actionsLeft, reward, actions };
    return nextPrompt(tag, layout, played, { ...options, warn });
  }
  if (layout === "compact") return firstPrompt(tag, layout, observation, actionsLeft, options);
  const nothingRead = layout === "ragen-v2" && before?.actions.length === 0 && warn;
  const asked = turnText(tag, { turn: number, observation, actionsLeft, nothingRead }, options);
  return openingMessages(tag, layout, budget({ answered, now }), asked, options);
}

/** One user message with the turns from `from` on in it: by the built-in policy's layout, ALFWorld's, or RAGEN-2's own. */
function summaryMessages(tag: EnvTag, history: History, from: number, options: ContextOptions): Message[] {
  const { answered, now } = history;
  const { layout } = options;
  if (now === null) throw new RangeError("a dialogue in one message needs a turn that is asked for now");
  switch (layout) {
    case "compact":
      return [{ role: "user", content: compactMemory(tag, answered.slice(from), now) }];
    case "ragen-v1":
      throw new RangeError("single_turn is a context of compact and ragen-v2; got ragen-v1");
    case "ragen-v2": {
      const text =
        tag.type === "alfworld" ? alfworld(tag, history, from, options) : simpleMemory(tag, history, from, options);
      return openingMessages(tag, "ragen-v2", budget(history), text, options);
    }
    default:
      return layout satisfies never;
  }
}

/** Each turn as it was asked for, with what was done then. */
function compactMemory(tag: EnvTag, shown: readonly AnsweredTurn[], now: NonNullable<History["now"]>): string {
  const before = shown.map(
    ({ observation, actionsLeft, actions }) => `${compact(tag, observation, actionsLeft)} ${actions.join(" || ")}\n`,
  );
  return before.join("") + compact(tag, now.observation, now.actionsLeft);
}

/** RAGEN-2's SimpleMemory. */
function simpleMemory(tag: EnvTag, { answered, now }: History, from: number, options: ContextOptions): string {
  const shown = answered.slice(from);
  let text = "";
  if (shown.length > 0) {
    text += `Summary: ${answered.length} step(s) completed so far. Showing the last ${shown.length} turn(s) with state/action/reward details. Recent turns:\n---\n`;
    shown.forEach((turn, i) => {
      const name = `Turn ${from + i + 1}`;
      text += `${name} State:\n${turn.observation}\n${name} Action: ${turn.reply}\n${name} Reward: ${rewardText(tag, turn, options)}\n---\n`;
    });
    text += "\nCurrent Turn ";
  }
  const nothingRead = answered.at(-1)?.actions.length === 0;
  return `${text}(Turn ${answered.length + 1}):\n${stateText(tag, { ...now!, nothingRead }, options)}`;
}

/** RAGEN-2's AlfWorldMemory. */
function alfworld(tag: EnvTag, { answered, now }: History, from: number, { think = true }: ContextOptions): string {
  const turns = [...answered, { ...now!, reply: null }].map(({ observation, actionsLeft, reply }, i) => ({
    observation,
    actionsLeft,
    reply,
    nothingRead: answered[i - 1]?.actions.length === 0,
  }));
  const { replyWordsHint } = tag;
  return alfworldMemory(turns, { turn: answered.length, from, window: -1, warn: true, replyWordsHint, think });
}

/** The episode's whole budget: what was left at its first turn. */
function budget(history: History): number {
  return (history.answered[0] ?? history.now!).actionsLeft;
}

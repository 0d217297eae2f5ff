/**
 * Builds the chat messages of a dialogue (an episode as a chat), with all turns or only the last turns. Training, evaluation and exported chats
 * use these messages. All functions are pure functions of the history.
 *
 * Source: RAGEN ContextManager (v1 max_context_window; v2 context_window_mode and SimpleMemory).
 */
import type { Turn } from "../env.ts";
import type { EnvTag } from "../tag.ts";
import { alfworldMemory } from "./alfworld-memory.ts";
import {
  compactText,
  type Layout,
  type Message,
  nextPrompt,
  openingMessages,
  type PromptOptions,
  rewardText,
  stateText,
  type TurnPrompt,
  turnText,
} from "./prompt.ts";

/** full: every turn. limited_multi_turn: the last turns as a dialogue. single_turn: the last turns in one user message. */
export const CONTEXT_MODES = ["full", "limited_multi_turn", "single_turn"] as const;
export type ContextMode = (typeof CONTEXT_MODES)[number];

export interface AnsweredTurn extends Pick<Turn, "reward" | "actions"> {
  /** The observation before the reply. */
  readonly observation: string;
  /** Actions left before the reply. */
  readonly actionsLeft: number;
  readonly reply: string;
}

export type CurrentTurn = Pick<AnsweredTurn, "observation" | "actionsLeft">;

export interface History {
  readonly answered: readonly AnsweredTurn[];
  /** The turn that awaits a reply; null if the dialogue is finished. A finished dialogue ends with the last reply. */
  readonly now: CurrentTurn | null;
}

export interface ContextOptions extends PromptOptions {
  readonly layout: Layout;
  readonly mode: ContextMode;
  /** Number of turns that the messages show, the current turn included; null: all turns. In mode `full` the messages always show all turns. */
  readonly window: number | null;
}

/**
 * @throws {RangeError} if the history has no turn, if the window is not null or a whole number from 1 on, or if the mode is single_turn and the
 *   dialogue is finished or the layout is ragen-v1
 */
export function contextMessages(tag: EnvTag, history: History, options: ContextOptions): Message[] {
  const { mode, window } = options;
  if (window !== null && !(Number.isInteger(window) && window >= 1)) {
    throw new RangeError(`context window must be null (all turns) or at least 1, got ${window}`);
  }
  const turns = history.answered.length + (history.now === null ? 0 : 1);
  if (turns === 0) throw new RangeError("a dialogue needs at least one turn, found none");
  const from = mode === "full" || window === null ? 0 : Math.max(0, turns - window);
  if (mode === "single_turn") return summaryMessages(tag, history, from, options);
  return Array.from({ length: turns - from }, (_, i) => {
    const answered = history.answered[from + i];
    const prompt = turnMessages(tag, history, from + i, from, options);
    return answered === undefined ? prompt : [...prompt, { role: "assistant" as const, content: answered.reply }];
  }).flat();
}

/**
 * The messages that a turn adds before its reply: the observation, and at the first shown turn also the task.
 *
 * @param turn  index of the turn, from 0
 * @param from  index of the first turn that the dialogue shows
 */
export function turnMessages(
  tag: EnvTag,
  history: History,
  turn: number,
  from: number,
  options: Omit<ContextOptions, "mode" | "window">,
): Message[] {
  const { answered, now } = history;
  const { layout, compat = false } = options;
  // If `warn` is false, the prompt never warns that the last reply had no known action. RAGEN omits this warning in the finished dialogues on
  // which it trains, so `compat` omits it there too.
  const warn = !compat || now !== null;
  const before = answered[turn - 1];
  const { observation, actionsLeft } = answered[turn] ?? now!;
  // RAGEN v1 gives the number 1 to the first turn that the prompt shows.
  const number = layout === "ragen-v1" && compat ? turn - from + 1 : turn + 1;
  const noValidAction = layout === "ragen-v2" && before?.actions.length === 0 && warn;
  const prompt = { turn: number, observation, actionsLeft, noValidAction };
  if (turn > from) {
    const { reward, actions } = before!;
    return nextPrompt(tag, layout, { ...prompt, reward, actions }, options);
  }
  if (layout === "compact") return [{ role: "user", content: compactText(tag, observation, actionsLeft) }];
  return openingMessages(tag, layout, budget(history), turnText(tag, prompt, options), options);
}

/**
 * One user message that shows the turns with index `from` and later. In the layout compact it has the compact form. In ragen-v2 it has the form of
 * RAGEN-2's AlfWorldMemory (for ALFWorld) or SimpleMemory (for other envs), after a system message.
 */
function summaryMessages(tag: EnvTag, history: History, from: number, options: ContextOptions): Message[] {
  const { answered, now } = history;
  const { layout } = options;
  if (now === null) throw new RangeError("single_turn needs a turn that awaits a reply; the dialogue is finished");
  if (layout === "compact") return [{ role: "user", content: compactMemory(tag, answered.slice(from), now) }];
  if (layout === "ragen-v1") throw new RangeError("single_turn is a context of compact and ragen-v2; got ragen-v1");
  const current = { ...now, noValidAction: answered.at(-1)?.actions.length === 0 };
  const { think = true } = options;
  const text =
    tag.type === "alfworld"
      ? alfworldMemory(answered, current, { from, replyWordsHint: tag.replyWordsHint, think })
      : simpleMemory(tag, answered, current, from, options);
  return openingMessages(tag, layout, budget(history), text, options);
}

function compactMemory(tag: EnvTag, shown: readonly AnsweredTurn[], now: CurrentTurn): string {
  const before = shown.map(
    ({ observation, actionsLeft, actions }) =>
      `${compactText(tag, observation, actionsLeft)} ${actions.join(" || ")}\n`,
  );
  return before.join("") + compactText(tag, now.observation, now.actionsLeft);
}

/** RAGEN-2's SimpleMemory. */
function simpleMemory(
  tag: EnvTag,
  answered: readonly AnsweredTurn[],
  now: Omit<TurnPrompt, "turn">,
  from: number,
  options: ContextOptions,
): string {
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
  return `${text}(Turn ${answered.length + 1}):\n${stateText(tag, now, options)}`;
}

/** The episode's action budget: the actions left before the first reply. */
function budget({ answered, now }: History): number {
  return (answered[0] ?? now!).actionsLeft;
}

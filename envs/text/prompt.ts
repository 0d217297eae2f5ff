/**
 * Builds the prompts of an episode as chat messages. Pure functions over text. Knows no tokens and no chat template.
 *
 * - `nextPrompt` only appends messages, so earlier messages keep their tokens.
 * - With `compat`, the layouts ragen-v1 and ragen-v2 equal RAGEN's prompts byte for byte. Without `compat`, both layouts correct RAGEN's
 *   instruction, legend and numbers.
 * - The layout compact, for the built-in policy, contains only what changes between turns.
 *
 * Source: RAGEN ContextManager.get_lm_inputs, both versions. context.ts builds dialogues of limited length.
 */
import type { Turn } from "../env.ts";
import type { EnvTag } from "../tag.ts";
import { plainNumber, pythonFloat } from "./numbers.ts";

export type Layout = "compact" | "ragen-v1" | "ragen-v2";

export interface Message {
  readonly role: "system" | "user" | "assistant";
  readonly content: string;
}

export interface PromptOptions {
  /** True (the default): the prompt asks for a thought before the answer. */
  readonly think?: boolean;
  /** True: the prompt equals RAGEN's prompt byte for byte, defects included. The default is false. */
  readonly compat?: boolean;
}

const GREETING = "You're a helpful assistant. ";
const NO_VALID_ACTION = "No valid action provided previously. Environment state remains the same. Please try again.\n";

/** The messages after a turn that did not end the episode. @param next  the next turn, with the reward and the actions of the last turn */
export function nextPrompt(
  tag: EnvTag,
  layout: Layout,
  next: TurnPrompt & Pick<Turn, "reward" | "actions">,
  options: PromptOptions = {},
): Message[] {
  const { observation, actionsLeft } = next;
  if (layout === "compact") return [{ role: "user", content: compactText(tag, observation, actionsLeft) }];
  const text = turnText(tag, next, options);
  return [{ role: "user", content: `Reward:\n${rewardText(tag, next, options)}\n${text}` }];
}

/** The whole prompt of one turn in the compact layout. */
export function compactText(tag: EnvTag, observation: string, actionsLeft: number): string {
  return `${actionsLeft} left ${tag.brief(observation)}`;
}

/** The system message and the first user message. @param firstTurn  the text of the first turn that the prompt shows */
export function openingMessages(
  tag: EnvTag,
  layout: Exclude<Layout, "compact">,
  actionsMax: number,
  firstTurn: string,
  options: PromptOptions,
): Message[] {
  const task = taskText(tag, layout, actionsMax, options);
  return layout === "ragen-v1"
    ? [
        { role: "system", content: GREETING },
        { role: "user", content: task + firstTurn },
      ]
    : [
        { role: "system", content: GREETING + task },
        { role: "user", content: firstTurn },
      ];
}

/** The constant part of an episode's prompts: the task, its symbols and its actions. */
function taskText(
  tag: EnvTag,
  layout: Exclude<Layout, "compact">,
  actionsMax: number,
  { compat = false }: PromptOptions,
): string {
  const { wording } = tag;
  const texts = compat ? wording : wording.strict;
  const legend = compat ? wording.compatLegend : wording.legend;
  let text = layout === "ragen-v1" ? texts.v1 : texts.v2;
  if (legend !== null) {
    const symbols = legend.map(([symbol, meaning]) => `${symbol}: ${meaning}`).join(", ");
    text += `\nThe meaning of each symbol in the state is:\n${symbols}`;
  } else if (!compat && wording.coordinateHint !== null) {
    text += `\n${wording.coordinateHint}`;
  }
  if (wording.actions !== null) {
    text += `\nYour available actions are:\n${wording.actions.join(", ")}`;
    text += `\nYou can make up to ${actionsMax} actions, separated by the action separator " || "\n`;
  }
  return text;
}

export interface TurnPrompt {
  /** Number of the turn. The first turn has the number 1. */
  readonly turn: number;
  readonly observation: string;
  readonly actionsLeft: number;
  /** True: the prompt warns that the last reply had no known action. */
  readonly noValidAction: boolean;
}

export function turnText(tag: EnvTag, prompt: TurnPrompt, options: PromptOptions): string {
  return `\nTurn ${prompt.turn}:\n${stateText(tag, prompt, options)}`;
}

export function stateText(tag: EnvTag, prompt: Omit<TurnPrompt, "turn">, options: PromptOptions): string {
  const warning = prompt.noValidAction ? NO_VALID_ACTION : "";
  return `State:\n${prompt.observation}\n${warning}You have ${prompt.actionsLeft} actions left. Always output: ${replyForm(options)} with no extra text. Strictly follow this format. Max response length: ${tag.replyWordsHint} words (tokens).\n`;
}

/** The required form of a reply. */
export function replyForm({ think = true }: PromptOptions): string {
  const answer = "<answer> [your answer] </answer>";
  return think ? `<think> [Your thoughts] </think> ${answer}` : answer;
}

/** A turn's reward as the next prompt prints it. In RAGEN the reward of a turn without executed actions is Python's int 0, and prints as 0. */
export function rewardText(
  tag: EnvTag,
  turn: Pick<Turn, "reward" | "actions">,
  { compat = false }: PromptOptions,
): string {
  if (!compat) return plainNumber(turn.reward);
  const isInt = turn.actions.length === 0 || (tag.wording.integerRewards && Number.isInteger(turn.reward));
  return isInt ? String(turn.reward) : pythonFloat(turn.reward);
}

/**
 * What an agent is told, as chat messages. Pure functions over text: no tokens, no template of a model, no state.
 *
 * - `firstPrompt` and `nextPrompt` only ever add messages: what was said stays said, and keeps its tokens.
 * - ragen-v1 and ragen-v2 with `compat` are RAGEN's bytes; without it, the legend, the budget and the numbers are right.
 * - compact tells the built-in policy what changes and nothing else.
 *
 * Source: RAGEN ContextManager.get_lm_inputs, both versions. Dialogues with a limited memory are in context.ts.
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
  /** Ask for a thought before the answer. Default true. */
  readonly think?: boolean;
  /** RAGEN byte for byte, defects included. Default false. */
  readonly compat?: boolean;
  /** ragen-v2: say so if the last reply had no known action. Default true. */
  readonly warn?: boolean;
}

/** A played turn, as `Env.step` returned it. */
export interface PlayedTurn extends Pick<Turn, "observation" | "reward" | "actions" | "actionsLeft"> {
  /** Which turn it was; the first is 0. */
  readonly turn: number;
}

const GREETING = "You're a helpful assistant. ";
const NOTHING_READ = "No valid action provided previously. Environment state remains the same. Please try again.\n";

/** The messages that begin an episode. @param actionsLeft the episode's whole budget. */
export function firstPrompt(
  tag: EnvTag,
  layout: Layout,
  opening: string,
  actionsLeft: number,
  options: PromptOptions = {},
): Message[] {
  if (layout === "compact") return [{ role: "user", content: compact(tag, opening, actionsLeft) }];
  const asked = turnText(tag, { turn: 1, observation: opening, actionsLeft, nothingRead: false }, options);
  return openingMessages(tag, layout, actionsLeft, asked, options);
}

/** The messages that follow a turn after which the episode goes on. */
export function nextPrompt(tag: EnvTag, layout: Layout, played: PlayedTurn, options: PromptOptions = {}): Message[] {
  const { observation, actionsLeft, actions } = played;
  if (layout === "compact") return [{ role: "user", content: compact(tag, observation, actionsLeft) }];
  const nothingRead = layout === "ragen-v2" && actions.length === 0 && options.warn !== false;
  const asked = turnText(tag, { turn: played.turn + 2, observation, actionsLeft, nothingRead }, options);
  return [{ role: "user", content: `Reward:\n${rewardText(tag, played, options)}\n${asked}` }];
}

/** All that the built-in policy is told of a turn. */
export function compact(tag: EnvTag, observation: string, actionsLeft: number): string {
  return `${actionsLeft} left ${tag.brief(observation)}`;
}

/** System and first user message around the text of the first turn shown. */
export function openingMessages(
  tag: EnvTag,
  layout: Exclude<Layout, "compact">,
  actionsMax: number,
  asked: string,
  options: PromptOptions,
): Message[] {
  const told = prefix(tag, layout, actionsMax, options);
  return layout === "ragen-v1"
    ? [
        { role: "system", content: GREETING },
        { role: "user", content: told + asked },
      ]
    : [
        { role: "system", content: GREETING + told },
        { role: "user", content: asked },
      ];
}

/** What never changes in an episode: the task, its symbols and its actions. */
function prefix(
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

/** One turn as it is asked for. */
export interface Asked {
  /** The first is 1. */
  readonly turn: number;
  readonly observation: string;
  readonly actionsLeft: number;
  /** True to say that the last reply had no known action. */
  readonly nothingRead: boolean;
}

export function turnText(tag: EnvTag, asked: Asked, options: PromptOptions): string {
  return `\nTurn ${asked.turn}:\n${stateText(tag, asked, options)}`;
}

export function stateText(tag: EnvTag, asked: Omit<Asked, "turn">, options: PromptOptions): string {
  const warning = asked.nothingRead ? NOTHING_READ : "";
  return `State:\n${asked.observation}\n${warning}You have ${asked.actionsLeft} actions left. Always output: ${replyForm(options)} with no extra text. Strictly follow this format. Max response length: ${tag.replyWordsHint} words (tokens).\n`;
}

/** The form a reply must have, as it is described to the agent. */
export function replyForm({ think = true }: PromptOptions): string {
  const answer = "<answer> [your answer] </answer>";
  return think ? `<think> [Your thoughts] </think> ${answer}` : answer;
}

/** A turn's reward as the next prompt prints it. Without executed actions RAGEN's sum is the int 0. */
export function rewardText(
  tag: EnvTag,
  turn: Pick<Turn, "reward" | "actions">,
  { compat = false }: PromptOptions,
): string {
  if (!compat) return plainNumber(turn.reward);
  const isInt = turn.actions.length === 0 || (tag.wording.integerRewards && Number.isInteger(turn.reward));
  return isInt ? String(turn.reward) : pythonFloat(turn.reward);
}

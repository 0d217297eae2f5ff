/**
 * One episode as its policy reads it: what it is asked, in which context, and what it replied, as tokens. Knows no env server and
 * no policy; who plays or teaches says what was observed and what was replied.
 *
 * - Nothing that the policy wrote is encoded again: in whatever context a reply is shown, it is shown as the ids that were sampled.
 *   (single_turn quotes replies inside a question; a quotation is encoded with the question around it.)
 * - A turn whose context goes on where the last one ended continues it; otherwise a new context begins, and of the policy's cache
 *   the beginning that both have in common is kept.
 * - A context that gets too long loses whole turns, a question and its reply at a time, oldest first, if the rules say so. Turns that
 *   were left out are counted, and do not come back.
 *
 * Source: RAGEN-2's context_window_mode. There every turn is a sample of its own; here only one whose history was cut, as else
 * it would be the end of the sample before.
 */

import type { Turn } from "../../envs/env.ts";
import type { EnvTag } from "../../envs/tag.ts";
import { type AnsweredTurn, type ContextMode, contextMessages, turnMessages } from "../../envs/text/context.ts";
import type { Layout, Message } from "../../envs/text/prompt.ts";
import type { Dialogue, ReplyPrefix } from "../../model/text/dialogue.ts";
import type { Trajectory } from "../../model/trajectory.ts";

export interface ContextRules {
  readonly layout: Layout;
  readonly compat: boolean;
  readonly think: boolean;
  readonly context: ContextMode;
  /** Turns of a context, the one asked for included; null: all. */
  readonly contextTurnsMax: number | null;
  /** What happens when a context is too long: the episode ends, or its oldest turns are left out. */
  readonly overflow: "stop" | "drop";
  readonly replyTokensMax: number;
  readonly contextTokensMax: number;
}

/** How a turn is asked for. */
export interface Question {
  /** Tokens of the policy's sequence that stay; `prompt` goes behind them. */
  readonly keep: number;
  readonly prompt: readonly number[];
  /** Index in the episode's tokens of the sequence's first: names its coin. */
  readonly start: number;
  /** Room for the reply. */
  readonly tokensMax: number;
}

export interface GivenReply {
  readonly tokens: readonly number[];
  readonly logProbs: readonly number[];
  readonly cut: boolean;
}

type Outcome = Pick<Turn, "reward" | "penalty" | "actions">;

interface Answered extends AnsweredTurn {
  readonly tokens: readonly number[];
  readonly cut: boolean;
}

export class Transcript {
  readonly #tag: EnvTag;
  readonly #dialogue: Dialogue;
  readonly #rules: ContextRules;
  readonly #prefix: ReplyPrefix;
  readonly #answered: Answered[] = [];
  #now: { observation: string; actionsLeft: number } = { observation: "", actionsLeft: 0 };
  /** First turn of the context. */
  #from = 0;
  /** The context: what the policy's sequence holds. */
  #context: number[] = [];
  /** Turns left out of the context for want of room. */
  #dropped = 0;
  readonly #tokens: number[] = [];
  readonly #written: number[] = [];
  readonly #logProbs: number[] = [];
  readonly #contexts: number[] = [];
  readonly #spans: { end: number; reward: number; penalty: number }[] = [];

  constructor(tag: EnvTag, dialogue: Dialogue, rules: ContextRules) {
    this.#tag = tag;
    this.#dialogue = dialogue;
    this.#rules = rules;
    this.#prefix = rules.think ? "<think>" : "<answer>";
  }

  /** Earlier turns left out of the last question because they and it were too long for a context. */
  get dropped(): number {
    return this.#dropped;
  }

  /** @returns null if there is no room for the question and one token of reply. */
  ask(observation: string, actionsLeft: number): Question | null {
    const { context, contextTurnsMax, contextTokensMax, replyTokensMax, overflow } = this.#rules;
    this.#now = { observation, actionsLeft };
    const turn = this.#answered.length;
    const allowed = context === "full" || contextTurnsMax === null ? 0 : Math.max(0, turn + 1 - contextTurnsMax);
    for (let from = Math.max(this.#from, allowed); ; from++) {
      const goesOn = turn > 0 && from === this.#from && context !== "single_turn";
      const added = goesOn ? this.#lastPrompt(from) : this.#wholePrompt(from);
      const room = contextTokensMax - (goesOn ? this.#context.length : 0) - added.length;
      // Turns are left out until a whole reply fits, so that no reply is cut for what was said long ago.
      const mayDrop = overflow === "drop" && from < turn;
      if (mayDrop && room < replyTokensMax) continue;
      if (room < 1) return null;
      this.#dropped = Math.max(0, from - allowed);
      this.#from = from;
      const tokensMax = Math.min(replyTokensMax, room);
      return { ...this.#append(goesOn, added), tokensMax };
    }
  }

  /** A reply as an env reads it. */
  text(tokens: readonly number[]): string {
    return this.#dialogue.replyText(tokens, this.#prefix);
  }

  /** What the policy replied to the last question, and what came of it. */
  played({ tokens, logProbs, cut }: GivenReply, { reward, penalty, actions }: Outcome): void {
    this.#push(tokens, 1, logProbs);
    this.#context.push(...tokens);
    this.#spans.push({ end: this.#tokens.length - 1, reward, penalty });
    this.#answered.push({ ...this.#now, reply: this.text(tokens), tokens, cut, reward, actions });
  }

  trajectory() {
    return {
      tokens: Int32Array.from(this.#tokens),
      written: Uint8Array.from(this.#written),
      logProbs: Float32Array.from(this.#logProbs),
      contexts: this.#contexts,
      turns: this.#spans,
    } satisfies Omit<Trajectory, "version" | "digest">;
  }

  #append(goesOn: boolean, added: readonly number[]): Omit<Question, "tokensMax"> {
    let keep = this.#context.length;
    if (!goesOn) {
      keep = common(this.#context, added);
      this.#contexts.push(this.#tokens.length);
      this.#context = [];
    }
    this.#push(added, 0);
    this.#context.push(...added);
    return { keep, prompt: goesOn ? added : added.slice(keep), start: this.#contexts.at(-1)! };
  }

  #push(tokens: readonly number[], written: 0 | 1, logProbs?: readonly number[]): void {
    for (const [i, token] of tokens.entries()) {
      this.#tokens.push(token);
      this.#written.push(written);
      this.#logProbs.push(logProbs?.[i] ?? 0);
    }
  }

  /** What comes behind the last reply. */
  #lastPrompt(from: number): number[] {
    const turn = this.#answered.length;
    return this.#promptTokens(this.#asked(turn, from), false, this.#answered[turn - 1]!.cut);
  }

  /** The whole context, with the replies in it as they were sampled. */
  #wholePrompt(from: number): number[] {
    const now = this.#answered.length;
    if (this.#rules.context === "single_turn") {
      const options = { ...this.#rules, mode: "single_turn", window: now + 1 - from } as const;
      return this.#promptTokens(contextMessages(this.#tag, this.#history(), options), true, false);
    }
    return Array.from({ length: now + 1 - from }, (_, i) => {
      const asked = this.#asked(from + i, from);
      if (i === 0) return this.#promptTokens(asked, true, false);
      const { tokens, cut } = this.#answered[from + i - 1]!;
      return [...tokens, ...this.#promptTokens(asked, false, cut)];
    }).flat();
  }

  #asked(turn: number, from: number): Message[] {
    return turnMessages(this.#tag, this.#history(), turn, from, this.#rules);
  }

  #promptTokens(messages: readonly Message[], first: boolean, cut: boolean): number[] {
    return this.#dialogue.promptTokens(messages, { first, cut, prefix: this.#prefix });
  }

  #history() {
    return { answered: this.#answered, now: this.#now };
  }
}

/** Length of the beginning that both share, less one if that is all of `next`: a prompt has a token. */
function common(before: readonly number[], next: readonly number[]): number {
  const end = Math.min(before.length, next.length - 1);
  for (let i = 0; i < end; i++) if (before[i] !== next[i]) return i;
  return end;
}

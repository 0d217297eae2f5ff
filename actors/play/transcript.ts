/**
 * One episode as tokens: the prompt of each turn, the context of each prompt, and the replies. This file knows no env server and no policy:
 * the caller passes observations and replies.
 *
 * - Every context shows a reply as the token ids that the policy sampled, and never encodes the reply again. There are two exceptions. With
 *   context single_turn the prompt quotes the text of earlier replies. With `compat` a later turn shows the reply that RAGEN rebuilds from
 *   the sampled reply; if the two differ, a new context begins. The policy still trains on the tokens that it sampled.
 * - A turn extends the current context if it can. Otherwise a new context begins, and the policy keeps its cache of the tokens with which
 *   both contexts begin.
 * - With overflow "drop", a context that is too long loses its oldest turns: their observations and their replies. The record of a turn has
 *   the number of dropped turns. Later contexts do not show these turns again.
 *
 * Source: RAGEN-2's context_window_mode. In RAGEN-2 each turn is a sample of its own. In Bunraku a turn extends the current sample if it can.
 */
import type { Turn } from "../../envs/env.ts";
import type { EnvTag } from "../../envs/tag.ts";
import { shownReply } from "../../envs/text/answer.ts";
import { type AnsweredTurn, type ContextMode, contextMessages, turnMessages } from "../../envs/text/context.ts";
import type { Layout, Message } from "../../envs/text/prompt.ts";
import type { Dialogue, ReplyPrefix } from "../../model/text/dialogue.ts";
import type { Trajectory, TurnSpan } from "../../model/trajectory.ts";

export interface ContextRules {
  readonly layout: Layout;
  readonly compat: boolean;
  readonly think: boolean;
  readonly context: ContextMode;
  /** Limit on the turns of a context, the current turn included; null means no limit. */
  readonly contextTurnsMax: number | null;
  /** What happens to a context that is too long: the episode stops, or the context drops its oldest turns. */
  readonly overflow: "stop" | "drop";
  readonly replyTokensMax: number;
  readonly contextTokensMax: number;
}

/** What the policy reads before it writes a turn's reply. */
export interface TurnPrompt {
  /** Number of tokens that the policy's sequence keeps; `prompt` follows them. */
  readonly keep: number;
  readonly prompt: readonly number[];
  /** Index of the context's first token in the episode's tokens. The coin (random number) that chooses a token has the token's index. */
  readonly start: number;
  /** Limit on the tokens of the reply. */
  readonly tokensMax: number;
}

/** A reply as the policy wrote it. */
export interface ReplyTokens {
  readonly tokens: readonly number[];
  readonly logProbs: readonly number[];
  /** True if the reply ran into its token limit. */
  readonly cut: boolean;
  /** Policy version that wrote the reply; left out if it is the version of the episode. */
  readonly version?: number;
}

/** A turn of the history. `tokens` and `cut` belong to the reply in the form that later turns show. */
interface HistoryTurn extends AnsweredTurn {
  readonly tokens: readonly number[];
  readonly cut: boolean;
}

export class Transcript {
  /** Number of earlier turns that the last prompt left out for lack of room. */
  dropped = 0;
  /** Number of tokens of the context with the prompt that had no room; 0 if every prompt had room. */
  refusedTokens = 0;
  readonly #tag: EnvTag;
  readonly #dialogue: Dialogue;
  readonly #rules: ContextRules;
  readonly #prefix: ReplyPrefix;
  readonly #actionsPerTurnMax: number;
  readonly #answered: HistoryTurn[] = [];
  #now: { observation: string; actionsLeft: number } = { observation: "", actionsLeft: 0 };
  /** The last reply that `text` read. */
  #read: { readonly tokens: readonly number[]; readonly text: string } | null = null;
  /** True if later turns show the last reply in another form than the policy sampled. */
  #rewritten = false;
  /** Index of the first turn that the context shows. */
  #from = 0;
  /** Tokens of the context, which are the tokens that the policy's sequence holds. */
  #context: number[] = [];
  readonly #tokens: number[] = [];
  readonly #written: number[] = [];
  readonly #logProbs: number[] = [];
  readonly #contexts: number[] = [];
  readonly #spans: TurnSpan[] = [];

  /** @param actionsPerTurnMax  the env's limit; in compat a shown reply has at most this many actions */
  constructor(tag: EnvTag, dialogue: Dialogue, rules: ContextRules, actionsPerTurnMax = Number.POSITIVE_INFINITY) {
    this.#tag = tag;
    this.#actionsPerTurnMax = actionsPerTurnMax;
    this.#dialogue = dialogue;
    this.#rules = rules;
    this.#prefix = rules.think ? "<think>" : "<answer>";
  }

  /** Adds the prompt of the next turn. @returns null if the context has no room for the prompt and one token of the reply. */
  addPrompt(observation: string, actionsLeft: number): TurnPrompt | null {
    const { context, contextTurnsMax, contextTokensMax, replyTokensMax, overflow } = this.#rules;
    this.#now = { observation, actionsLeft };
    const turn = this.#answered.length;
    const allowed = context === "full" || contextTurnsMax === null ? 0 : Math.max(0, turn + 1 - contextTurnsMax);
    for (let from = Math.max(this.#from, allowed); ; from++) {
      const extendsContext = turn > 0 && from === this.#from && context !== "single_turn" && !this.#rewritten;
      const added = extendsContext ? this.#lastPrompt(from) : this.#wholePrompt(from);
      const room = contextTokensMax - (extendsContext ? this.#context.length : 0) - added.length;
      // Drop turns until a whole reply fits, so that old turns never cut a new reply short.
      const mayDrop = overflow === "drop" && from < turn;
      if (mayDrop && room < replyTokensMax) continue;
      if (room < 1) {
        this.refusedTokens = contextTokensMax - room;
        return null;
      }
      this.dropped = Math.max(0, from - allowed);
      this.#from = from;
      const tokensMax = Math.min(replyTokensMax, room);
      return { ...this.#append(extendsContext, added), tokensMax };
    }
  }

  /** The text of a reply that the env reads. */
  text(tokens: readonly number[]): string {
    if (this.#read?.tokens !== tokens) this.#read = { tokens, text: this.#dialogue.replyText(tokens, this.#prefix) };
    return this.#read.text;
  }

  /** Adds the reply to the last prompt, with the reward, penalty and actions of its turn. */
  addTurn({ tokens, logProbs, cut, version }: ReplyTokens, turn: Pick<Turn, "reward" | "penalty" | "actions">): void {
    const { reward, penalty, actions } = turn;
    this.#push(tokens, 1, logProbs);
    this.#context.push(...tokens);
    const span = { end: this.#tokens.length - 1, reward, penalty };
    this.#spans.push(version === undefined ? span : { ...span, version });
    const written = this.text(tokens);
    const reply = shownReply(written, { ...this.#rules, actionsPerTurnMax: this.#actionsPerTurnMax });
    this.#rewritten = reply !== written;
    const shown = this.#rewritten
      ? { tokens: this.#dialogue.replyTokens(reply, this.#prefix), cut: false }
      : { tokens, cut };
    this.#answered.push({ ...this.#now, reply, ...shown, reward, actions });
  }

  trajectory() {
    return {
      tokens: new Int32Array(this.#tokens),
      written: new Uint8Array(this.#written),
      logProbs: new Float32Array(this.#logProbs),
      contexts: this.#contexts,
      turns: this.#spans,
    } satisfies Omit<Trajectory, "version" | "digest">;
  }

  #append(extendsContext: boolean, added: readonly number[]): Omit<TurnPrompt, "tokensMax"> {
    let keep = this.#context.length;
    if (!extendsContext) {
      keep = commonLength(this.#context, added);
      this.#contexts.push(this.#tokens.length);
      this.#context = [];
    }
    this.#push(added, 0);
    this.#context.push(...added);
    return { keep, prompt: extendsContext ? added : added.slice(keep), start: this.#contexts.at(-1)! };
  }

  #push(tokens: readonly number[], written: 0 | 1, logProbs?: readonly number[]): void {
    for (let i = 0; i < tokens.length; i++) {
      this.#tokens.push(tokens[i]!);
      this.#written.push(written);
      this.#logProbs.push(logProbs?.[i] ?? 0);
    }
  }

  /** The prompt that follows the last reply. */
  #lastPrompt(from: number): number[] {
    const turn = this.#answered.length;
    return this.#promptTokens(this.#asked(turn, from), false, this.#answered[turn - 1]!.cut);
  }

  /** The whole context, with its replies as later turns show them. */
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

/** Number of first tokens that both lists share; at most `next.length - 1`, because a prompt has at least one token. */
function commonLength(before: readonly number[], next: readonly number[]): number {
  const end = Math.min(before.length, next.length - 1);
  for (let i = 0; i < end; i++) if (before[i] !== next[i]) return i;
  return end;
}

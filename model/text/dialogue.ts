/**
 * The interface between text and tokens of an episode: tokens of a prompt, tokens that end a reply, text of a reply.
 * chat.ts implements the interface for the built-in policy, chat-template.ts for a pretrained model.
 *
 * - Append-only: each turn's prompt follows the tokens of the reply before it, and no text is encoded twice.
 * - Text in a message never encodes to a special token, so no observation can end a turn.
 */

export interface Message {
  readonly role: "system" | "user" | "assistant";
  readonly content: string;
}

/** The forced beginning of every reply; the policy does not write its tokens. */
export type ReplyPrefix = "<think>" | "<answer>";

export interface PromptOptions {
  /** True for the first prompt of an episode. */
  readonly first: boolean;
  /** True if the reply before this prompt ended without a stop token. */
  readonly cut?: boolean;
  readonly prefix: ReplyPrefix;
}

/** How an episode's tokens show which role wrote each message. */
export interface RoleMarks {
  /** The token that begins each message, such as `<|im_start|>`; -1 if there is none. */
  readonly messageStart: number;
  /** The tokens after `messageStart` that mark a system message. */
  readonly system: readonly number[];
  /** True if `messageStart` and a role stand before each reply too. */
  readonly beforeReplies: boolean;
}

export interface Dialogue {
  /** sha256 (hex) of the tokenizer and, for a pretrained model, its chat template and stops. A checkpoint records the digest. */
  readonly digest: string;
  /** Tokens that end a reply. A demonstration ends with the first of these tokens. */
  readonly stops: readonly number[];
  /** The token that closes a thought; null if there is no such token. */
  readonly thinkEnd: number | null;
  readonly roleMarks: RoleMarks;

  /**
   * @param messages  the new messages since the last reply, in order; system messages only in the first prompt.
   * @returns tokens to append to the episode, none of them written by the policy.
   * @throws {RangeError} if there is no message, or a message has a role that is not allowed here, or the first prompt has `cut`.
   */
  promptTokens(messages: readonly Message[], options: PromptOptions): number[];

  /**
   * The written tokens of a whole reply: those that a policy would sample after the prompt.
   *
   * @param reply  with its prefix, as an env reads it.
   * @throws {RangeError} if the reply does not begin with the prefix.
   */
  replyTokens(reply: string, prefix: ReplyPrefix): number[];

  /** The reply as an env reads it. @param written  the sampled tokens, with or without the stop token at their end. */
  replyText(written: readonly number[] | Int32Array, prefix: ReplyPrefix): string;
}

/** @throws {RangeError} as `Dialogue.promptTokens` */
export function checkPrompt(messages: readonly Message[], { first, cut = false }: PromptOptions): void {
  if (messages.length === 0) throw new RangeError("a prompt needs at least one message, found none");
  if (first && cut) throw new RangeError("the first prompt follows no reply, so cut must be false");
  if (messages.some(({ role }) => role === "assistant"))
    throw new RangeError("a prompt has no assistant messages, found one; append the tokens of the reply instead");
  if (!first && messages.some(({ role }) => role === "system"))
    throw new RangeError("a system message must be in the first prompt, found one in a later prompt");
}

/** The reply without its prefix. @throws {RangeError} if it does not begin with the prefix */
export function withoutPrefix(reply: string, prefix: ReplyPrefix): string {
  if (reply.startsWith(prefix)) return reply.slice(prefix.length);
  throw new RangeError(`a reply must begin with ${prefix}, found ${JSON.stringify(reply.slice(0, 40))}`);
}

/**
 * How a policy speaks: which tokens stand for what it is told, which end its reply, what the reply says.
 * chat.ts is the built-in policy's way; checkpoint/chat-template.ts is that of a pretrained model.
 *
 * - Append-only: each turn's prompt goes right behind the tokens of the reply before it, and nothing is encoded again.
 * - Text in a message never encodes to a special token, so no observation can end a turn.
 */

export interface Message {
  readonly role: "system" | "user" | "assistant";
  readonly content: string;
}

/** How every reply is made to begin. Unwritten: the policy did not choose it. */
export type ReplyPrefix = "<think>" | "<answer>";

export interface PromptOptions {
  /** True for the prompt that begins an episode. */
  readonly first: boolean;
  /** True if the reply before this prompt stopped without a stop token. */
  readonly cut?: boolean;
  readonly prefix: ReplyPrefix;
}

export interface Dialogue {
  /** Of tokenizer and layout. A checkpoint records it. */
  readonly digest: string;
  /** Tokens that end a reply; the first is what a demonstration ends with. */
  readonly stops: readonly number[];
  /** The token that closes a thought; null if there is no such token. */
  readonly thinkEnd: number | null;

  /**
   * @param messages  what is new since the last reply, in order; system messages only in the first prompt.
   * @returns tokens to append to the episode's; all of them unwritten.
   * @throws {RangeError} if there is no message, or one that has no place here.
   */
  promptTokens(messages: readonly Message[], options: PromptOptions): number[];

  /**
   * The written tokens of a whole reply: what a policy would have sampled after the prompt to say exactly this.
   *
   * @param reply  with its prefix, as an env reads it.
   * @throws {RangeError} if the reply does not begin with the prefix.
   */
  replyTokens(reply: string, prefix: ReplyPrefix): number[];

  /** The reply as an env reads it. @param written  the sampled tokens, with or without the stop token at their end. */
  replyText(written: readonly number[] | Int32Array, prefix: ReplyPrefix): string;
}

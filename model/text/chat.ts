/**
 * The built-in policy's chat layout, as short as it can be: every token is trained on, and no token is spent on being polite.
 *
 *   <|im_start|> observation <|im_end|> <think> push Up</think><answer>Up || Left</answer> <|im_end|>
 *   `------------- promptTokens -------------´ `-------------- written by the policy --------------´
 *
 * It knows tokens and text, not envs and not how a reply is sampled.
 *
 * - Append-only: each turn's prompt goes right behind the tokens of the reply before it, and nothing is encoded again.
 * - Every reply that another turn follows is closed by one `<|im_end|>`: the policy's own, or an unwritten one if it was cut.
 * - A demonstration (`replyTokens`) has the tokens that sampling the same reply one by one would have given.
 */
import type { Dialogue, Message, PromptOptions, ReplyPrefix } from "./dialogue.ts";
import { Tokenizer } from "./tokenizer.ts";

export function builtinDialogue(tokenizer = new Tokenizer()): Dialogue {
  return {
    digest: tokenizer.digest,
    stops: [tokenizer.id("<|im_end|>")],
    thinkEnd: tokenizer.encode("</think>")[0]!,
    promptTokens: (messages, options) => promptTokens(tokenizer, messages, options),
    replyTokens: (reply, prefix) => replyTokens(tokenizer, reply, prefix),
    replyText: (written, prefix) => replyText(tokenizer, written, prefix),
  };
}

/**
 * @param messages  what is new since the last reply, in order; system messages only in the first prompt.
 * @returns tokens to append to the episode's; all of them unwritten.
 * @throws {RangeError} if there is no message, or one that has no place here.
 */
export function promptTokens(tokenizer: Tokenizer, messages: readonly Message[], options: PromptOptions): number[] {
  const { first, cut = false, prefix } = options;
  if (messages.length === 0) throw new RangeError("a prompt needs at least one message, found none");
  if (first && cut) throw new RangeError("the first prompt follows no reply, so none was cut");
  const start = tokenizer.id("<|im_start|>");
  const end = tokenizer.id("<|im_end|>");
  return [
    ...(cut ? [end] : []),
    ...messages.flatMap(({ role, content }) => [start, ...tokenizer.encode(opening(role, first) + content), end]),
    ...tokenizer.encode(prefix),
  ];
}

/** What a message begins with. An observation, by far the most frequent, needs no name. */
function opening(role: Message["role"], first: boolean): string {
  switch (role) {
    case "user":
      return "";
    case "system":
      if (!first) throw new RangeError("a system message must be in the first prompt, found one in a later prompt");
      return "system\n";
    case "assistant":
      throw new RangeError(
        "a prompt holds what the policy did not write, found an assistant message; append its tokens",
      );
    default:
      return role satisfies never;
  }
}

/**
 * The written tokens of a whole reply: what a policy would have sampled after the prompt to say exactly this.
 *
 * @param reply  with its prefix, as an env reads it.
 * @throws {RangeError} if the reply does not begin with the prefix.
 */
export function replyTokens(tokenizer: Tokenizer, reply: string, prefix: ReplyPrefix): number[] {
  if (!reply.startsWith(prefix)) {
    throw new RangeError(`a reply must begin with ${prefix}, found ${JSON.stringify(reply.slice(0, 40))}`);
  }
  return [...tokenizer.encode(reply.slice(prefix.length)), tokenizer.id("<|im_end|>")];
}

/** The reply as an env reads it. @param written  the sampled tokens, with or without the `<|im_end|>` at their end. */
export function replyText(tokenizer: Tokenizer, written: readonly number[] | Int32Array, prefix: ReplyPrefix): string {
  const ended = written[written.length - 1] === tokenizer.id("<|im_end|>");
  return prefix + tokenizer.decode(ended ? written.slice(0, -1) : written);
}

/**
 * The built-in policy's chat layout. It is short, because every token costs training time.
 *
 *   <|im_start|> observation <|im_end|> <think> push Up</think><answer>Up || Left</answer> <|im_end|>
 *   `------------- promptTokens -------------´ `-------------- written by the policy --------------´
 *
 * This file knows tokens and text. It knows neither envs nor sampling.
 *
 * - Exactly one `<|im_end|>` stands between a reply and the next prompt: the policy writes it, or the prompt adds it if the reply
 *   was cut.
 * - A demonstration (`replyTokens`) has the tokens that the policy would sample for the same reply.
 */
import { checkPrompt, type Dialogue, withoutPrefix } from "./dialogue.ts";
import { Tokenizer } from "./tokenizer.ts";

export function builtinDialogue(tokenizer = new Tokenizer()): Dialogue {
  const start = tokenizer.id("<|im_start|>");
  const end = tokenizer.id("<|im_end|>");
  return {
    digest: tokenizer.digest,
    stops: [end],
    thinkEnd: tokenizer.encode("</think>")[0]!,
    roleMarks: { messageStart: start, system: tokenizer.encode("system\n"), beforeReplies: false },

    promptTokens(messages, options) {
      checkPrompt(messages, options);
      // Observations, the most frequent messages, have no role in front.
      const body = ({ role, content }: (typeof messages)[number]) =>
        role === "system" ? `system\n${content}` : content;
      return [
        ...(options.cut ? [end] : []),
        ...messages.flatMap((message) => [start, ...tokenizer.encode(body(message)), end]),
        ...tokenizer.encode(options.prefix),
      ];
    },

    replyTokens: (reply, prefix) => [...tokenizer.encode(withoutPrefix(reply, prefix)), end],

    replyText: (written, prefix) =>
      prefix + tokenizer.decode(written[written.length - 1] === end ? written.slice(0, -1) : written),
  };
}

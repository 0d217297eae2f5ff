/**
 * Chat messages as the text that a Qwen policy continues (ChatML). For layouts of pretrained models; the built-in
 * policy's own, shorter form is in model/chat.ts.
 */
import type { Message } from "./prompt.ts";

/** @param prefix  how the reply is made to begin; null for a finished dialogue. */
export function chatml(messages: readonly Message[], prefix: "<think>" | "<answer>" | null): string {
  const said = messages.map(({ role, content }) => `<|im_start|>${role}\n${content}<|im_end|>\n`).join("");
  return prefix === null ? said : `${said}<|im_start|>assistant\n${prefix}`;
}

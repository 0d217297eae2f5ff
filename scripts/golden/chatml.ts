/** Chat messages as the text that a Qwen policy continues (ChatML), in which RAGEN's vectors are. */
import type { Message } from "../../envs/text/prompt.ts";

/** @param prefix  how the reply is made to begin; null for a finished dialogue. */
export function chatml(messages: readonly Message[], prefix: "<think>" | "<answer>" | null): string {
  const said = messages.map(({ role, content }) => `<|im_start|>${role}\n${content}<|im_end|>\n`).join("");
  return prefix === null ? said : `${said}<|im_start|>assistant\n${prefix}`;
}

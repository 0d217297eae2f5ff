/** What commands tell a person besides their result. */
import { visible } from "../../actors/dashboard/client/text.ts";

/** A line on standard error. What is in it may come from a model, an env or a server: its controls are shown, not obeyed. */
export function say(text: string): void {
  process.stderr.write(`${visible(text)}\n`);
}

export const warn = (text: string): void => say(`warning: ${text}`);

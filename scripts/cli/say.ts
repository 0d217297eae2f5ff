/** Lines for a person on standard error, apart from a command's result. */
import { visible } from "../../actors/dashboard/client/text.ts";

/** Prints a line. It may quote a model, an env or a server, so control characters are made visible. */
export function say(text: string): void {
  process.stderr.write(`${visible(text)}\n`);
}

export const warn = (text: string): void => say(`warning: ${text}`);

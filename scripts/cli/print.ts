/** Writes the standard output of the commands. Bun's own console.log loses text without an error if the disk is full. */
import { fstatSync, writeSync } from "node:fs";
import { format } from "node:util";
import { visible } from "../../actors/dashboard/client/text.ts";
import { messageOf } from "../../actors/errors.ts";

const STDOUT = 1;
/** Milliseconds between two attempts to write to a full pipe that does not block. */
const RETRY_MS = 5;

/** Prints one line; takes the arguments of console.log. @throws {Error} the errors of `write` */
export const print = (...values: unknown[]): void => write(`${format(...values)}\n`);

/** Drops the text if the reader has closed the pipe or the terminal. @throws {Error} if the text cannot be written whole */
export function write(text: string): void {
  const bytes = Buffer.from(text);
  for (let at = 0; at < bytes.length; ) {
    try {
      at += writeSync(STDOUT, bytes, at);
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === "EPIPE" || (code === "EIO" && !fstatSync(STDOUT).isFile())) return;
      if (code !== "EAGAIN")
        throw new Error(
          `cannot write to standard output: ${messageOf(error)}; make room, or redirect the output elsewhere`,
        );
      Bun.sleepSync(RETRY_MS);
    }
  }
}

/** Prints a line, with control characters in a visible form, because the line may quote a model, an env or a server. */
export function say(text: string): void {
  process.stderr.write(`${visible(text)}\n`);
}

export const warn = (text: string): void => say(`warning: ${text}`);

/** Adds text to a file of results. */
import { appendFileSync, statSync, truncateSync } from "node:fs";
import { messageOf } from "../errors.ts";

export type Append = (file: string, text: string) => void;

/** @throws {Error} if the text cannot be written whole; then nothing of it is left in the file */
export function appendWhole(file: string, text: string, append: Append = appendFileSync): void {
  const { size } = statSync(file);
  try {
    append(file, text);
  } catch (error) {
    truncateSync(file, size);
    const cause = messageOf(error);
    throw new Error(
      `cannot write to ${file}: ${cause}; the file keeps what it had. Make room, and run the command again`,
    );
  }
}

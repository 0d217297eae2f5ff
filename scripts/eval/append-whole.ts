/** Adds text to a file of results. */
import { appendFileSync, statSync, truncateSync } from "node:fs";
import { messageOf } from "../../actors/errors.ts";

/** @throws {Error} if the text cannot be written; nothing of it is left in the file */
export function appendWhole(file: string, text: string, append: typeof appendFileSync = appendFileSync): void {
  const { size } = statSync(file);
  try {
    append(file, text);
  } catch (error) {
    truncateSync(file, size);
    throw new Error(
      `cannot write to --results ${file}: ${messageOf(error)}; the episodes of the last table are not in it. make room, and name another file`,
    );
  }
}

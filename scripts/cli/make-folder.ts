/** Makes the folder that a command writes into. */
import { mkdirSync } from "node:fs";
import { messageOf } from "../../actors/errors.ts";
import { UsageError } from "./options.ts";

/** An existing folder is fine. @throws {UsageError} if it cannot be made, for example where a file has its name */
export function makeFolder(path: string): void {
  try {
    mkdirSync(path, { recursive: true });
  } catch (error) {
    throw new UsageError(`cannot make the folder ${path}: ${messageOf(error)}; name another one`);
  }
}

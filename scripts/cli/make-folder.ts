/** Makes the folder that a command writes into. */
import { mkdirSync, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { messageOf } from "../../actors/errors.ts";
import { UsageError } from "./options.ts";

/** The folder may exist already. @throws {UsageError} if the folder cannot be made, for example because a file has this name */
export function makeFolder(path: string): void {
  try {
    mkdirSync(path, { recursive: true });
  } catch (error) {
    throw new UsageError(`cannot make the folder ${path}: ${messageOf(error)}; name another one`);
  }
}

/**
 * A new folder for temporary files. @param prefix  start of the folder's name. @throws {Error} if the folder cannot be made, for example
 * because TMPDIR is missing
 */
export function makeTemporaryFolder(prefix: string): string {
  try {
    return mkdtempSync(join(tmpdir(), prefix));
  } catch (error) {
    throw new Error(`cannot make a folder for temporary files: ${messageOf(error)}; set TMPDIR to a folder with room`);
  }
}

/** Writes a file or a folder whole or not at all. */
import { renameSync, rmSync } from "node:fs";
import { resolve } from "node:path";

/**
 * Writes beside `path` and renames. A former file stays until then. On an error nothing is left; a kill leaves `PATH.RANDOM.writing`.
 *
 * @param write  writes `pending`, which no other writer of the same path has
 */
export async function writeWhole(path: string, write: (pending: string) => unknown): Promise<void> {
  // Resolved without a slash at its end, behind which the pending folder would be inside.
  const pending = `${resolve(path)}.${crypto.randomUUID().slice(0, 8)}.writing`;
  try {
    await write(pending);
    renameSync(pending, path);
  } catch (error) {
    rmSync(pending, { recursive: true, force: true });
    throw error;
  }
}

/** The disk operations of checkpoints, which tests and simulations replace, and functions that write a file either whole or not at all. */
import { appendFileSync, renameSync, rmSync, statSync, truncateSync } from "node:fs";
import { mkdir, open, readdir, readFile, rename, rm } from "node:fs/promises";
import { resolve } from "node:path";
import { messageOf } from "../errors.ts";

export interface Disk {
  /** Names in a folder; empty if the folder is missing. */
  list(folder: string): Promise<string[]>;
  /** Makes parent folders too. An existing folder is no error. */
  makeFolder(folder: string): Promise<void>;
  read(file: string): Promise<Uint8Array>;
  /** Writes a new file and syncs it to the disk. Takes each piece from `pieces` only after it has written the previous piece. */
  write(file: string, pieces: Iterable<Uint8Array>): Promise<void>;
  /** Syncs the names in this folder to the disk. */
  syncFolder(folder: string): Promise<void>;
  /** Renames a folder that has files in it. Fails if `to` exists. */
  rename(from: string, to: string): Promise<void>;
  /** Removes a file, or a folder with its contents. A missing path is no error. */
  remove(path: string): Promise<void>;
}

export const realDisk: Disk = {
  async list(folder) {
    try {
      return await readdir(folder);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return [];
      throw error;
    }
  },
  async makeFolder(folder) {
    await mkdir(folder, { recursive: true });
  },
  async read(file) {
    // Return a real Uint8Array and not a Buffer: `slice` of a Uint8Array copies, and `slice` of a Buffer returns a view.
    const { buffer, byteOffset, length } = await readFile(file);
    return new Uint8Array(buffer, byteOffset, length);
  },
  async write(path, pieces) {
    await using file = await open(path, "wx");
    for (const piece of pieces) {
      for (let at = 0; at < piece.length; ) at += (await file.write(piece, at)).bytesWritten;
    }
    await file.sync();
  },
  async syncFolder(path) {
    await using folder = await open(path, "r");
    await folder.sync();
  },
  // The system's rename silently replaces a file or an empty folder. It fails if `to` is a folder with files, and every checkpoint has files.
  rename,
  remove: (path) => rm(path, { recursive: true, force: true }),
};

/**
 * Writes a pending file beside `path`, then renames the pending file to `path`. Until then an earlier file at `path` stays. An error leaves no
 * pending file; a kill leaves `PATH.RANDOM.writing`.
 *
 * @param write  writes the file `pending`, whose name no other writer uses
 */
export async function writeWhole(path: string, write: (pending: string) => unknown): Promise<void> {
  // `resolve` removes a slash at the end of the path. Otherwise the pending name would lie inside the folder `path`.
  const pending = `${resolve(path)}.${crypto.randomUUID().slice(0, 8)}.writing`;
  try {
    await write(pending);
    renameSync(pending, path);
  } catch (error) {
    rmSync(pending, { recursive: true, force: true });
    throw error;
  }
}

export type Append = (file: string, text: string) => void;

/** Adds text to a file of results. @throws {Error} if the text cannot be written whole; then the file is unchanged */
export function appendWhole(file: string, text: string, append: Append = appendFileSync): void {
  const { size } = statSync(file);
  try {
    append(file, text);
  } catch (error) {
    truncateSync(file, size);
    const isFull = (error as NodeJS.ErrnoException).code === "ENOSPC";
    const advice = isFull ? ". Free disk space, and run the command again" : "";
    throw new Error(`cannot write to ${file}: ${messageOf(error)}; the file is unchanged${advice}`, { cause: error });
  }
}

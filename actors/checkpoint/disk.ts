/** The few things a checkpoint asks of a disk, so that a test can break each of them. Paths are as node:fs takes them. */
import { mkdir, open, readdir, readFile, rename, rm } from "node:fs/promises";

export interface Disk {
  /** Names in a folder; none if there is no such folder. */
  list(folder: string): Promise<string[]>;
  /** With the folders above it; nothing if it is there. */
  makeFolder(folder: string): Promise<void>;
  read(file: string): Promise<Uint8Array>;
  /** A new file of these pieces, whole, and on the disk when this resolves. A piece is asked for when those before are written. */
  write(file: string, pieces: Iterable<Uint8Array>): Promise<void>;
  /** Names made or changed in this folder are on the disk when this resolves. */
  syncFolder(folder: string): Promise<void>;
  /** Refused if there is something at `to`. */
  rename(from: string, to: string): Promise<void>;
  /** A file or a folder with all that is in it; nothing if it is not there. */
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
    // A Buffer's `slice` is a view and not a copy, so it is not passed off as a plain array.
    const { buffer, byteOffset, length } = await readFile(file);
    return new Uint8Array(buffer, byteOffset, length);
  },
  async write(path, pieces) {
    const file = await open(path, "wx");
    try {
      for (const piece of pieces) {
        for (let at = 0; at < piece.length; ) at += (await file.write(piece, at)).bytesWritten;
      }
      await file.sync();
    } finally {
      await file.close();
    }
  },
  async syncFolder(path) {
    const folder = await open(path, "r");
    try {
      await folder.sync();
    } finally {
      await folder.close();
    }
  },
  // The system would replace an empty folder without a word; a checkpoint is never empty.
  rename,
  remove: (path) => rm(path, { recursive: true, force: true }),
};

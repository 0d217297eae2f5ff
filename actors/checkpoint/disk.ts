/** The disk operations that checkpoints use. Tests and simulations replace them. */
import { mkdir, open, readdir, readFile, rename, rm } from "node:fs/promises";

export interface Disk {
  /** Names in a folder; empty if the folder is missing. */
  list(folder: string): Promise<string[]>;
  /** Makes parent folders too. An existing folder is no error. */
  makeFolder(folder: string): Promise<void>;
  read(file: string): Promise<Uint8Array>;
  /** Writes a new file, synced to the disk when the promise resolves. Asks for the next piece only after the one before is written. */
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
    // `slice` of a Buffer is a view and `slice` of a Uint8Array a copy, so return a real Uint8Array.
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
  // The system would replace an empty folder, or a file by a file, silently; a checkpoint is a folder with files in it.
  rename,
  remove: (path) => rm(path, { recursive: true, force: true }),
};

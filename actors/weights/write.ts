/**
 * Writes bytes, whole or not at all, to a file that other processes of this host can map. Computes the sha256 and the seal (seal.ts) of
 * the bytes while it writes.
 *
 * - On Linux a file needs no name: other processes open it through this process's descriptor. The system frees the file when this process
 *   has ended and no other process maps it. A file with a name stays after a crash; the next learner deletes those in shared memory whose
 *   owner is known to be dead (files.ts).
 */
import { closeSync, openSync, renameSync, rmSync, statSync, write } from "node:fs";
import { promisify } from "node:util";
import { unfinished } from "./files.ts";
import { type Seal, Sealer } from "./seal.ts";

/** What a file holds. */
export interface Written {
  /** sha256 in hex. */
  readonly digest: string;
  readonly seal: Seal;
}

export interface WrittenFile extends Written {
  readonly path: string;
  /** Mappings of the file stay valid. */
  remove(): void;
}

/** Bytes hashed at a time. */
const CHUNK_BYTES = 8 * 2 ** 20;

/** O_TMPFILE (with O_DIRECTORY) and O_RDWR, as Linux has them on the architectures that Bun runs on: open(2). */
const NAMELESS = (process.arch === "arm64" ? 0o20040000 : 0o20200000) | 2;

/** True if this folder's file system has files without a name, and /proc gives other processes a path to them. */
export function canBeNameless(folder: string): boolean {
  if (process.platform !== "linux") return false;
  try {
    const file = openSync(folder, NAMELESS, 0o600);
    try {
      return statSync(pathOf(file)).size === 0;
    } finally {
      closeSync(file);
    }
  } catch {
    return false;
  }
}

/** A file that ends with this process. On an error, nothing is left. */
export async function writeNameless(folder: string, bytes: Uint8Array): Promise<WrittenFile> {
  const file = openSync(folder, NAMELESS, 0o600);
  try {
    const written = await writeAndHash(file, bytes);
    return { ...written, path: pathOf(file), remove: () => closeSync(file) };
  } catch (error) {
    closeSync(file);
    throw error;
  }
}

/** A file of this name. On an error, nothing is left. */
export async function writeNamed(path: string, bytes: Uint8Array): Promise<Written> {
  const part = unfinished(path);
  try {
    const file = openSync(part, "wx", 0o600);
    let written: Written;
    try {
      written = await writeAndHash(file, bytes);
    } finally {
      closeSync(file);
    }
    renameSync(part, path);
    return written;
  } catch (error) {
    rmSync(part, { force: true });
    throw error;
  }
}

const pathOf = (file: number): string => `/proc/${process.pid}/fd/${file}`;

/** The system writes in another thread while this one hashes. Between chunks, other work of this thread has its turn. */
async function writeAndHash(file: number, bytes: Uint8Array): Promise<Written> {
  const writing = writeAll(file, bytes);
  const hasher = new Bun.CryptoHasher("sha256");
  const sealer = new Sealer();
  for (let at = 0; at < bytes.length; at += CHUNK_BYTES) {
    // Throws here if writing has already failed; does not wait for it otherwise.
    if (at > 0) await Promise.all([nextTurn(), Promise.race([writing, null])]);
    const part = bytes.subarray(at, at + CHUNK_BYTES);
    hasher.update(part);
    sealer.update(part);
  }
  await writing;
  return { digest: hasher.digest("hex"), seal: sealer.seal() };
}

const nextTurn = () => new Promise<void>((resume) => setImmediate(resume));

async function writeAll(file: number, bytes: Uint8Array): Promise<void> {
  let at = 0;
  while (at < bytes.length) at += (await writeSome(file, bytes, at)).bytesWritten;
}

const writeSome = promisify(write);

/**
 * Bytes into a file that other processes of this host can map, whole or not at all; hashed and sealed meanwhile.
 *
 * - On Linux the file has no name: it is reached through the process that has it open, and the system frees it when that process
 *   ends, however it ends. Elsewhere it has one, and what a dead learner left is swept by the next: see files.ts.
 * - Only the bytes are written by another thread, beside the hashing here: the rest takes microseconds in shared memory, less than a
 *   way to that thread and back.
 */
import { closeSync, openSync, renameSync, rmSync, statfsSync, statSync, unlinkSync, write } from "node:fs";
import { promisify } from "node:util";
import { unfinished } from "./files.ts";
import { newKey, type Seal, Sealer } from "./seal.ts";

/** What a file holds. */
export interface Written {
  /** sha256 in hex. */
  readonly digest: string;
  readonly seal: Seal;
}

export interface WrittenFile extends Written {
  readonly path: string;
  /** Who has mapped it keeps it. */
  remove(): void;
}

/** Bytes that are hashed at a time. */
const CHUNK_BYTES = 8 * 2 ** 20;

/** Zeros written at a time. */
const ZEROS_BYTES = 2 ** 20;

/** O_TMPFILE (with O_DIRECTORY) and O_RDWR, as Linux has them on the architectures that Bun runs on: open(2). */
const NAMELESS = (process.arch === "arm64" ? 0o20040000 : 0o20200000) | 2;

/** TMPFS_MAGIC of statfs(2). */
const TMPFS = 0x01021994;

/** Whether files without a name can be had in this folder, and reached by others. */
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
    // An old file system, or no /proc.
    return false;
  }
}

/**
 * A file that ends with this process. On an error, nothing is left.
 *
 * @param there  called when the bytes are, if they are not hashed by then; with where that is, and the key of their seal
 */
export async function writeNameless(
  folder: string,
  bytes: Uint8Array,
  there: (path: string, key: string) => void,
): Promise<WrittenFile> {
  const file = openSync(folder, NAMELESS, 0o600);
  try {
    const [path, key] = [pathOf(file), newKey()];
    let hashing = true;
    const writing = writeAll(file, bytes).then(() => {
      if (hashing) there(path, key);
    });
    const written = await hashed(bytes, key, writing);
    hashing = false;
    await writing;
    return { ...written, path, remove: () => closeSync(file) };
  } catch (error) {
    closeSync(file);
    throw error;
  }
}

/** A file without a name for bytes to come. Its memory is there, and mapped, so that filling it is no more than a copy. */
export interface Blank {
  readonly path: string;
  /** Of the seal that its bytes will get. */
  readonly key: string;
  /** What the file holds: a shared mapping. */
  readonly bytes: Uint8Array;
  remove(): void;
}

/** Whether files of this folder are memory. Storing to a mapping of any other may find its disk full, which ends the process. */
export const canBeBlank = (folder: string): boolean => canBeNameless(folder) && statfsSync(folder).type === TMPFS;

/** All zeros. On an error, nothing is left. */
export async function makeBlank(folder: string, byteLength: number): Promise<Blank> {
  const file = openSync(folder, NAMELESS, 0o600);
  try {
    // Written, as a lack of memory is an error here, and would end the process when it is met while storing.
    const zeros = new Uint8Array(Math.min(byteLength, ZEROS_BYTES));
    for (let left = byteLength; left > 0; left -= zeros.length) await writeAll(file, zeros.subarray(0, left));
    const path = pathOf(file);
    // Stored to once, so that the system has mapped every page.
    const bytes = Bun.mmap(path, { shared: true }).fill(0);
    return { path, key: newKey(), bytes, remove: () => closeSync(file) };
  } catch (error) {
    closeSync(file);
    throw error;
  }
}

/**
 * Bytes into a blank of as many, which from then on never changes. On an error, nothing is left.
 *
 * @param there  called when they are, before they are hashed
 */
export async function fillBlank({ path, key, bytes, remove }: Blank, given: Uint8Array, there: () => void) {
  try {
    bytes.set(given);
    there();
    return { ...(await hashed(given, key)), path, remove };
  } catch (error) {
    remove();
    throw error;
  }
}

/** A file of this name. On an error, none is left. */
export async function writeNamed(path: string, bytes: Uint8Array): Promise<Written> {
  const part = unfinished(path);
  try {
    const file = openSync(part, "wx", 0o600);
    let written: Written;
    try {
      const writing = writeAll(file, bytes);
      written = await hashed(bytes, newKey(), writing);
      await writing;
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

export function unlinkQuietly(path: string): void {
  try {
    unlinkSync(path);
  } catch (error) {
    // Somebody tidied up before us.
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
  }
}

const pathOf = (file: number): string => `/proc/${process.pid}/fd/${file}`;

/**
 * Other work of this thread has its turns meanwhile.
 *
 * @param beside  what happens beside it: if that fails, so does this
 */
async function hashed(bytes: Uint8Array, key: string, beside: Promise<void> | null = null): Promise<Written> {
  const hasher = new Bun.CryptoHasher("sha256");
  const sealer = new Sealer(key);
  for (let at = 0; at < bytes.length; at += CHUNK_BYTES) {
    if (at > 0) await Promise.all([turn(), Promise.race([beside, null])]);
    const part = bytes.subarray(at, at + CHUNK_BYTES);
    hasher.update(part);
    sealer.update(part);
  }
  return { digest: hasher.digest("hex"), seal: sealer.seal() };
}

const turn = () => new Promise<void>((resume) => setImmediate(resume));

async function writeAll(file: number, bytes: Uint8Array): Promise<void> {
  let at = 0;
  while (at < bytes.length) at += (await writeSome(file, bytes, at)).bytesWritten;
}

const writeSome = promisify(write);

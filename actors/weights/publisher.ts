/**
 * The learner's side of weights: a file per version that other processes of this host map, identified by version and sha256.
 * A seal (seal.ts) lets samplers prove what they mapped without computing the sha256 again.
 * Knows no layers of networks: a policy is one array of numbers here.
 *
 * - A file is complete before its digest is announced, and never changes afterwards.
 * - A file may be unlinked while it is mapped; the mapping stays valid.
 * - Versions of one publisher only grow.
 */
import { closeSync, openSync, renameSync, rmSync, statSync, write } from "node:fs";
import { promisify } from "node:util";
import { messageOf, WeightsError } from "../errors.ts";
import type { Messages } from "../protocol.ts";
import { thisProcess, unfinished, weightsPath } from "./files.ts";
import { roundToHalf } from "./half.ts";
import { type Seal, Sealer } from "./seal.ts";

/** Newest versions kept: the one before the newest may still be loading somewhere. */
const KEPT = 2;

/** Where a version is, and its digest: the message that samplers get. */
export type Published = Messages["weights"];

export interface PublisherOptions {
  /** Shared memory or its substitute: see `weightsFolder`. */
  readonly folder: string;
  /** Used from the moment `folder` is full. Without it, a full folder is an error. */
  readonly spareFolder?: string;
  readonly run: string;
  /** Rounds published values to half precision, so that they can be sent in half as many bytes. */
  readonly half?: boolean;
  /** Uses files without a name if the system has them: the system removes such a file when this process ends. Default false. */
  readonly nameless?: boolean;
  /** Writes a file with a name, whole or not at all. */
  readonly write?: (path: string, bytes: Uint8Array) => Promise<Written>;
  readonly notice?: (text: string) => void;
}

export interface PublishedFile {
  readonly path: string;
  /** Every value fits half precision. */
  readonly half: boolean;
  readonly message: Published;
  remove(): void;
}

export class WeightsPublisher {
  readonly #options: PublisherOptions;
  readonly #owner = thisProcess();
  #folder: string;
  /** By version, oldest first. */
  readonly #files = new Map<number, PublishedFile>();
  #newest = -1;
  #busy = false;
  #closed = false;

  constructor(options: PublisherOptions) {
    this.#options = options;
    this.#folder = options.folder;
  }

  /** undefined if this version is not kept. */
  file(version: number): PublishedFile | undefined {
    return this.#files.get(version);
  }

  /**
   * Makes a version that can be loaded. `values` must not change until this resolves.
   *
   * @throws {RangeError} if `version` is not newer than the last.
   * @throws {WeightsError} if it cannot be written; then nothing of it is left.
   */
  async publish(version: number, values: Float32Array): Promise<Published> {
    if (this.#closed) throw new Error(`cannot publish version ${version}: the publisher is closed`);
    if (this.#busy) throw new Error(`cannot publish version ${version} while another one is being published`);
    if (!Number.isSafeInteger(version) || version <= this.#newest) {
      throw new RangeError(`cannot publish version ${version}: the last was ${this.#newest}, and versions only grow`);
    }
    this.#busy = true;
    try {
      const published = this.#options.half ? roundToHalf(values) : values;
      const bytes = new Uint8Array(published.buffer, published.byteOffset, published.byteLength);
      const file = await this.#write(version, bytes);
      this.#files.set(version, file);
      this.#newest = version;
      // Removes this file too if the publisher was closed meanwhile.
      this.#prune();
      return file.message;
    } finally {
      this.#busy = false;
    }
  }

  /** Unlinks all files. Mappings of them stay valid. */
  close(): void {
    this.#closed = true;
    this.#prune();
  }

  #prune(): void {
    const versions = [...this.#files.keys()];
    const newest = new Set(versions.slice(-KEPT));
    for (const version of versions) {
      if (!this.#closed && newest.has(version)) continue;
      this.#files.get(version)!.remove();
      this.#files.delete(version);
    }
  }

  async #write(version: number, bytes: Uint8Array): Promise<PublishedFile> {
    const { run, spareFolder, notice, half = false, nameless = false, write = writeNamed } = this.#options;
    const named = weightsPath(this.#folder, run, this.#owner, version);
    try {
      const { digest, seal, path, remove } =
        nameless && canBeNameless(this.#folder)
          ? await writeNameless(this.#folder, bytes)
          : { ...(await write(named, bytes)), path: named, remove: () => rmSync(named, { force: true }) };
      const location = { kind: "shared", path, byteOffset: 0, seal } as const;
      return {
        path,
        half,
        remove,
        message: { type: "weights", version, digest, byteLength: bytes.length, location },
      };
    } catch (error) {
      const full = (error as NodeJS.ErrnoException).code === "ENOSPC";
      if (!full || spareFolder === undefined || this.#folder === spareFolder) {
        const where = nameless ? this.#folder : named;
        throw new WeightsError(
          `cannot write version ${version}, ${bytes.length} bytes, to ${where}: ${messageOf(error)}`,
        );
      }
      notice?.(
        `${this.#folder} has no room for ${bytes.length} bytes of weights; from now on they go to ${spareFolder}`,
      );
      this.#folder = spareFolder;
      return this.#write(version, bytes);
    }
  }
}

interface Written {
  /** sha256 in hex. */
  readonly digest: string;
  readonly seal: Seal;
}

interface WrittenFile extends Written {
  readonly path: string;
  /** Mappings of the file stay valid. */
  remove(): void;
}

/** Bytes hashed at a time. */
const CHUNK_BYTES = 8 * 2 ** 20;

/** O_TMPFILE (with O_DIRECTORY) and O_RDWR, as Linux has them on the architectures that Bun runs on: open(2). */
const NAMELESS = (process.arch === "arm64" ? 0o20040000 : 0o20200000) | 2;

/** True if this folder's file system has files without a name, and /proc gives other processes a path to them. */
function canBeNameless(folder: string): boolean {
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

/**
 * Writes bytes, whole or not at all, to a file that other processes of this host can map. On Linux a file needs no name: other processes
 * open it through this process's descriptor. The system frees the file when this process has ended and no other process maps it. A file
 * with a name stays after a crash; the next learner deletes those in shared memory whose owner is known to be dead (files.ts).
 */
async function writeNameless(folder: string, bytes: Uint8Array): Promise<WrittenFile> {
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
async function writeNamed(path: string, bytes: Uint8Array): Promise<Written> {
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

/**
 * Publishes the learner's weights: one file for each version, which other processes of this host map. Version and sha256 identify the weights.
 * With a seal (seal.ts), samplers check the bytes that they mapped and need not compute the sha256 again.
 * This file knows no layers of networks: a policy is one array of numbers here.
 *
 * - A file is complete before `publish` returns its digest, and never changes after that.
 * - The publisher may remove a file while a process maps it; the mapping stays valid.
 * - The versions of one publisher only grow.
 */
import { closeSync, openSync, renameSync, rmSync, statSync, write } from "node:fs";
import { promisify } from "node:util";
import { nextTurn } from "../clock.ts";
import { messageOf, WeightsError } from "../errors.ts";
import type { Messages } from "../protocol.ts";
import { thisProcess, unfinished, weightsPath } from "./files.ts";
import { roundToHalf } from "./half.ts";
import { type Seal, Sealer } from "./seal.ts";

/** Number of newest versions to keep. A sampler may still be loading the version before the newest. */
const KEPT = 2;

/** The message that samplers get: where a version is, and its digest. */
export type Published = Messages["weights"];

export interface PublisherOptions {
  /** The result of `weightsFolder`: shared memory, or the run's folder. */
  readonly folder: string;
  /** The publisher writes here once `folder` is full. Left out: a full `folder` is an error. */
  readonly spareFolder?: string;
  readonly run: string;
  /** True: rounds published values to half precision, so that HTTP can send them in half as many bytes. */
  readonly half?: boolean;
  /** True: writes files without a name, if the system has such files. The system frees them after this process's end. Default false. */
  readonly nameless?: boolean;
  /** Writes a file with a name. On an error it leaves no file. */
  readonly write?: (path: string, bytes: Uint8Array) => Promise<Written>;
  readonly notice?: (text: string) => void;
}

export interface PublishedFile {
  readonly path: string;
  /** True if half precision holds every value exactly. */
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

  /** The file of a version; undefined if the publisher does not keep it. */
  file(version: number): PublishedFile | undefined {
    return this.#files.get(version);
  }

  /**
   * Writes a version that samplers can load. `values` must not change until the promise resolves.
   *
   * @throws {RangeError} if `version` is not newer than the last version, or if a value is too large for half precision.
   * @throws {WeightsError} if the file cannot be written; then no part of the file is left.
   * @throws {Error} if the publisher is closed, or if an earlier call still writes.
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
      // If the publisher was closed during the write, this removes the new file too.
      this.#prune();
      return file.message;
    } finally {
      this.#busy = false;
    }
  }

  /** Removes all files. Existing mappings of the files stay valid. */
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
        `${this.#folder} has no room for ${bytes.length} bytes of weights; from now on weights go to ${spareFolder}`,
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
  /** Removes the file. Existing mappings of the file stay valid. */
  remove(): void;
}

/** Number of bytes hashed without a pause. */
const CHUNK_BYTES = 8 * 2 ** 20;

/** Flags O_TMPFILE (with O_DIRECTORY) and O_RDWR, as Linux defines them on arm64 and x64. Source: open(2). */
const NAMELESS = (process.arch === "arm64" ? 0o20040000 : 0o20200000) | 2;

/** True if this folder's file system supports files without a name, and /proc gives a path to them. */
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
 * Writes all bytes to a file without a name, or leaves no file. Other processes of this host open the file through this process's descriptor
 * and map it. The system frees the file when this process has ended and no other process maps it. A file with a name stays after a crash,
 * until the next learner deletes it from shared memory (files.ts).
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

/** Writes all bytes to a file of this name. On an error it leaves no file. */
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

/** Another thread writes the bytes while this thread hashes them. Between chunks, other work of this thread has its turn. */
async function writeAndHash(file: number, bytes: Uint8Array): Promise<Written> {
  const writing = writeAll(file, bytes);
  const hasher = new Bun.CryptoHasher("sha256");
  const sealer = new Sealer();
  for (let at = 0; at < bytes.length; at += CHUNK_BYTES) {
    // This line throws if the write has already failed. It does not wait for the end of the write.
    if (at > 0) await Promise.all([nextTurn(), Promise.race([writing, null])]);
    const part = bytes.subarray(at, at + CHUNK_BYTES);
    hasher.update(part);
    sealer.update(part);
  }
  await writing;
  return { digest: hasher.digest("hex"), seal: sealer.seal() };
}

async function writeAll(file: number, bytes: Uint8Array): Promise<void> {
  let at = 0;
  while (at < bytes.length) at += (await writeSome(file, bytes, at)).bytesWritten;
}

const writeSome = promisify(write);

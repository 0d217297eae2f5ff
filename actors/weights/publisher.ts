/**
 * Weights from the learner to samplers: bytes in a file that other processes of this host map, named by version and sha256,
 * and sealed (weights/seal.ts), so that a sampler proves what it has mapped without computing the sha256 again.
 * Knows no networks of layers: a policy is one array of numbers here.
 *
 * - A file is complete before anybody is told its digest, and never changes afterwards. It may be unlinked while it is mapped:
 *   who has mapped it keeps it.
 * - Where its bytes will be may be told before: a hint, without which all goes the same way, only later.
 * - Versions of one publisher only grow.
 * - Nothing that was loaded is handed out before its length and digest were checked.
 */
import { describeError } from "../errors.ts";
import type { Messages } from "../protocol.ts";
import { type Download, download, downloading, type Held } from "./download.ts";
import { roundToHalf } from "./encoding.ts";
import { type Owner, thisProcess, weightsPath } from "./files.ts";
import { type MappedAhead, mapped } from "./mapping.ts";
import { isSealed } from "./seal.ts";
import {
  type Blank,
  canBeBlank,
  canBeNameless,
  fillBlank,
  makeBlank,
  unlinkQuietly,
  type Written,
  writeNamed,
  writeNameless,
} from "./write.ts";

export { Acks } from "./acks.ts";
export { downloading, type Held } from "./download.ts";
export { isAlive, sweep, weightsFolder } from "./files.ts";
export { overHttp, type ServedFile, serveFile, serveWeights } from "./http.ts";
export { MappedAhead } from "./mapping.ts";

/** Where a version is and what it must be: the message that samplers are told. */
export type Published = Messages["weights"];

/** Where the bytes of the next version will be, if nothing comes between. */
export type Prepared = Messages["weights.next"];

/** Nothing is prepared for versions of more bytes: it would take more memory than it saves time. */
const PREPARED_BYTES_MAX = 64 * 2 ** 20;

export interface PublisherOptions {
  /** Shared memory, or what stands in for it: see `weightsFolder`. */
  readonly folder: string;
  /** Taken, for good, when `folder` is full; left out: being full is an error. */
  readonly spareFolder?: string;
  readonly run: string;
  /** Newest versions kept; at least 1. The one before the newest may still be loading somewhere. */
  readonly keep?: number;
  readonly owner?: Owner;
  /** Round to half precision what is published, so that it can be sent in half as many bytes. */
  readonly half?: boolean;
  /** Files without a name, if there can be any: none outlives this process. Default: with one. */
  readonly nameless?: boolean;
  /** Makes a file with a name, whole or not at all. */
  readonly write?: (path: string, bytes: Uint8Array) => Promise<Written>;
  /** Something a person should know. */
  readonly notice?: (text: string) => void;
}

export interface File {
  readonly path: string;
  /** Every value fits half precision. */
  readonly half: boolean;
  readonly message: Published;
  remove(): void;
}

export class WeightsPublisher {
  readonly #options: PublisherOptions;
  readonly #keep: number;
  readonly #owner: Owner;
  #folder: string;
  /** By version, oldest first. */
  readonly #files = new Map<number, File>();
  #newest = -1;
  /** For the next version. */
  #blank: Blank | null = null;
  #preparing = false;
  #busy = false;
  #closed = false;

  /** @throws {RangeError} if `keep` is not an integer of at least 1. */
  constructor(options: PublisherOptions) {
    const { keep = 2, owner = thisProcess() } = options;
    if (!Number.isInteger(keep) || keep < 1) throw new RangeError(`keep must be an integer of at least 1, got ${keep}`);
    this.#options = options;
    this.#keep = keep;
    this.#owner = owner;
    this.#folder = options.folder;
  }

  /** Of a version that is kept. */
  file(version: number): File | undefined {
    return this.#files.get(version);
  }

  /**
   * Make a version that can be loaded. `values` must not change until this resolves.
   *
   * @param there  told where the bytes are, if they are there before they are hashed: samplers can prove them meanwhile
   * @throws {RangeError} if `version` is not newer than the last.
   * @throws {WeightsError} if it cannot be written; then nothing of it is left.
   */
  async publish(
    version: number,
    values: Float32Array,
    there: (prepared: Prepared) => void = () => {},
  ): Promise<Published> {
    if (this.#closed) throw new Error(`cannot publish version ${version}: the publisher is closed`);
    if (this.#busy) throw new Error(`cannot publish version ${version} while another one is being published`);
    if (!Number.isSafeInteger(version) || version <= this.#newest) {
      throw new RangeError(`cannot publish version ${version}: the last was ${this.#newest}, and versions only grow`);
    }
    this.#busy = true;
    try {
      const given = this.#options.half ? roundToHalf(values) : values;
      const file = await this.#write(version, new Uint8Array(given.buffer, given.byteOffset, given.byteLength), there);
      this.#files.set(version, file);
      this.#newest = version;
      // Closed meanwhile: then this one goes too.
      this.#prune();
      return file.message;
    } finally {
      this.#busy = false;
    }
  }

  /**
   * Have memory for another version as large as the last, so that publishing it is a copy and a hash. To be called when there is time.
   *
   * @returns where it is, for samplers to map; null if there is none, and publishing takes as long as it does without.
   */
  async prepare(): Promise<Prepared | null> {
    const byteLength = this.#files.get(this.#newest)?.message.byteLength ?? 0;
    if (this.#preparing || this.#closed || byteLength === 0 || byteLength > PREPARED_BYTES_MAX) return null;
    if (!this.#options.nameless || !canBeBlank(this.#folder)) return null;
    this.#preparing = true;
    try {
      this.#blank ??= await makeBlank(this.#folder, byteLength);
    } catch (error) {
      // What the system refused now, it may grant when the version is written; if not, that is told.
      if (error instanceof Error && "code" in error) return null;
      throw error;
    } finally {
      this.#preparing = false;
    }
    if (this.#closed) this.#takeBlank(0);
    return this.#blank && whereIs(this.#blank);
  }

  /** Unlink everything. What others have mapped stays theirs. */
  close(): void {
    this.#closed = true;
    this.#takeBlank(0);
    this.#prune();
  }

  /** What was prepared, for so many bytes: null if it is for others, which is then gone. */
  #takeBlank(byteLength: number): Blank | null {
    const blank = this.#blank;
    this.#blank = null;
    if (blank?.bytes.length === byteLength) return blank;
    blank?.remove();
    return null;
  }

  #prune(): void {
    const versions = [...this.#files.keys()];
    const newest = new Set(versions.slice(-this.#keep));
    for (const version of versions) {
      if (!this.#closed && newest.has(version)) continue;
      this.#files.get(version)!.remove();
      this.#files.delete(version);
    }
  }

  async #write(version: number, bytes: Uint8Array, there: (prepared: Prepared) => void): Promise<File> {
    const { run, spareFolder, notice, half = false, nameless = false, write = writeNamed } = this.#options;
    const named = weightsPath(this.#folder, run, this.#owner, version);
    try {
      const blank = this.#takeBlank(bytes.length);
      const file =
        blank !== null
          ? await fillBlank(blank, bytes, () => there(whereIs(blank)))
          : nameless && canBeNameless(this.#folder)
            ? await writeNameless(this.#folder, bytes, (path, key) => there(whereIs({ path, bytes, key })))
            : { ...(await write(named, bytes)), path: named, remove: () => unlinkQuietly(named) };
      const { digest, seal, path } = file;
      const location = { kind: "shared", path, byteOffset: 0, seal } as const;
      return {
        path,
        half,
        remove: file.remove,
        message: { type: "weights", version, digest, byteLength: bytes.length, location },
      };
    } catch (error) {
      const full = (error as NodeJS.ErrnoException).code === "ENOSPC";
      if (!full || spareFolder === undefined || this.#folder === spareFolder) {
        throw new WeightsError(
          `cannot write version ${version}, ${bytes.length} bytes, to ${nameless ? this.#folder : named}: ${why(error)}`,
          null,
        );
      }
      notice?.(
        `${this.#folder} has no room for ${bytes.length} bytes of weights; from now on they go to ${spareFolder}`,
      );
      this.#folder = spareFolder;
      return this.#write(version, bytes, there);
    }
  }
}

const whereIs = ({ path, bytes, key }: Omit<Blank, "remove">): Prepared => ({
  type: "weights.next",
  path,
  byteLength: bytes.length,
  key,
});

/**
 * The values of a published version: mapped where the file is on this host, downloaded otherwise.
 *
 * @param expectedLength  values that the policy has
 * @param token           of the run; for downloads
 * @param held            what we hold, if a download may tell only what differs from it
 * @param ahead           what is mapped already
 * @returns the values, which others may have mapped too, and the sha256 of these very bytes, computed or proved by the seal.
 *   Writing to them changes only this copy.
 * @throws {WeightsError} in one line, if they cannot be had, or are not those that were published.
 */
export async function loadWeights(
  message: Published,
  expectedLength: number,
  token = "",
  how: Download = downloading(),
  held: Held | null = null,
  ahead: MappedAhead | null = null,
): Promise<{ values: Float32Array; digest: string }> {
  const { version, byteLength, location } = message;
  const what = `weights of version ${version} from ${location.kind === "shared" ? location.path : location.url}`;
  const refuse = (text: string, digest: string | null = null): never => {
    throw new WeightsError(`cannot load ${what}: ${text}`, digest);
  };
  if (byteLength !== 4 * expectedLength) {
    return refuse(`they are ${byteLength} bytes, and this policy has ${expectedLength} values of 4 bytes`);
  }
  let bytes: Uint8Array<ArrayBuffer>;
  let digest: string;
  try {
    if (location.kind === "shared") {
      ({ bytes, digest } = shared(message, location, ahead));
    } else ({ bytes, digest } = await download(location.url, byteLength, token, how, held));
  } catch (error) {
    return refuse(why(error));
  }
  if (digest !== message.digest) {
    return refuse(`their sha256 is ${digest}, and ${message.digest} was published`, digest);
  }
  return { values: new Float32Array(bytes.buffer, bytes.byteOffset, expectedLength), digest };
}

function shared(
  { byteLength, digest }: Published,
  { path, byteOffset, seal }: Extract<Published["location"], { kind: "shared" }>,
  ahead: MappedAhead | null,
) {
  const proved = byteOffset === 0 ? (ahead?.take(path, byteLength, seal) ?? null) : null;
  if (proved !== null) return { bytes: proved, digest };
  const bytes = mapped(path, byteOffset, byteLength);
  // Bytes that are not those of the seal are worth the time it takes to name them.
  const found = isSealed(bytes, seal) ? digest : new Bun.CryptoHasher("sha256").update(bytes).digest("hex");
  return { bytes, digest: found };
}

/** The system's errors say it all in their message; others are named. */
const why = (error: unknown): string =>
  error instanceof Error && "code" in error ? error.message : describeError(error).replace(/^(Range)?Error: /, "");

/** Weights that cannot be written, had or trusted. */
export class WeightsError extends Error {
  override readonly name = "WeightsError";
  /** sha256 of the bytes that were found, if they were others than published. */
  readonly digest: string | null;

  constructor(message: string, digest: string | null) {
    super(message);
    this.digest = digest;
  }
}

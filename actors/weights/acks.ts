/**
 * Records which sampler holds which version of the weights: compares the digests that the learner published with the digests that samplers
 * report after loading.
 *
 * - A sampler holds a version only after it has reported the published digest of that version.
 * - A sampler that reports another digest, or a version without a known digest, is quarantined until it joins again. A quarantined sampler
 *   holds nothing, and `everyone` does not wait for it.
 * - The version that a sampler holds never decreases while it stays connected: a report of an older version changes nothing.
 */

/** Number of published digests to keep. A sampler that reports a version older than the kept versions is quarantined. */
const PUBLISHED_MAX = 64;

/** The version that a sampler holds; null: the sampler holds none yet. */
type Held = number | null | "quarantined";

interface Wait {
  readonly version: number;
  /** Samplers that have joined, are not quarantined, and do not hold the version yet. */
  readonly missing: Set<string>;
  readonly resolve: () => void;
}

export class Acks {
  /** Digest by version, oldest first. */
  readonly #published = new Map<number, string>();
  readonly #held = new Map<string, Held>();
  #waits: Wait[] = [];
  #holders = 0;

  /** Number of samplers that hold a version. */
  get holders(): number {
    return this.#holders;
  }

  /** Sets the version that samplers should load from now on. @throws {RangeError} if this version is not newer than the last version */
  expect(version: number, digest: string): void {
    const newest = [...this.#published.keys()].at(-1);
    if (newest !== undefined && version <= newest) {
      throw new RangeError(`cannot expect version ${version}: version ${newest} was published, and versions only grow`);
    }
    this.#published.set(version, digest);
    if (this.#published.size > PUBLISHED_MAX) this.#published.delete(this.#published.keys().next().value!);
  }

  /** The published digest of this version; undefined if there is none, or if it is not among the newest `PUBLISHED_MAX`. */
  digestOf(version: number): string | undefined {
    return this.#published.get(version);
  }

  /** Adds a sampler that holds nothing yet, even if it held a version on an earlier connection. */
  join(sampler: string): void {
    this.#set(sampler, null);
  }

  leave(sampler: string): void {
    this.#set(sampler, undefined);
  }

  /** The version that a sampler holds; null if the sampler holds none, is quarantined or has not joined. */
  version(sampler: string): number | null {
    const held = this.#held.get(sampler);
    return typeof held === "number" ? held : null;
  }

  get quarantined(): string[] {
    return [...this.#held].filter(([, held]) => held === "quarantined").map(([sampler]) => sampler);
  }

  /**
   * Records the version and the digest that a sampler reports after loading.
   *
   * @returns false if the sampler has not joined, or is quarantined because of this report or an earlier one.
   */
  loaded(sampler: string, version: number, digest: string): boolean {
    const held = this.#held.get(sampler);
    if (held === undefined || held === "quarantined") return false;
    if (this.#published.get(version) !== digest) {
      this.#set(sampler, "quarantined");
      return false;
    }
    this.#set(sampler, Math.max(held ?? version, version));
    return true;
  }

  /** Resolves when every sampler that has joined and is not quarantined holds this version or a newer one. */
  everyone(version: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const missing = new Set([...this.#held].filter(([, held]) => isMissing(held, version)).map(([sampler]) => sampler));
    if (missing.size === 0) resolve();
    else this.#waits.push({ version, missing, resolve });
    return promise;
  }

  /** @param held  undefined: the sampler has left */
  #set(sampler: string, held: Held | undefined): void {
    if (typeof this.#held.get(sampler) === "number") this.#holders--;
    if (typeof held === "number") this.#holders++;
    if (held === undefined) this.#held.delete(sampler);
    else this.#held.set(sampler, held);
    for (const { version, missing } of this.#waits) {
      if (held !== undefined && isMissing(held, version)) missing.add(sampler);
      else missing.delete(sampler);
    }
    const done = this.#waits.filter(({ missing }) => missing.size === 0);
    if (done.length > 0) this.#waits = this.#waits.filter(({ missing }) => missing.size > 0);
    for (const { resolve } of done) resolve();
  }
}

const isMissing = (held: Held, version: number): boolean => held !== "quarantined" && (held ?? -1) < version;

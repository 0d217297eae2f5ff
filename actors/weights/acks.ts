/**
 * Who holds which weights: what the learner published against what samplers say they loaded.
 *
 * - A sampler holds a version when it named the digest that was published, never because it was sent something.
 * - A sampler that names another digest, or a version that was never published, is quarantined: it holds nothing, and nobody
 *   waits for it, until it joins again.
 * - What a sampler holds never goes back: an older version after a newer one changes nothing.
 */

/** Published digests kept. A sampler that is further behind is as good as one with other bytes. */
const PUBLISHED_MAX = 64;

/** The version that a sampler holds; null: none yet. */
type Held = number | null | "quarantined";

interface Wait {
  readonly version: number;
  /** Samplers that are there, not quarantined, and do not hold it yet. */
  readonly missing: Set<string>;
  readonly resolve: () => void;
}

export class Acks {
  /** Digest by version, oldest first. */
  readonly #published = new Map<number, string>();
  readonly #held = new Map<string, Held>();
  #waits: Wait[] = [];
  #holders = 0;

  /** Samplers that hold some version. */
  get holders(): number {
    return this.#holders;
  }

  /** From now on this is what samplers should load. @throws {RangeError} if it is not newer than the last. */
  expect(version: number, digest: string): void {
    const newest = [...this.#published.keys()].at(-1);
    if (newest !== undefined && version <= newest) {
      throw new RangeError(`cannot expect version ${version}: version ${newest} was published, and versions only grow`);
    }
    this.#published.set(version, digest);
    if (this.#published.size > PUBLISHED_MAX) this.#published.delete(this.#published.keys().next().value!);
  }

  /** What was published as this version; undefined if nothing was, or too long ago. */
  digestOf(version: number): string | undefined {
    return this.#published.get(version);
  }

  /** A sampler is there. Whatever it held on an earlier connection is forgotten. */
  join(sampler: string): void {
    this.#set(sampler, null);
  }

  leave(sampler: string): void {
    this.#set(sampler, undefined);
  }

  /** The version a sampler holds; null if none that we know, or if it is quarantined or not there. */
  version(sampler: string): number | null {
    const held = this.#held.get(sampler);
    return typeof held === "number" ? held : null;
  }

  get quarantined(): string[] {
    return [...this.#held].filter(([, held]) => held === "quarantined").map(([sampler]) => sampler);
  }

  /**
   * A sampler says what it has loaded.
   *
   * @returns false if that was never published: then it is quarantined, as it is if it was already.
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

  /** Resolves when every sampler that is there, and not quarantined, holds this version or a newer one: at once if none is. */
  everyone(version: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const missing = new Set([...this.#held].filter(([, held]) => isMissing(held, version)).map(([sampler]) => sampler));
    if (missing.size === 0) resolve();
    else this.#waits.push({ version, missing, resolve });
    return promise;
  }

  /** @param held  undefined: it is gone */
  #set(sampler: string, held: Held | undefined): void {
    const before = this.#held.get(sampler);
    this.#holders += Number(typeof held === "number") - Number(typeof before === "number");
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

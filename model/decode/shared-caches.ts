/**
 * The caches of many sequences. Sequences whose tokens are equal so far share one cache, so the decoder computes their common tokens once. The
 * episodes of a group begin with equal prompts, and often continue with equal replies.
 *
 * - Each sequence has a length of its own in its cache. Sequences that add the same tokens at the same length extend a cache together.
 * - One such group of sequences extends a cache in place, if no other sequence of the cache is longer. Each other group first gets a copy
 *   of its tokens in another cache.
 * - A cache remembers the logits of its last append. A sequence that adds the same tokens later takes these logits without a computation.
 * - A token's logits depend only on its own sequence (decoder.ts), so sharing changes no bit of a result.
 * - If an engine's caches are in a device's memory, the host cannot copy them, so each sequence has a cache of its own.
 */
import { stepRows } from "./batches.ts";
import type { Decoder } from "./decoder.ts";

interface Cache {
  slot: number;
  readonly members: Set<CachedSequence>;
  append: Append | null;
}

/** The last append to a cache. */
interface Append {
  /** Number of tokens in the cache before this append. */
  readonly from: number;
  readonly tokens: readonly number[];
  /** (V) logits after the last token. */
  readonly logits: Float32Array;
  /** The decoder's `parametersSet` at the append. */
  readonly parameters: number;
}

export interface CachedSequence {
  /** null before the first append. */
  cache: Cache | null;
  /** Number of tokens in the cache. */
  length: number;
  /** True if a failure emptied the cache that this sequence shared. */
  lost: boolean;
}

/** Sequences that add the same tokens to the same cache at the same length. */
interface Group {
  readonly cache: Cache | null;
  readonly length: number;
  readonly tokens: readonly number[];
  readonly members: CachedSequence[];
}

/** True if no other sequence of the cache is longer than those of the group. */
function isLongest({ length, members }: Group, cache: Cache): boolean {
  for (const one of cache.members) if (one.length > length && !members.includes(one)) return false;
  return true;
}

export class SharedCaches {
  readonly #decoder: Decoder;
  readonly #vocabulary: number;
  /** By slot; null where a slot is free. There are at least as many slots as sequences. */
  readonly #slots: (Cache | null)[];

  constructor(decoder: Decoder, vocabulary: number, slots: number) {
    this.#decoder = decoder;
    this.#vocabulary = vocabulary;
    this.#slots = new Array<null>(slots).fill(null);
  }

  open(): CachedSequence {
    return { cache: null, length: 0, lost: false };
  }

  close(sequence: CachedSequence): void {
    const { cache } = sequence;
    sequence.cache = null;
    sequence.length = 0;
    if (cache === null) return;
    cache.members.delete(sequence);
    if (cache.members.size > 0) return;
    this.#decoder.clear(cache.slot);
    this.#slots[cache.slot] = null;
  }

  /** Empties the cache of a failed sequence, because the cache may hold numbers that are not finite. The cache's other sequences are lost. */
  fail(sequence: CachedSequence): void {
    const { cache } = sequence;
    sequence.lost = false;
    if (cache === null) return;
    this.#decoder.wipe(cache.slot);
    for (const member of cache.members) {
      member.lost = member !== sequence;
      this.close(member);
    }
  }

  /**
   * Appends `tokens[i]` to `sequences[i]`.
   *
   * @returns (n, V) logits after the last token of each sequence
   */
  async append(sequences: readonly CachedSequence[], tokens: readonly (readonly number[])[]): Promise<Float32Array> {
    const all = new Float32Array(sequences.length * this.#vocabulary);
    const places = new Map(sequences.map((sequence, index) => [sequence, index * this.#vocabulary]));
    const end = ({ members, length, tokens }: Group, cache: Cache) => {
      for (const member of members) {
        this.#move(member, cache, length + tokens.length);
        all.set(cache.append!.logits, places.get(member));
      }
    };
    const computed: Group[] = [];
    // Do this before `#claim`. `end` makes sequences longer, and `#claim` does not cut a cache in which another sequence is longer.
    for (const group of this.#groups(sequences, tokens)) {
      const cache = this.#remembered(group);
      if (cache === null) computed.push(group);
      else end(group, cache);
    }
    const caches = this.#claim(computed);
    const logits = await this.#decoder.append(
      caches.map(({ slot }) => slot),
      computed.map((group) => group.tokens),
    );
    for (const [row, group] of computed.entries()) {
      const cache = caches[row]!;
      cache.append = {
        from: group.length,
        tokens: group.tokens,
        logits: logits.slice(row * this.#vocabulary, (row + 1) * this.#vocabulary),
        parameters: this.#decoder.parametersSet,
      };
      end(group, cache);
    }
    return all;
  }

  /**
   * Appends one token to each sequence.
   *
   * @returns logits, which the next call overwrites, and the place of each sequence's first logit
   */
  async step(sequences: readonly CachedSequence[], tokens: readonly number[]) {
    const groups = this.#groups(
      sequences,
      tokens.map((token) => [token]),
    );
    const caches = this.#claim(groups);
    this.#moveToFront(caches);
    const { logits, places } = await this.#decoder.step(
      caches.map(({ slot }) => slot),
      groups.map((group) => group.tokens[0]!),
    );
    const placesBySlot = new Int32Array(this.#slots.length);
    for (const [i, { slot }] of caches.entries()) placesBySlot[slot] = places[i]!;
    for (const [i, { members, length }] of groups.entries())
      for (const member of members) this.#move(member, caches[i]!, length + 1);
    return { logits, places: sequences.map(({ cache }) => placesBySlot[cache!.slot]!) };
  }

  #groups(sequences: readonly CachedSequence[], tokens: readonly (readonly number[])[]): Group[] {
    const groups: Group[] = [];
    const shared = new Map<Cache | null, Map<string, Group>>();
    for (const [i, sequence] of sequences.entries()) {
      const { cache, length } = sequence;
      const group: Group = { cache, length, tokens: tokens[i]!, members: [] };
      // Most sequences have a cache of their own, and need no key.
      const isAlone = cache === null ? !this.#decoder.canMove : cache.members.size === 1;
      const ofCache = isAlone ? null : shared.getOrInsertComputed(cache, () => new Map());
      const key = isAlone ? "" : `${length}: ${group.tokens.join()}`;
      const joined = ofCache?.get(key) ?? group;
      joined.members.push(sequence);
      if (joined !== group) continue;
      groups.push(group);
      ofCache?.set(key, group);
    }
    return groups;
  }

  /** A cache whose last append added the same tokens at the same length; null if there is none. */
  #remembered({ cache, length, tokens }: Group): Cache | null {
    if (!this.#decoder.canMove) return null;
    const candidates = cache === null ? this.#slots : [cache];
    const found = candidates.find((candidate) => {
      const append = candidate?.append ?? null;
      if (append?.from !== length || append.parameters !== this.#decoder.parametersSet) return false;
      return append.tokens.length === tokens.length && append.tokens.every((token, i) => token === tokens[i]);
    });
    return found ?? null;
  }

  /** The cache that each group extends: a new one, its cache, or a copy if the group may not extend its cache in place. */
  #claim(groups: readonly Group[]): Cache[] {
    const claimed = new Set<Cache>();
    return groups.map((group) => {
      const { cache, length, members } = group;
      const isFree =
        cache !== null && (members.length === cache.members.size || (!claimed.has(cache) && isLongest(group, cache)));
      if (isFree) {
        claimed.add(cache);
        this.#decoder.truncate(cache.slot, length);
        // A sequence that no longer uses the cache, or that was cut, made this append.
        if (cache.append !== null && length < cache.append.from + cache.append.tokens.length) cache.append = null;
        return cache;
      }
      const own = this.#newCache();
      if (cache !== null) this.#decoder.copy(cache.slot, own.slot, length);
      for (const member of members) this.#move(member, own, length);
      return own;
    });
  }

  /** @throws {RangeError} if all slots are taken */
  #newCache(): Cache {
    const slot = this.#slots.indexOf(null);
    if (slot < 0) throw new RangeError(`all ${this.#slots.length} slots are taken`);
    const cache: Cache = { slot, members: new Set(), append: null };
    this.#slots[slot] = cache;
    return cache;
  }

  #move(sequence: CachedSequence, cache: Cache, length: number): void {
    if (sequence.cache !== cache) {
      this.close(sequence);
      sequence.cache = cache;
      cache.members.add(sequence);
    }
    sequence.length = length;
  }

  /** Gives these caches the first slots if a step then computes fewer rows. */
  #moveToFront(caches: readonly Cache[]): void {
    if (!this.#decoder.canMove || !this.#decoder.stepsFirstSlots) return;
    const last = Math.max(...caches.map(({ slot }) => slot));
    if (stepRows(last + 1) === stepRows(caches.length)) return;
    const stays = new Set(caches.map(({ slot }) => slot));
    let to = 0;
    for (const cache of caches.filter(({ slot }) => slot >= caches.length)) {
      while (stays.has(to)) to++;
      this.#swap(cache.slot, to++);
    }
  }

  #swap(a: number, b: number): void {
    this.#decoder.swap(a, b);
    for (const [slot, cache] of [
      [a, this.#slots[b]!],
      [b, this.#slots[a]!],
    ] as const) {
      this.#slots[slot] = cache;
      if (cache !== null) cache.slot = slot;
    }
  }
}

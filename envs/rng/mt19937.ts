/**
 * The Mersenne Twister as CPython's `random` and numpy's legacy `RandomState` use it, so that RAGEN's seeds give RAGEN's
 * boards. `nextSeed` is the seed that RAGEN tries after a seed that failed. Policies sample with the counter-based generator of model/rng.ts
 * instead.
 *
 * - Every method consumes the same number of 32-bit outputs as its Python counterpart.
 *
 * Source: Matsumoto and Nishimura, "Mersenne Twister" (1998); CPython Lib/random.py; numpy legacy distributions.
 */

const WORDS = 624;
const SHIFT = 397;

/**
 * The generator. It has 624 words of state and computes all new words at once. Words are int32, because JavaScriptCore treats uint32 values as
 * doubles.
 */
class Twister {
  readonly #state: Int32Array;
  #index = WORDS;

  constructor(state: Int32Array) {
    this.#state = state;
  }

  /** 32 uniform bits, as int32. */
  next32(): number {
    if (this.#index === WORDS) this.#refill();
    return temper(this.#state[this.#index++]!);
  }

  /**
   * Uniform in [0, 1) with 53 bits, from two outputs. Random plays spend much of their time here, so `next53` reads both at once.
   */
  next53(): number {
    const index = this.#index;
    if (index > WORDS - 2) return fraction(this.next32(), this.next32());
    this.#index = index + 2;
    return fraction(temper(this.#state[index]!), temper(this.#state[index + 1]!));
  }

  #refill(): void {
    refill(this.#state);
    this.#index = 0;
  }
}

/** Replaces the state by the next 624 words. */
function refill(s: Int32Array): void {
  for (let i = 0; i < WORDS - SHIFT; i++) s[i] = s[i + SHIFT]! ^ twist(s[i]!, s[i + 1]!);
  for (let i = WORDS - SHIFT; i < WORDS - 1; i++) s[i] = s[i + SHIFT - WORDS]! ^ twist(s[i]!, s[i + 1]!);
  s[WORDS - 1] = s[SHIFT - 1]! ^ twist(s[WORDS - 1]!, s[0]!);
}

function temper(word: number): number {
  let y = word;
  y ^= y >>> 11;
  y ^= (y << 7) & 0x9d2c5680;
  y ^= (y << 15) & 0xefc60000;
  return y ^ (y >>> 18);
}

const fraction = (high: number, low: number): number => ((high >>> 5) * 2 ** 26 + (low >>> 6)) / 2 ** 53;

function twist(high: number, low: number): number {
  const y = (high & 0x80000000) | (low & 0x7fffffff);
  return (y >>> 1) ^ (-(y & 1) & 0x9908b0df);
}

/** State from one word ("init_genrand"). */
function stateFromWord(seed: number): Int32Array {
  const s = new Int32Array(WORDS);
  let word = seed | 0;
  s[0] = word;
  for (let i = 1; i < WORDS; i++) {
    word = (Math.imul(1812433253, word ^ (word >>> 30)) + i) | 0;
    s[i] = word;
  }
  return s;
}

const BASE_STATE = stateFromWord(19650218);

/**
 * State from one uint32 used as a key of length 1 ("init_by_array"). `s[0]` only repeats the last word, so the loops go from the last word
 * straight to `s[1]`.
 */
function stateFromKey(key: number): Int32Array {
  const s = BASE_STATE.slice();
  const after = (i: number) => (i === WORDS - 1 ? 1 : i + 1);
  let word = s[0]!;
  let i = 1;
  for (let k = WORDS; k > 0; k--) {
    word = ((s[i]! ^ Math.imul(word ^ (word >>> 30), 1664525)) + (key | 0)) | 0;
    s[i] = word;
    i = after(i);
  }
  for (let k = WORDS - 1; k > 0; k--) {
    word = ((s[i]! ^ Math.imul(word ^ (word >>> 30), 1566083941)) - i) | 0;
    s[i] = word;
    i = after(i);
  }
  s[0] = 0x80000000;
  return s;
}

/** @throws {RangeError} unless the seed is a uint32 */
export function checkSeed(seed: number): void {
  if (!Number.isInteger(seed) || seed < 0 || seed > 0xffffffff) {
    throw new RangeError(`seed must be an integer in [0, 4294967295], got ${seed}`);
  }
}

/** CPython's `random.Random(seed)` for a uint32 seed. */
export class PythonRandom {
  readonly #twister: Twister;

  constructor(seed: number) {
    checkSeed(seed);
    this.#twister = new Twister(stateFromKey(seed));
  }

  /** Uniform in [0, 1) with 53 bits. */
  random(): number {
    return this.#twister.next53();
  }

  /** Uniform integer in [0, 2^bits); bits in 1..32. */
  getrandbits(bits: number): number {
    return this.#twister.next32() >>> (32 - bits);
  }

  /** Uniform integer in [0, count). @throws {RangeError} unless count is in 1..2^32 - 1 */
  below(count: number): number {
    if (!(count >= 1 && count < 2 ** 32))
      throw new RangeError(`cannot draw one of ${count} numbers; allowed are 1 to 2^32 - 1`);
    const bits = 32 - Math.clz32(count);
    let drawn = this.getrandbits(bits);
    while (drawn >= count) drawn = this.getrandbits(bits);
    return drawn;
  }

  /** Uniform integer in [low, high], both included. */
  randint(low: number, high: number): number {
    return low + this.below(high - low + 1);
  }

  choice<T>(items: readonly T[]): T {
    return items[this.below(items.length)]!;
  }

  /** `count` distinct items in selection order. */
  sample<T>(items: readonly T[], count: number): T[] {
    // CPython chooses one of two algorithms by size.
    const setSize = count > 5 ? 21 + 4 ** Math.ceil(Math.log(count * 3) / Math.log(4)) : 21;
    if (items.length <= setSize) {
      const pool = [...items];
      return Array.from({ length: count }, (_, i) => {
        const at = this.below(items.length - i);
        const taken = pool[at]!;
        pool[at] = pool[items.length - i - 1]!;
        return taken;
      });
    }
    const taken = new Set<number>();
    while (taken.size < count) taken.add(this.below(items.length));
    return [...taken].map((at) => items[at]!);
  }

  shuffle<T>(items: T[]): void {
    for (let i = items.length - 1; i > 0; i--) {
      const j = this.below(i + 1);
      [items[i], items[j]] = [items[j]!, items[i]!];
    }
  }
}

/** numpy's legacy `RandomState(seed)` for a uint32 seed. */
export class NumpyLegacyRandom {
  readonly #twister: Twister;

  constructor(seed: number) {
    checkSeed(seed);
    this.#twister = new Twister(stateFromWord(seed));
  }

  /** Uniform integer in [0, count), by masked rejection. A count of 1 consumes no output. */
  randint(count: number): number {
    if (count === 1) return 0;
    const mask = 0xffffffff >>> Math.clz32(count - 1);
    let drawn = (this.#twister.next32() & mask) >>> 0;
    while (drawn > count - 1) drawn = (this.#twister.next32() & mask) >>> 0;
    return drawn;
  }
}

const MASK = 0xffffffffffffffffn;

/**
 * The uint32 seed that RAGEN tries after `seed` fails: abs(hash(str(seed))) mod 2^32. With PYTHONHASHSEED=0, CPython's `hash` is
 * SipHash-1-3 with a zero key. Without PYTHONHASHSEED, `hash` differs between processes.
 *
 * Source: Aumasson and Bernstein, "SipHash" (2012); CPython 3.11 and later, Python/pyhash.c.
 */
export function nextSeed(seed: number): number {
  const hash = BigInt.asIntN(64, sipHash13(new TextEncoder().encode(String(seed))));
  return Number((hash < 0n ? -hash : hash) & 0xffffffffn);
}

function sipHash13(bytes: Uint8Array): bigint {
  let v0 = 0x736f6d6570736575n;
  let v1 = 0x646f72616e646f6dn;
  let v2 = 0x6c7967656e657261n;
  let v3 = 0x7465646279746573n;
  const round = () => {
    v0 = (v0 + v1) & MASK;
    v1 = rotate(v1, 13n) ^ v0;
    v2 = (v2 + v3) & MASK;
    v3 = rotate(v3, 16n) ^ v2;
    v0 = (rotate(v0, 32n) + v3) & MASK;
    v2 = (v2 + v1) & MASK;
    v3 = rotate(v3, 21n) ^ v0;
    v1 = rotate(v1, 17n) ^ v2;
    v2 = rotate(v2, 32n);
  };
  const absorb = (word: bigint) => {
    v3 ^= word;
    round();
    v0 ^= word;
  };
  const whole = bytes.length - (bytes.length % 8);
  for (let at = 0; at < whole; at += 8) absorb(littleEndian(bytes.subarray(at, at + 8)));
  absorb(littleEndian(bytes.subarray(whole)) | (BigInt(bytes.length & 0xff) << 56n));
  v2 ^= 0xffn;
  for (let i = 0; i < 3; i++) round();
  return v0 ^ v1 ^ v2 ^ v3;
}

function rotate(value: bigint, bits: bigint): bigint {
  return ((value << bits) | (value >> (64n - bits))) & MASK;
}

function littleEndian(bytes: Uint8Array): bigint {
  return bytes.reduceRight((value, byte) => (value << 8n) | BigInt(byte), 0n);
}

/**
 * Counter-based random numbers: each number depends on (seed, name, index) only. A coin is the random number that decides which token
 * is sampled. Every process gets the same coin 17 of episode "e3", whatever numbers the process drew before. The generators that make
 * RAGEN's boards are in envs/rng.
 *
 * Philox4x32-10: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011; the constants are those of the authors' library
 * Random123.
 */
import { createHash } from "node:crypto";

/** A stateful source of numbers, each uniform in [0, 1). */
export type Uniform = () => number;

/** Four 32-bit words. */
export type Words = readonly [number, number, number, number];

const ROUNDS = 10;
const MULTIPLIER_0 = 0xd2511f53;
const MULTIPLIER_1 = 0xcd9e8d57;
const WEYL_0 = 0x9e3779b9;
const WEYL_1 = 0xbb67ae85;

/** One block of random words. All words are uint32. Under one key, different counters give different blocks. */
export function philox(counter: Words, key: readonly [number, number]): Words {
  // Words are int32 inside the loop, and are not destructured, because both is several times as fast.
  let a = counter[0] | 0;
  let b = counter[1] | 0;
  let c = counter[2] | 0;
  let d = counter[3] | 0;
  let k0 = key[0] | 0;
  let k1 = key[1] | 0;
  for (let round = 0; round < ROUNDS; round++) {
    const high0 = multiplyHigh(MULTIPLIER_0, a);
    const high1 = multiplyHigh(MULTIPLIER_1, c);
    const low0 = Math.imul(MULTIPLIER_0, a);
    const low1 = Math.imul(MULTIPLIER_1, c);
    a = high1 ^ b ^ k0;
    b = low1;
    c = high0 ^ d ^ k1;
    d = low0;
    k0 = (k0 + WEYL_0) | 0;
    k1 = (k1 + WEYL_1) | 0;
  }
  return [a >>> 0, b >>> 0, c >>> 0, d >>> 0];
}

/** Upper 32 bits of the product of two uint32, as int32. */
function multiplyHigh(x: number, y: number): number {
  const xLow = x & 0xffff;
  const xHigh = x >>> 16;
  const yLow = y & 0xffff;
  const yHigh = y >>> 16;
  const middle0 = Math.imul(xHigh, yLow);
  const middle1 = Math.imul(xLow, yHigh);
  const carry = ((middle0 & 0xffff) + (middle1 & 0xffff) + (Math.imul(xLow, yLow) >>> 16)) >>> 16;
  return (Math.imul(xHigh, yHigh) + (middle0 >>> 16) + (middle1 >>> 16) + carry) | 0;
}

/** A 64-bit hash of a name, as two uint32. */
export type Hash64 = readonly [number, number];

/** The first 8 bytes of the sha256 of the text in UTF-8, big-endian. */
export function hash64(text: string): Hash64 {
  const digest = createHash("sha256").update(text, "utf8").digest();
  return [digest.readUInt32BE(0), digest.readUInt32BE(4)];
}

/** Key of an episode's coins: the run's seed and `hash64` of the episode's id. */
export interface CoinKey {
  /** uint32 */
  readonly seed: number;
  readonly episode: Hash64;
}

/** Second word of the key: coins and the numbers of `sequence` come from different streams, even under the same name. */
const COINS = 0;
const SEQUENCES = 1;

/**
 * The coin that decides a token.
 *
 * @param tokenIndex  the token's place in its episode; an integer from 0 to 2^53.
 * @returns uniform in [0, 1), a multiple of 2^-53.
 */
export function coin({ seed, episode }: CoinKey, tokenIndex: number): number {
  return uniformAt(seed, COINS, episode, tokenIndex);
}

/** A source of numbers for shuffles and initial weights. Equal (seed, name) give equal sequences. */
export function sequence(seed: number, name: string): Uniform {
  const hash = hash64(name);
  let index = 0;
  return () => uniformAt(seed, SEQUENCES, hash, index++);
}

function uniformAt(seed: number, use: number, hash: Hash64, index: number): number {
  const words = philox([index >>> 0, Math.floor(index / 2 ** 32), hash[0], hash[1]], [seed, use]);
  // 27 and 26 bits make the 53 bits of a double. numpy's random() uses the same split.
  return ((words[0] >>> 5) * 2 ** 26 + (words[1] >>> 6)) / 2 ** 53;
}

/** Fisher-Yates, in place: every order is equally likely. Returns `items`. */
export function shuffle<T>(items: T[], uniform: Uniform): T[] {
  for (let last = items.length - 1; last > 0; last--) {
    const pick = Math.floor(uniform() * (last + 1));
    [items[last], items[pick]] = [items[pick]!, items[last]!];
  }
  return items;
}

/**
 * numpy's `default_rng(seed)`: PCG64 (XSL-RR 128/64) seeded through SeedSequence, as in gymnasium. The 128-bit state is
 * four uint32 limbs, so a draw needs no BigInt.
 *
 * Source: O'Neill, "PCG" (2014); numpy SeedSequence, PCG64 and Generator.integers (Lemire's method on 32 bits).
 */
import { checkSeed } from "./mt19937.ts";

/** 0x2360ed051fc65da44385df649fccf645 in eight 16-bit limbs, lowest first. */
const M0 = 0xf645;
const M1 = 0x9fcc;
const M2 = 0xdf64;
const M3 = 0x4385;
const M4 = 0x5da4;
const M5 = 0x1fc6;
const M6 = 0xed05;
const M7 = 0x2360;
/** Shifts a column sum down by one 16-bit digit: exact, and faster than a division. */
const DIGIT = 1 / 65536;

export class Pcg64 {
  // State and increment, limb 0 lowest.
  #s0 = 0;
  #s1 = 0;
  #s2 = 0;
  #s3 = 0;
  readonly #i0: number;
  readonly #i1: number;
  readonly #i2: number;
  readonly #i3: number;
  /** The unused high half of the last 64-bit draw; -1 if none. */
  #half = -1;

  /** @param entropy uint32 words; one word is numpy's `default_rng(seed)`. */
  constructor(...entropy: readonly [number, ...number[]]) {
    entropy.forEach(checkSeed);
    // 64-bit words, low half first: [state high, state low, sequence high, sequence low].
    const w = seedWords(entropy);
    this.#i0 = ((w[6]! << 1) | 1) >>> 0;
    this.#i1 = ((w[7]! << 1) | (w[6]! >>> 31)) >>> 0;
    this.#i2 = ((w[4]! << 1) | (w[7]! >>> 31)) >>> 0;
    this.#i3 = ((w[5]! << 1) | (w[4]! >>> 31)) >>> 0;
    this.#step();
    let sum = this.#s0 + w[2]!;
    this.#s0 = sum >>> 0;
    sum = this.#s1 + w[3]! + carry(sum);
    this.#s1 = sum >>> 0;
    sum = this.#s2 + w[0]! + carry(sum);
    this.#s2 = sum >>> 0;
    this.#s3 = (this.#s3 + w[1]! + carry(sum)) >>> 0;
    this.#step();
  }

  /** Uniform in [0, 1) with 53 bits. Does not use or change `#half`. */
  random(): number {
    this.#step();
    const shift = this.#s3 >>> 26;
    const low = this.#s0 ^ this.#s2;
    const high = this.#s1 ^ this.#s3;
    const drawnHigh = rotatedHigh(low, high, shift);
    const drawnLow = rotatedHigh(high, low, shift);
    return ((drawnHigh >>> 11) * 4294967296 + (((drawnHigh << 21) | (drawnLow >>> 11)) >>> 0)) / 9007199254740992;
  }

  /** Uniform uint32: the low half of a 64-bit draw, then its high half. */
  next32(): number {
    if (this.#half >= 0) {
      const half = this.#half;
      this.#half = -1;
      return half;
    }
    this.#step();
    const shift = this.#s3 >>> 26;
    const low = this.#s0 ^ this.#s2;
    const high = this.#s1 ^ this.#s3;
    this.#half = rotatedHigh(low, high, shift);
    return rotatedHigh(high, low, shift);
  }

  /** Uniform integer in [0, count); count in 1..2^32 - 1. A count of 1 consumes no output. */
  integers(count: number): number {
    if (count === 1) return 0;
    let drawn = this.next32();
    let low = Math.imul(drawn, count) >>> 0;
    if (low < count) {
      const threshold = (4294967296 - count) % count;
      while (low < threshold) {
        drawn = this.next32();
        low = Math.imul(drawn, count) >>> 0;
      }
    }
    return multiplyHigh(drawn, count);
  }

  /** state = state * multiplier + increment mod 2^128. Products of 32 by 16 bits stay exact in a double. */
  #step(): void {
    const s0 = this.#s0;
    const s1 = this.#s1;
    const s2 = this.#s2;
    const s3 = this.#s3;
    const c0 = s0 * M0;
    const c1 = s0 * M1 + Math.floor(c0 * DIGIT);
    const c2 = s0 * M2 + s1 * M0 + Math.floor(c1 * DIGIT);
    const c3 = s0 * M3 + s1 * M1 + Math.floor(c2 * DIGIT);
    const c4 = s0 * M4 + s1 * M2 + s2 * M0 + Math.floor(c3 * DIGIT);
    const c5 = s0 * M5 + s1 * M3 + s2 * M1 + Math.floor(c4 * DIGIT);
    const c6 = s0 * M6 + s1 * M4 + s2 * M2 + s3 * M0 + Math.floor(c5 * DIGIT);
    const c7 = s0 * M7 + s1 * M5 + s2 * M3 + s3 * M1 + Math.floor(c6 * DIGIT);
    let sum = join(c0, c1) + this.#i0;
    this.#s0 = sum >>> 0;
    sum = join(c2, c3) + this.#i1 + carry(sum);
    this.#s1 = sum >>> 0;
    sum = join(c4, c5) + this.#i2 + carry(sum);
    this.#s2 = sum >>> 0;
    this.#s3 = (join(c6, c7) + this.#i3 + carry(sum)) >>> 0;
  }
}

/** uint32 of two 16-bit digits, each the low bits of a column sum. */
function join(low: number, high: number): number {
  return ((low & 0xffff) | (high << 16)) >>> 0;
}

function carry(sum: number): number {
  return sum > 0xffffffff ? 1 : 0;
}

/** High half of the 64-bit value (high, low) rotated right by `shift` in 0..63. For the low half, the caller swaps the arguments. */
function rotatedHigh(low: number, high: number, shift: number): number {
  const near = shift < 32 ? high : low;
  const far = shift < 32 ? low : high;
  const bits = shift & 31;
  return bits === 0 ? near >>> 0 : ((near >>> bits) | (far << (32 - bits))) >>> 0;
}

/** Upper 32 bits of the product of two uint32. */
function multiplyHigh(a: number, b: number): number {
  const low = (a >>> 16) * b + Math.floor(((a & 0xffff) * b) / 65536);
  return Math.floor(low / 65536);
}

/** SeedSequence(entropy).generate_state(8) in uint32. */
function seedWords(entropy: readonly number[]): Uint32Array {
  let constant = 0x43b0d7e5;
  const hash = (word: number): number => {
    let value = word ^ constant;
    constant = Math.imul(constant, 0x931e8875);
    value = Math.imul(value, constant);
    return value ^ (value >>> 16);
  };
  const mix = (x: number, y: number): number => {
    const value = Math.imul(0xca01f9dd, x) - Math.imul(0x4973f715, y);
    return value ^ (value >>> 16);
  };
  const pool = Int32Array.from({ length: 4 }, (_, i) => hash(entropy[i] ?? 0));
  for (let from = 0; from < 4; from++) {
    for (let to = 0; to < 4; to++) if (from !== to) pool[to] = mix(pool[to]!, hash(pool[from]!));
  }
  for (const word of entropy.slice(4)) for (let to = 0; to < 4; to++) pool[to] = mix(pool[to]!, hash(word));

  let output = 0x8b51f9dd;
  return Uint32Array.from({ length: 8 }, (_, i) => {
    let value = pool[i % 4]! ^ output;
    output = Math.imul(output, 0x58f38ded);
    value = Math.imul(value, output);
    return value ^ (value >>> 16);
  });
}

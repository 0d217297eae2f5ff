/**
 * The kernel of attention over a cache (policy/cached-attention.ts), for one or more new tokens of each row.
 *
 * B rows, S new tokens of a row, H query heads, K key/value heads, G = H / K, D head width, C capacity in tokens.
 *
 * - A cache of keys has blocks of 16 tokens, and in each block (D, 16): so a vector holds one dimension of neighbouring tokens, and a
 *   score needs no sum across a vector. A cache of values has (C, D).
 * - Caches may hold 16-bit floats. Their arrays then hold two of them in each float: they have half of the places.
 * - A token's result depends on its own sequence only, and not on how the sequence was split into runs.
 */
import { sizeOf } from "../graph.ts";
import {
  type Address,
  type Assembler,
  at,
  atIndex,
  R8,
  R9,
  R10,
  R12,
  R13,
  R14,
  R15,
  RAX,
  RBX,
  RCX,
  RDI,
  RDX,
  RSI,
  RSP,
} from "./assembler.ts";
import { exponential, exponentialTable } from "./exponential.ts";
import { checkMultiple, FLOAT, floatBits, type Kernel } from "./kernel.ts";
import type { MachineOperator } from "./operator.ts";

export interface CachedShape {
  readonly rows: number;
  readonly added: number;
  readonly heads: number;
  readonly kvHeads: number;
  /** A multiple of 16. */
  readonly headWidth: number;
  /** A multiple of 16. */
  readonly capacity: number;
  readonly scale: number;
  /** Caches hold 16-bit floats. */
  readonly half: boolean;
  readonly window: number | null;
}

/** Tokens in a block of keys. */
const KEY_BLOCK = 16;
/** Blocks that a pass over the keys takes at once. */
const BLOCKS_AT_ONCE = 4;
/** Most floats of a value that a pass over the values sums at once. */
const VALUE_CHUNK = 64;
/** Registers of sums in a pass. */
const SUMS = 8;
/** Bytes that a prefetch loads. */
const LINE = 64;
/** Score of a token that the query does not see. */
const HIDDEN = -1e30;

const [SUM, MAXIMUM, TOTAL, FACTOR] = [0, 9, 10, 11];
const SPARE = [12, 13, 14] as const;

/** Inputs: qkv, keys, values, last, cos, sin. Outputs: out, keys, values. */
export function cachedAttentionOperator(shape: CachedShape): MachineOperator {
  const { rows, added, heads, kvHeads, headWidth, capacity } = shape;
  checkMultiple("headWidth", headWidth, 16);
  checkMultiple("capacity", capacity, KEY_BLOCK);
  const cache = [rows, kvHeads, shape.half ? capacity / 2 : capacity, headWidth];
  return {
    inputs: ["float32", "float32", "float32", "int32", "float32", "float32"],
    outputs: [[rows, added, heads * headWidth], cache, cache],
    write(kernel) {
      for (const index of [1, 2]) {
        copyUnlessSame(kernel.code, kernel.inputs[index]!, kernel.outputs[index]!, FLOAT * sizeOf(cache));
      }
      new CachedAttention(kernel, shape).write();
    },
  };
}

/** An in-place update has one memory for input and output. */
function copyUnlessSame(code: Assembler, from: Address, to: Address, bytes: number): void {
  const same = code.label();
  code.move(RSI, from);
  code.move(RDI, to);
  code.compare(RSI, RDI);
  code.jumpIf("equal", same);
  code.constant(RCX, bytes);
  code.copyBytes();
  code.place(same);
}

/** Writes the code of one kernel. r12 and r13 hold the addresses of a head's keys and values, rbx the position of the new token. */
class CachedAttention {
  readonly #kernel: Kernel;
  readonly #code: Assembler;
  readonly #shape: CachedShape;
  /** Addresses of the new token's parts in qkv, and of its result. */
  readonly #query: Address;
  readonly #key: Address;
  readonly #value: Address;
  readonly #out: Address;
  /** Bytes of a number in a cache. */
  readonly #number: 2 | 4;
  /** A rotated query or key, (D). */
  readonly #rotated: Address;
  /** Scores of the blocks that a query sees. */
  readonly #scores: Address;

  constructor(kernel: Kernel, shape: CachedShape) {
    this.#kernel = kernel;
    this.#code = kernel.code;
    this.#shape = shape;
    this.#number = shape.half ? 2 : FLOAT;
    [this.#query, this.#key, this.#value, this.#out] = [kernel.word(), kernel.word(), kernel.word(), kernel.word()];
    this.#rotated = at(RSP, kernel.memory(FLOAT * shape.headWidth));
    this.#scores = at(RSP, kernel.memory(FLOAT * shape.capacity));
  }

  write(): void {
    const kernel = this.#kernel;
    const code = this.#code;
    const { rows, added, heads, kvHeads, headWidth, capacity } = this.#shape;
    const [qkv, , , lasts, cos, sin] = kernel.inputs as [Address, Address, Address, Address, Address, Address];
    const group = heads / kvHeads;
    const head = FLOAT * headWidth;
    const token = (heads + 2 * kvHeads) * head;
    const [last, first] = [kernel.word(), kernel.word()];
    code.move(R12, kernel.outputs[1]!);
    code.move(R13, kernel.outputs[2]!);
    kernel.set(last, lasts);
    kernel.set(this.#out, kernel.outputs[0]!);
    for (const [part, start] of [
      [this.#query, 0],
      [this.#key, heads * head],
      [this.#value, (heads + kvHeads) * head],
    ] as const) {
      kernel.set(part, qkv);
      kernel.advance(part, start);
    }
    const advanceAll = (query: number, out: number, keyAndValue: number) => {
      kernel.advance(this.#query, query);
      kernel.advance(this.#out, out);
      kernel.advance(this.#key, keyAndValue);
      kernel.advance(this.#value, keyAndValue);
    };
    kernel.loop(rows, 1, () => {
      code.move(RAX, last);
      code.loadInt32(RBX, at(RAX));
      code.addConstant(RBX, 1 - added);
      code.store(first, RBX);
      kernel.advance(last, 4);
      kernel.loop(kvHeads, 1, () => {
        code.move(RBX, first);
        kernel.loop(added, 1, () => {
          for (const [register, table] of [
            [R14, cos],
            [R15, sin],
          ] as const) {
            code.multiplyConstant(register, RBX, head / 2);
            code.add(register, table);
          }
          this.#writeCache();
          kernel.loop(group, 1, () => {
            this.#attend();
            kernel.advance(this.#query, head);
            kernel.advance(this.#out, head);
          });
          code.addConstant(RBX, 1);
          advanceAll(token - group * head, (heads - group) * head, token);
        });
        code.addConstant(R12, capacity * headWidth * this.#number);
        code.addConstant(R13, capacity * headWidth * this.#number);
        advanceAll(group * head - added * token, (group - added * heads) * head, head - added * token);
      });
      advanceAll(added * token - heads * head, (added - 1) * heads * head, added * token - kvHeads * head);
    });
  }

  /** Writes the new token's rotated key and its value into the caches. */
  #writeCache(): void {
    const code = this.#code;
    const { headWidth, half } = this.#shape;
    const size = this.#number;
    const rotated = this.#rotated;
    code.move(RAX, this.#key);
    this.#kernel.rotate(rotated, headWidth);
    if (half) this.#copyToCache(rotated, rotated);
    code.move(RDX, RBX);
    code.andConstant(RDX, -KEY_BLOCK);
    code.multiplyConstant(RDX, RDX, size * headWidth);
    code.move(RCX, RBX);
    code.andConstant(RCX, KEY_BLOCK - 1);
    code.addressOf(RDX, atIndex(RDX, RCX, size));
    code.add(RDX, R12);
    for (let i = 0; i < headWidth; i++) {
      const [from, to] = [at(RSP, rotated.offset + size * i), at(RDX, size * KEY_BLOCK * i)];
      if (half) {
        code.load16(RCX, from);
        code.store16(to, RCX);
      } else {
        code.load32(RCX, from);
        code.store32(to, RCX);
      }
    }
    code.move(RAX, this.#value);
    code.multiplyConstant(RDX, RBX, size * headWidth);
    code.add(RDX, R13);
    this.#copyToCache(at(RDX), at(RAX));
  }

  /** Copies a head, (D), in the precision of the caches. `to` may be `from`. */
  #copyToCache(to: Address, from: Address): void {
    const code = this.#code;
    const { headWidth, half } = this.#shape;
    for (let i = 0; i < headWidth; i += 8) {
      code.loadVector(SUM, { ...from, offset: from.offset + FLOAT * i }, 8);
      const place = { ...to, offset: to.offset + this.#number * i };
      if (half) code.storeHalf(place, SUM);
      else code.storeVector(place, SUM, 8);
    }
  }

  /** Attention of one query head: r8 is the first token that it sees, r9 the first of that token's block, r10 the number of blocks. */
  #attend(): void {
    const code = this.#code;
    const { headWidth, scale, window } = this.#shape;
    code.move(RAX, this.#query);
    this.#kernel.rotate(this.#rotated, headWidth, { scale });
    code.constant(R8, 0);
    if (window !== null) {
      const all = code.label();
      code.move(RAX, RBX);
      code.addConstant(RAX, 1 - window);
      code.jumpIf("less", all);
      code.move(R8, RAX);
      code.place(all);
    }
    code.move(R9, R8);
    code.andConstant(R9, -KEY_BLOCK);
    code.move(R10, RBX);
    code.subtract(R10, R9);
    code.shiftRight(R10, Math.log2(KEY_BLOCK));
    code.addConstant(R10, 1);
    this.#score();
    this.#softmax();
    this.#mix();
  }

  /** The scores of the blocks' tokens, with those that the query does not see hidden. */
  #score(): void {
    const code = this.#code;
    const { headWidth, window } = this.#shape;
    code.multiplyConstant(RDX, R9, this.#number * headWidth);
    code.add(RDX, R12);
    code.addressOf(RSI, this.#scores);
    code.move(RCX, R10);
    for (const count of [BLOCKS_AT_ONCE, 1]) this.#kernel.whileAtLeast(RCX, count, () => this.#blocks(count));

    code.constant(RDX, floatBits(HIDDEN));
    const hide = (from: number, end: number) => {
      const [again, hidden] = [code.label(), code.label()];
      code.place(again);
      code.compare(from, end);
      code.jumpIf("atLeast", hidden);
      code.store32(atIndex(RSP, from, FLOAT, this.#scores.offset), RDX);
      code.addConstant(from, 1);
      code.jump(again);
      code.place(hidden);
    };
    code.multiplyConstant(RCX, R10, KEY_BLOCK);
    code.move(RAX, RBX);
    code.addConstant(RAX, 1);
    code.subtract(RAX, R9);
    hide(RAX, RCX);
    if (window === null) return;
    code.constant(RAX, 0);
    code.move(RCX, R8);
    code.subtract(RCX, R9);
    hide(RAX, RCX);
  }

  /** Scores of some blocks from rdx on, to rsi; counts them in rcx. */
  #blocks(count: number): void {
    const code = this.#code;
    const { headWidth } = this.#shape;
    const vectors = (count * KEY_BLOCK) / code.vectorWidth;
    const perBlock = KEY_BLOCK / code.vectorWidth;
    const query = SUMS;
    for (let i = 0; i < vectors; i++) code.zero(SUM + i);
    for (let d = 0; d < headWidth; d++) {
      code.broadcast(query, at(RSP, this.#rotated.offset + FLOAT * d));
      for (let i = 0; i < vectors; i++) {
        const block = Math.floor(i / perBlock);
        const floats = (block * headWidth + d) * KEY_BLOCK + (i % perBlock) * code.vectorWidth;
        this.#addProduct(SUM + i, query, at(RDX, this.#number * floats));
      }
    }
    for (let i = 0; i < vectors; i++) code.storeVector(at(RSI, FLOAT * code.vectorWidth * i), SUM + i);
    this.#prefetchNextHead(count * KEY_BLOCK);
    code.addConstant(RDX, this.#number * count * KEY_BLOCK * headWidth);
    code.addConstant(RSI, FLOAT * count * KEY_BLOCK);
    code.addConstant(RCX, -count);
  }

  /** Prefetches what the next head, or the next row, has in the place of so many tokens from rdx on. */
  #prefetchNextHead(tokens: number): void {
    const { headWidth, capacity } = this.#shape;
    const token = this.#number * headWidth;
    for (let i = 0; i < tokens * token; i += LINE) this.#code.prefetch(at(RDX, capacity * token + i));
  }

  /** `sum` += `factor` · a vector of a cache */
  #addProduct(sum: number, factor: number, cached: Address): void {
    const [vector] = SPARE;
    if (this.#shape.half) this.#code.loadHalf(vector, cached);
    this.#code.multiplyAdd(sum, factor, this.#shape.half ? vector : cached);
  }

  /** Runs code for each vector of scores, whose address is in rsi. */
  #eachScore(body: (place: Address) => void): void {
    const code = this.#code;
    const bytes = FLOAT * KEY_BLOCK;
    code.addressOf(RSI, this.#scores);
    code.move(RCX, R10);
    const again = code.label();
    code.place(again);
    for (let i = 0; i < KEY_BLOCK; i += code.vectorWidth) body(at(RSI, FLOAT * i));
    code.addConstant(RSI, bytes);
    code.addConstant(RCX, -1);
    code.jumpIf("more", again);
  }

  /** Replaces each score by e^(score - maximum); FACTOR = 1 / their sum. */
  #softmax(): void {
    const code = this.#code;
    const [x] = [SUM];
    code.loadVector(MAXIMUM, this.#scores);
    this.#eachScore((place) => code.vector("maximum", MAXIMUM, MAXIMUM, place));
    code.reduce("maximum", MAXIMUM, MAXIMUM, x);
    code.constant(RAX, exponentialTable());
    code.zero(TOTAL);
    this.#eachScore((place) => {
      code.loadVector(x, place);
      code.vector("subtract", x, x, MAXIMUM);
      exponential(code, x, RAX, SPARE);
      code.vector("add", TOTAL, TOTAL, x);
      code.storeVector(place, x);
    });
    code.reduce("add", TOTAL, TOTAL, x);
    this.#kernel.number(FACTOR, 1);
    code.vector("divide", FACTOR, FACTOR, TOTAL);
  }

  /** The sum of the values, weighted by the scores. */
  #mix(): void {
    const code = this.#code;
    const { headWidth } = this.#shape;
    for (let chunk = 0; chunk < headWidth; chunk += VALUE_CHUNK) {
      const width = Math.min(VALUE_CHUNK, headWidth - chunk);
      const vectors = width / code.vectorWidth;
      const tokens = Math.max(1, Math.floor(SUMS / vectors));
      const sum = (token: number, i: number) => SUM + token * vectors + i;
      const weight = SUMS;
      code.multiplyConstant(RDX, R8, this.#number * headWidth);
      code.add(RDX, R13);
      code.move(RSI, R8);
      code.subtract(RSI, R9);
      code.addressOf(RSI, atIndex(RSP, RSI, FLOAT, this.#scores.offset));
      code.move(RCX, RBX);
      code.subtract(RCX, R8);
      code.addConstant(RCX, 1);
      for (let i = 0; i < tokens * vectors; i++) code.zero(SUM + i);
      const add = (count: number) => {
        for (let token = 0; token < count; token++) {
          code.broadcast(weight, at(RSI, FLOAT * token));
          for (let i = 0; i < vectors; i++) {
            const value = token * headWidth + chunk + i * code.vectorWidth;
            this.#addProduct(sum(token, i), weight, at(RDX, this.#number * value));
          }
        }
        this.#prefetchNextHead(count);
        code.addConstant(RDX, this.#number * count * headWidth);
        code.addConstant(RSI, FLOAT * count);
        code.addConstant(RCX, -count);
      };
      for (const count of tokens === 1 ? [1] : [tokens, 1]) this.#kernel.whileAtLeast(RCX, count, () => add(count));
      code.move(RAX, this.#out);
      for (let i = 0; i < vectors; i++) {
        for (let token = 1; token < tokens; token++) code.vector("add", sum(0, i), sum(0, i), sum(token, i));
        code.vector("multiply", sum(0, i), sum(0, i), FACTOR);
        code.storeVector(at(RAX, FLOAT * (chunk + i * code.vectorWidth)), sum(0, i));
      }
    }
  }
}

/**
 * The kernel of attention over a cache (policy/cached-attention.ts), for one or more new tokens of each row.
 *
 * B rows, S new tokens of a row, H query heads, K key/value heads, G = H / K, D head width, C capacity in tokens, Q queries of a pass.
 *
 * - A cache of keys is a list of blocks of 16 tokens, each (D, 16). So a vector holds one dimension of neighboring tokens, and a score
 *   needs no sum across a vector. A cache of values is (C, D).
 * - Caches may hold 16-bit floats. Our graphs have no such type, so they declare such a cache as 32-bit floats with half of the capacity.
 * - A token's result depends on its own sequence only, and not on the number of new tokens in a run of the kernel.
 */
import { sizeOf } from "../graph.ts";
import { type Address, at, atIndex } from "./assembler.ts";
import { blocksOf, CACHE_LINE_BYTES, checkMultiple, FLOAT_BYTES, floatBits, KernelWriter, shifted } from "./kernel.ts";
import type { MachineCodeOperator } from "./operator.ts";
import { R8, R9, R10, R12, R13, R14, R15, RAX, RBX, RCX, RDX, RSI, RSP } from "./registers.ts";
import { HIDDEN_SCORE, INVERSE_SUM, softmax } from "./softmax.ts";

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
  /** Number of slots of the caches; each slot holds one sequence, and an input has the slot of each row. null: row i has slot i of B slots. */
  readonly slots: number | null;
  /** Only one new token of each row is a query; the last input says which. The kernel does not write the results of the other tokens. */
  readonly readsOne: boolean;
}

const INT32_BYTES = 4;
/** Tokens in a block of keys. */
const KEY_BLOCK = 16;
/** Blocks that a pass over the keys takes at once. */
const BLOCKS_AT_ONCE = 4;
/** Maximum number of floats of a value that a pass over the values sums at once. */
const VALUE_CHUNK = 64;
/** Maximum number of query heads of a group in a pass. The pass reads the cache once for all its query heads. */
const QUERIES_AT_ONCE = 2;
/** Maximum number of sums (vectors) of one query in a pass. */
const QUERY_SUMS = 8;
/** Registers of a pass, by the floats of a vector. 0 to `sums` - 1: sums; `factors`: a factor for each query; `cached`: floats of a cache. */
const REGISTERS = {
  8: { sums: 8, factors: [8, 9], cached: 12 },
  16: { sums: 16, factors: [16, 17], cached: 18 },
} as const;

/**
 * Inputs: qkv, keys, values, last, cos, sin; with `slots` the slot of each row, all different; with `readsOne` the index of each row's query,
 * from 0 to S - 1. Outputs: out, keys, values.
 */
export function cachedAttentionOperator(shape: CachedShape): MachineCodeOperator {
  const { rows, added, heads, kvHeads, headWidth, capacity, slots, readsOne } = shape;
  checkMultiple("headWidth", headWidth, 16);
  checkMultiple("capacity", capacity, KEY_BLOCK);
  const cache = [slots ?? rows, kvHeads, shape.half ? capacity / 2 : capacity, headWidth];
  const indexes = [slots !== null, readsOne].filter(Boolean).map(() => "int32" as const);
  return {
    inputs: ["float32", "float32", "float32", "int32", "float32", "float32", ...indexes],
    outputs: [[rows, added, heads * headWidth], cache, cache],
    write(kernel) {
      for (const index of [1, 2]) {
        kernel.copyUnlessSame(kernel.inputs[index]!, kernel.outputs[index]!, FLOAT_BYTES * sizeOf(cache));
      }
      new CachedAttentionWriter(kernel, shape).write();
    },
  };
}

/**
 * Writes the kernel. Registers, between the methods that set and read them:
 *
 * - rbx: position of the new token. r12, r13: addresses of the current key/value head's keys and values in the caches. r14, r15: addresses
 *   of the position's cosines and sines.
 * - r8: the first token that the query sees. r9: the first token of that token's block. r10: the number of blocks that the query sees.
 * - In a pass over a cache: rdx is the address of the next tokens in the cache, rsi that of their scores, rcx the number of blocks or tokens
 *   left.
 */
class CachedAttentionWriter extends KernelWriter<CachedShape> {
  /** Variables: addresses of the current head's part of the new token, in qkv and in the result. */
  readonly #query = this.kernel.word();
  readonly #key = this.kernel.word();
  readonly #value = this.kernel.word();
  readonly #out = this.kernel.word();
  /** Bytes of a float in a cache. */
  readonly #cacheFloatBytes = this.shape.half ? 2 : FLOAT_BYTES;
  /** Q. */
  readonly #queries = Math.min(QUERIES_AT_ONCE, this.shape.heads / this.shape.kvHeads);
  /** The rotated key, or the rotated queries of a pass, (Q, D). */
  readonly #rotated = this.kernel.memory(FLOAT_BYTES * this.shape.headWidth * this.#queries);
  /** Bytes of a query's scores. */
  readonly #scoreBytes = FLOAT_BYTES * this.shape.capacity;
  /** Numbers for each query and each token of the blocks that the query sees, (Q, C): scores, later weights. */
  readonly #scores = this.kernel.memory(this.#scoreBytes * this.#queries);
  /** 1 / the sum of exponentials of each query, (Q). */
  readonly #inverseSums = this.kernel.memory(FLOAT_BYTES * this.#queries);
  readonly #registers = REGISTERS[this.code.vectorWidth];

  write(): void {
    const { kernel, code } = this;
    const { rows, added, heads, kvHeads, headWidth, capacity, readsOne } = this.shape;
    const [qkv, , , lasts, cos, sin] = kernel.inputs as [Address, Address, Address, Address, Address, Address];
    const reads = readsOne ? kernel.inputs.at(-1)! : null;
    const group = heads / kvHeads;
    const head = FLOAT_BYTES * headWidth;
    const token = (heads + 2 * kvHeads) * head;
    /** Variables: address of the row's last position, and the position of its first new token. */
    const [last, first] = [kernel.word(), kernel.word()];
    /** Variable: the index of the row's only query. */
    const read = reads && kernel.word();
    this.#setToFirstCaches();
    kernel.set(last, lasts);
    kernel.set(this.#out, kernel.outputs[0]!);
    kernel.setToParts(qkv, this.shape, [this.#query, this.#key, this.#value]);
    kernel.loop(rows, 1, () => {
      code.move(RAX, last);
      code.loadInt32(RBX, at(RAX));
      code.addConstant(RBX, 1 - added);
      code.store(first, RBX);
      kernel.advance(last, INT32_BYTES);
      this.#setToSlot();
      if (reads && read) {
        code.move(RAX, reads);
        code.loadInt32(RAX, at(RAX));
        code.store(read, RAX);
        kernel.advance(reads, INT32_BYTES);
      }
      kernel.loop(kvHeads, 1, () => {
        code.move(RBX, first);
        kernel.loop(added, 1, (index) => {
          this.#setAngles(cos, sin);
          this.#writeCache();
          const next = code.label();
          if (read) {
            code.move(RAX, index);
            code.compare(RAX, read);
            code.jumpIf("notEqual", next);
          }
          kernel.each(blocksOf(group, QUERIES_AT_ONCE), (queries) => {
            this.#attend(queries);
            kernel.advance(this.#query, queries * head);
            kernel.advance(this.#out, queries * head);
          });
          this.#advanceAll(-group * head, -group * head, 0);
          code.place(next);
          code.addConstant(RBX, 1);
          this.#advanceAll(token, heads * head, token);
        });
        code.addConstant(R12, capacity * headWidth * this.#cacheFloatBytes);
        code.addConstant(R13, capacity * headWidth * this.#cacheFloatBytes);
        this.#advanceAll(group * head - added * token, (group - added * heads) * head, head - added * token);
      });
      this.#advanceAll(added * token - heads * head, (added - 1) * heads * head, added * token - kvHeads * head);
    });
  }

  /** Sets r12 and r13 to the first head of the caches. */
  #setToFirstCaches(): void {
    this.code.move(R12, this.kernel.outputs[1]!);
    this.code.move(R13, this.kernel.outputs[2]!);
  }

  /** If an input has the rows' slots: sets r12 and r13 to the first head of the row's slot, and advances to the next row's slot. */
  #setToSlot(): void {
    const { slots, kvHeads, capacity, headWidth } = this.shape;
    if (slots === null) return;
    const { code } = this;
    const each = this.kernel.inputs[6]!;
    this.#setToFirstCaches();
    code.move(RAX, each);
    code.loadInt32(RAX, at(RAX));
    code.multiplyConstant(RAX, RAX, kvHeads * capacity * headWidth * this.#cacheFloatBytes);
    code.add(R12, RAX);
    code.add(R13, RAX);
    this.kernel.advance(each, INT32_BYTES);
  }

  #advanceAll(query: number, out: number, keyAndValue: number): void {
    const { kernel } = this;
    kernel.advance(this.#query, query);
    kernel.advance(this.#out, out);
    kernel.advance(this.#key, keyAndValue);
    kernel.advance(this.#value, keyAndValue);
  }

  /** Sets r14 and r15. */
  #setAngles(cos: Address, sin: Address): void {
    const half = (FLOAT_BYTES * this.shape.headWidth) / 2;
    for (const [register, table] of [
      [R14, cos],
      [R15, sin],
    ] as const) {
      this.code.multiplyConstant(register, RBX, half);
      this.code.add(register, table);
    }
  }

  /** Writes the new token's rotated key and its value into the caches. */
  #writeCache(): void {
    const { code } = this;
    const { headWidth, half } = this.shape;
    const size = this.#cacheFloatBytes;
    const rotated = this.#rotated;
    code.move(RAX, this.#key);
    this.kernel.rotate(rotated, headWidth);
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
    const { code } = this;
    const { headWidth, half } = this.shape;
    for (let i = 0; i < headWidth; i += 8) {
      const place = shifted(to, this.#cacheFloatBytes * i);
      code.loadVector(0, shifted(from, FLOAT_BYTES * i), 8);
      if (half) code.storeHalf(place, 0);
      else code.storeVector(place, 0, 8);
    }
  }

  /** Attention of some query heads of a group, from the current one on. */
  #attend(queries: number): void {
    const { code } = this;
    const { headWidth, scale } = this.shape;
    const head = FLOAT_BYTES * headWidth;
    code.move(RAX, this.#query);
    for (let query = 0; query < queries; query++) {
      if (query > 0) code.addConstant(RAX, head);
      this.kernel.rotate(shifted(this.#rotated, query * head), headWidth, { scale });
    }
    this.#setBlocks();
    this.#score(queries);
    for (let query = 0; query < queries; query++) {
      const scores = this.#scoresOf(query);
      softmax(this.kernel, scores, KEY_BLOCK, KEY_BLOCK);
      code.storeFloat(shifted(this.#inverseSums, query * FLOAT_BYTES), INVERSE_SUM);
    }
    this.#mix(queries);
  }

  #scoresOf(query: number): Address {
    return shifted(this.#scores, query * this.#scoreBytes);
  }

  /** Sets r8, r9 and r10. */
  #setBlocks(): void {
    const { code } = this;
    const { window } = this.shape;
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
  }

  /** The scores of the blocks' tokens. Tokens that the query does not see have the score `HIDDEN_SCORE`. */
  #score(queries: number): void {
    const { code } = this;
    const { headWidth } = this.shape;
    code.multiplyConstant(RDX, R9, this.#cacheFloatBytes * headWidth);
    code.add(RDX, R12);
    code.addressOf(RSI, this.#scores);
    code.move(RCX, R10);
    const perBlock = KEY_BLOCK / code.vectorWidth;
    const blocks = Math.min(BLOCKS_AT_ONCE, this.#registers.sums / (queries * perBlock));
    for (const count of [blocks, 1]) {
      this.kernel.whileAtLeast(RCX, count, () => this.#scoreBlocks(queries, count));
    }
    for (let query = 0; query < queries; query++) this.#hide(this.#scoresOf(query));
  }

  /** Hides the tokens after the new token, and those before the window. */
  #hide(scores: Address): void {
    const { kernel, code } = this;
    code.constant(RDX, floatBits(HIDDEN_SCORE));
    code.multiplyConstant(RCX, R10, KEY_BLOCK);
    code.move(RAX, RBX);
    code.addConstant(RAX, 1);
    code.subtract(RAX, R9);
    kernel.fill(scores, RAX, RCX, RDX);
    if (this.shape.window === null) return;
    code.constant(RAX, 0);
    code.move(RCX, R8);
    code.subtract(RCX, R9);
    kernel.fill(scores, RAX, RCX, RDX);
  }

  /** Stores the scores of the next `count` blocks, advances rdx and rsi, and counts rcx down. */
  #scoreBlocks(queries: number, count: number): void {
    const { code } = this;
    const { headWidth } = this.shape;
    const vectors = (count * KEY_BLOCK) / code.vectorWidth;
    const perBlock = KEY_BLOCK / code.vectorWidth;
    for (let i = 0; i < queries * vectors; i++) code.zero(i);
    for (let d = 0; d < headWidth; d++) {
      this.#setFactors(queries, (query) => at(RSP, this.#rotated.offset + FLOAT_BYTES * (query * headWidth + d)));
      for (let i = 0; i < vectors; i++) {
        const block = Math.floor(i / perBlock);
        const floats = (block * headWidth + d) * KEY_BLOCK + (i % perBlock) * code.vectorWidth;
        this.#addProducts(queries, (query) => query * vectors + i, at(RDX, this.#cacheFloatBytes * floats));
      }
    }
    for (let query = 0; query < queries; query++) {
      for (let i = 0; i < vectors; i++) {
        const place = query * this.#scoreBytes + FLOAT_BYTES * code.vectorWidth * i;
        code.storeVector(at(RSI, place), query * vectors + i);
      }
    }
    this.#prefetchNextHead(count * KEY_BLOCK);
    code.addConstant(RDX, this.#cacheFloatBytes * count * KEY_BLOCK * headWidth);
    code.addConstant(RSI, FLOAT_BYTES * count * KEY_BLOCK);
    code.addConstant(RCX, -count);
  }

  /**
   * Prefetches `tokens` tokens of the next head in the cache, at the positions of the tokens at rdx. If the slots of two rows are neighbors,
   * the first head of the next row follows the last head of this row.
   */
  #prefetchNextHead(tokens: number): void {
    const { added, headWidth, capacity } = this.shape;
    // Several new tokens read the same head. After the first of them the head is in the L1 or L2 cache.
    if (added > 1) return;
    const token = this.#cacheFloatBytes * headWidth;
    for (let i = 0; i < tokens * token; i += CACHE_LINE_BYTES) this.code.prefetch(at(RDX, capacity * token + i));
  }

  /** Fills each query's vector of factors with the float at `place(query)`. */
  #setFactors(queries: number, place: (query: number) => Address): void {
    for (const [query, factor] of this.#registers.factors.slice(0, queries).entries()) {
      this.code.broadcast(factor, place(query));
    }
  }

  /** For each query: sum += factor · a vector of a cache. */
  #addProducts(queries: number, sumOf: (query: number) => number, place: Address): void {
    const { code } = this;
    const { factors, cached } = this.#registers;
    const loads = this.shape.half || queries > 1;
    if (this.shape.half) code.loadHalf(cached, place);
    else if (loads) code.loadVector(cached, place);
    for (const [query, factor] of factors.slice(0, queries).entries()) {
      code.multiplyAdd(sumOf(query), factor, loads ? cached : place);
    }
  }

  /** Writes the results of some heads: the weighted sums of the values. */
  #mix(queries: number): void {
    const { headWidth } = this.shape;
    const widest = Math.min(VALUE_CHUNK, (this.#registers.sums / queries) * this.code.vectorWidth);
    let chunk = 0;
    for (const width of blocksOf(headWidth, widest)) {
      this.#mixChunk(queries, chunk, width);
      chunk += width;
    }
  }

  /**
   * Writes `width` floats of each result, from `chunk` on. If registers are free, a pass takes several tokens at once, and each token has sums
   * of its own. Then fewer products wait for an earlier sum.
   */
  #mixChunk(queries: number, chunk: number, width: number): void {
    const { code } = this;
    const { headWidth } = this.shape;
    const vectors = width / code.vectorWidth;
    const sumsEach = Math.min(QUERY_SUMS, this.#registers.sums / queries);
    const tokens = Math.max(1, Math.floor(sumsEach / vectors));
    const sum = (query: number, token: number, i: number) => (query * tokens + token) * vectors + i;
    this.#startAtFirstValue();
    for (let i = 0; i < queries * tokens * vectors; i++) code.zero(i);
    const add = (count: number) => {
      for (let token = 0; token < count; token++) {
        this.#setFactors(queries, (query) => at(RSI, query * this.#scoreBytes + FLOAT_BYTES * token));
        for (let i = 0; i < vectors; i++) {
          const value = token * headWidth + chunk + i * code.vectorWidth;
          this.#addProducts(queries, (query) => sum(query, token, i), at(RDX, this.#cacheFloatBytes * value));
        }
      }
      this.#prefetchNextHead(count);
      code.addConstant(RDX, this.#cacheFloatBytes * count * headWidth);
      code.addConstant(RSI, FLOAT_BYTES * count);
      code.addConstant(RCX, -count);
    };
    for (const count of tokens === 1 ? [1] : [tokens, 1]) this.kernel.whileAtLeast(RCX, count, () => add(count));
    code.move(RAX, this.#out);
    for (let query = 0; query < queries; query++) {
      const inverseSum = this.#registers.cached;
      code.broadcast(inverseSum, shifted(this.#inverseSums, query * FLOAT_BYTES));
      for (let i = 0; i < vectors; i++) {
        const total = sum(query, 0, i);
        for (let token = 1; token < tokens; token++) code.vector("add", total, total, sum(query, token, i));
        code.vector("multiply", total, total, inverseSum);
        code.storeVector(at(RAX, FLOAT_BYTES * (query * headWidth + chunk + i * code.vectorWidth)), total);
      }
    }
  }

  /** Sets rdx, rsi and rcx for a pass over the values of the tokens that the query sees. */
  #startAtFirstValue(): void {
    const { code } = this;
    code.multiplyConstant(RDX, R8, this.#cacheFloatBytes * this.shape.headWidth);
    code.add(RDX, R13);
    code.move(RSI, R8);
    code.subtract(RSI, R9);
    code.addressOf(RSI, atIndex(RSP, RSI, FLOAT_BYTES, this.#scores.offset));
    code.move(RCX, RBX);
    code.subtract(RCX, R8);
    code.addConstant(RCX, 1);
  }
}

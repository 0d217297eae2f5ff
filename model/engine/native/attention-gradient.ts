/**
 * The kernel of the gradient of causal self-attention (policy/attention.ts has the definition; attention-tiles.ts explains the letters
 * and registers). The kernel computes the weights again, from each query's largest score and the sum of its exponentials.
 *
 * For each key/value head and each query head of its group, it takes blocks of 64 queries:
 *
 * 1. for each tile of four queries in the block: the weights, the gradients of the scores and of the queries
 * 2. for each tile of four keys that the block sees: the block's terms of the gradients of keys and values
 *
 * Source: FlashAttention-2, https://arxiv.org/abs/2307.08691.
 */
import { roundUp } from "../graph.ts";
import { type Address, at, atIndex, R8, R11, RAX, RCX, RDI, RDX, RSI } from "./assembler.ts";
import { checkShape, KEY_PADDING, TILE, TileWriter, type WholeShape } from "./attention-tiles.ts";
import { exponential, exponentialTable } from "./exponential.ts";
import { CACHE_LINE_BYTES, FLOAT_BYTES, shifted } from "./kernel.ts";
import type { MachineCodeOperator } from "./operator.ts";

/** Number of queries whose weights are in memory at once. */
const QUERY_BLOCK = 64;

/** Inputs: qkv, cos, sin, out, the gradient of out, the second output of `attentionOperator`. Outputs: the gradient of qkv; scratch. */
export function attentionGradientOperator(shape: WholeShape): MachineCodeOperator {
  const { rows, tokens, heads, kvHeads, headWidth } = shape;
  checkShape(shape);
  return {
    inputs: Array.from({ length: 6 }, () => "float32"),
    outputs: [[rows, tokens, (heads + 2 * kvHeads) * headWidth], [scratchOf(shape).floats]],
    write: (kernel) => new AttentionGradientWriter(kernel, shape).write(),
  };
}

/** Offsets of the arrays in the scratch, in bytes, and the number of floats of all arrays. Each array begins at a cache line of the scratch. */
function scratchOf({ tokens, headWidth }: WholeShape) {
  const padded = roundUp(tokens, KEY_PADDING);
  const block = Math.min(QUERY_BLOCK, tokens);
  const arrays = {
    // Of the current key/value head.
    keysTransposed: headWidth * padded,
    valuesTransposed: headWidth * padded,
    keys: tokens * headWidth,
    // Of the current block, rotated.
    queries: block * headWidth,
    // Of the current key/value head, sums over its query heads. Keys are rotated.
    dKeys: tokens * headWidth,
    dValues: tokens * headWidth,
    // Of the current block: a number for each query and key.
    weights: block * padded,
    dScores: block * padded,
  };
  let floats = 0;
  const offsets = Object.fromEntries(
    Object.entries(arrays).map(([name, count]) => {
      const offset = FLOAT_BYTES * floats;
      floats += roundUp(count, CACHE_LINE_BYTES / FLOAT_BYTES);
      return [name, offset];
    }),
  ) as Record<keyof typeof arrays, number>;
  return { offsets, floats };
}
type ScratchArray = keyof ReturnType<typeof scratchOf>["offsets"];

class AttentionGradientWriter extends TileWriter {
  /** Variables: addresses of the current head's numbers in the row's first token. `#dQuery` to `#dValue` are in the result, the others in inputs. */
  readonly #query = this.kernel.word();
  readonly #key = this.kernel.word();
  readonly #value = this.kernel.word();
  readonly #out = this.kernel.word();
  readonly #dOut = this.kernel.word();
  /** Variable: address of the current head's statistics, (T, 2). */
  readonly #statistics = this.kernel.word();
  readonly #dQuery = this.kernel.word();
  readonly #dKey = this.kernel.word();
  readonly #dValue = this.kernel.word();
  /** Variables: addresses of the arrays in the scratch. */
  readonly #scratch: Readonly<Record<ScratchArray, Address>> = this.#scratchVariables();
  /** The gradients of a tile's queries, (4, D), before they are rotated back. */
  readonly #dQueries = this.kernel.memory(TILE * this.sizes.head);
  /** For each query of a tile, the dot product of `out` and the gradient of `out`. */
  readonly #deltas = this.kernel.memory(TILE * FLOAT_BYTES);
  /** Variable: the end of the current block of queries. */
  readonly #blockEnd = this.kernel.word();
  /** Variable: the block's first query that sees a key of the current tile of keys. */
  readonly #firstQuery = this.kernel.word();
  /** Variable: the first query of the current tile, counted from the block's first query. */
  readonly #inBlock = this.kernel.word();
  /** Variable: the first token of the current tile, of queries or of keys. */
  readonly #position = this.kernel.word();

  #scratchVariables(): Record<ScratchArray, Address> {
    const names = Object.keys(scratchOf(this.shape).offsets);
    return Object.fromEntries(names.map((name) => [name, this.kernel.word()])) as Record<ScratchArray, Address>;
  }

  write(): void {
    const { kernel, sizes } = this;
    const { rows, tokens, kvHeads, heads } = this.shape;
    const { head, token, outToken } = sizes;
    const keysAndValues = [this.#key, this.#value, this.#dKey, this.#dValue];
    this.#setVariables();
    kernel.loop(rows, 1, () => {
      kernel.loop(kvHeads, 1, () => {
        this.#prepareKeys();
        kernel.loop(heads / kvHeads, 1, () => {
          kernel.loop(tokens, QUERY_BLOCK, (block) => {
            this.#setBlockEnd(block);
            this.#computeBlock(block);
            this.#accumulateBlock(block);
          });
          for (const variable of [this.#query, this.#dQuery, this.#out, this.#dOut]) kernel.advance(variable, head);
          kernel.advance(this.#statistics, 2 * FLOAT_BYTES * tokens);
        });
        this.#writeKeysAndValues();
        for (const variable of keysAndValues) kernel.advance(variable, head);
      });
      for (const variable of [this.#query, this.#dQuery]) kernel.advance(variable, tokens * token - heads * head);
      for (const variable of keysAndValues) kernel.advance(variable, tokens * token - kvHeads * head);
      for (const variable of [this.#out, this.#dOut]) kernel.advance(variable, (tokens - 1) * outToken);
    });
  }

  #setVariables(): void {
    const { kernel } = this;
    const [qkv, , , out, dOut, statistics] = kernel.inputs;
    const [dQkv, scratch] = kernel.outputs;
    for (const [name, offset] of Object.entries(scratchOf(this.shape).offsets)) {
      kernel.set(this.#scratch[name as ScratchArray], scratch!);
      kernel.advance(this.#scratch[name as ScratchArray], offset);
    }
    this.kernel.setToParts(qkv!, this.shape, [this.#query, this.#key, this.#value]);
    this.kernel.setToParts(dQkv!, this.shape, [this.#dQuery, this.#dKey, this.#dValue]);
    kernel.set(this.#out, out!);
    kernel.set(this.#dOut, dOut!);
    kernel.set(this.#statistics, statistics!);
  }

  /** Rotates the keys of a head, transposes its keys and values, and sets the sums of their gradients to 0. */
  #prepareKeys(): void {
    const { kernel, code } = this;
    const { head, token, vector } = this.sizes;
    const scratch = this.#scratch;
    kernel.loop(this.shape.tokens, 1, (t) => {
      this.locate(RAX, this.#key, t, token);
      this.setAngles(t);
      this.locate(RSI, scratch.keys, t, head);
      kernel.rotate(at(RSI), this.shape.headWidth);
      code.zero(0);
      for (const sums of [scratch.dKeys, scratch.dValues]) {
        this.locate(RDX, sums, t, head);
        for (let i = 0; i < head; i += vector) code.storeVector(at(RDX, i), 0);
      }
    });
    this.transpose(scratch.keys, head, scratch.keysTransposed);
    this.transpose(this.#value, token, scratch.valuesTransposed);
  }

  #setBlockEnd(block: Address): void {
    const { code } = this;
    const { tokens } = this.shape;
    const whole = code.label();
    code.move(RAX, block);
    code.addConstant(RAX, QUERY_BLOCK);
    code.compareConstant(RAX, tokens);
    code.jumpIf("atMost", whole);
    code.constant(RAX, tokens);
    code.place(whole);
    code.store(this.#blockEnd, RAX);
  }

  /** The weights, the gradients of scores and the gradients of queries of a block. */
  #computeBlock(block: Address): void {
    const { kernel, code } = this;
    kernel.set(this.#position, block);
    kernel.set(this.#inBlock, 0);
    const nextTile = code.label();
    code.place(nextTile);
    this.#prepareQueries();
    this.#computeWeights();
    this.#computeDScores();
    this.#computeDQueries();
    kernel.advance(this.#inBlock, TILE);
    kernel.advance(this.#position, TILE);
    code.compare(RAX, this.#blockEnd);
    code.jumpIf("less", nextTile);
  }

  /** Rotates the queries of a tile, and computes `#deltas`. */
  #prepareQueries(): void {
    const { kernel, code } = this;
    const { headWidth, scale } = this.shape;
    const { head, token, outToken, vector } = this.sizes;
    for (let row = 0; row < TILE; row++) {
      this.locate(RAX, this.#query, this.#position, token, row * token);
      this.setAngles(this.#position, row);
      this.locate(RDX, this.#scratch.queries, this.#inBlock, head, row * head);
      kernel.rotate(at(RDX), headWidth, { scale });
      this.locate(RSI, this.#out, this.#position, outToken, row * outToken);
      this.locate(RDI, this.#dOut, this.#position, outToken, row * outToken);
      const [out, delta] = [0, 1];
      code.zero(delta);
      for (let i = 0; i < head; i += vector) {
        code.loadVector(out, at(RSI, i));
        code.multiplyAdd(delta, out, at(RDI, i));
      }
      code.reduce("add", delta, delta, out);
      code.storeFloat(shifted(this.#deltas, row * FLOAT_BYTES), delta);
    }
  }

  /** Runs `body` for each sum of a tile of keys. rsi is the address of the tile's queries in an array of (block, P). */
  #eachScore(vectors: number, body: (row: number, place: Address, sum: number) => void): void {
    const { padded, vector: bytes } = this.sizes;
    this.eachSum(vectors, (row, vector, sum) => {
      body(row, atIndex(RSI, R11, FLOAT_BYTES, row * padded + vector * bytes), sum);
    });
  }

  /** Weights of the tile's queries, 0 where a query does not see a key. Sets r10 for the tile. */
  #computeWeights(): void {
    const { code } = this;
    const { head, padded } = this.sizes;
    this.setKeyEnd(this.#position);
    this.locate(RSI, this.#scratch.weights, this.#inBlock, padded);
    this.eachKeyTile((vectors) => {
      this.zeroSums(vectors);
      this.locate(RDI, this.#scratch.queries, this.#inBlock, head);
      const queries = { register: RDI, row: head, step: FLOAT_BYTES };
      this.addKeyScores(vectors, queries, this.#scratch.keysTransposed);
      this.locate(RDX, this.#statistics, this.#position, 2 * FLOAT_BYTES);
      code.constant(RAX, exponentialTable());
      const statistic = TILE * vectors;
      const spare = [statistic + 1, statistic + 2, statistic + 3] as const;
      this.#eachScore(vectors, (row, place, sum) => {
        // The largest score, then 1 / the sum of exponentials.
        code.broadcast(statistic, at(RDX, row * 2 * FLOAT_BYTES));
        code.vector("subtract", sum, sum, statistic);
        exponential(code, sum, RAX, spare);
        code.broadcast(statistic, at(RDX, row * 2 * FLOAT_BYTES + FLOAT_BYTES));
        code.vector("multiply", sum, sum, statistic);
        code.storeVector(place, sum);
      });
    });
    this.hide(this.#position, at(RSI), 0);
  }

  /** Gradients of the tile's scores: weight · (dWeight - delta). */
  #computeDScores(): void {
    const { code } = this;
    const { outToken, padded } = this.sizes;
    this.eachKeyTile((vectors) => {
      this.zeroSums(vectors);
      this.locate(RDI, this.#dOut, this.#position, outToken);
      const gradients = { register: RDI, row: outToken, step: FLOAT_BYTES };
      this.addKeyScores(vectors, gradients, this.#scratch.valuesTransposed);
      this.locate(RSI, this.#scratch.weights, this.#inBlock, padded);
      const delta = TILE * vectors;
      this.#eachScore(vectors, (row, place, sum) => {
        code.broadcast(delta, shifted(this.#deltas, row * FLOAT_BYTES));
        code.vector("subtract", sum, sum, delta);
        code.vector("multiply", sum, sum, place);
      });
      this.locate(RSI, this.#scratch.dScores, this.#inBlock, padded);
      this.#eachScore(vectors, (_, place, sum) => code.storeVector(place, sum));
    });
  }

  /** Gradients of the tile's queries, rotated back into the result. */
  #computeDQueries(): void {
    const { kernel, code } = this;
    const { headWidth, scale } = this.shape;
    const { head, token, padded, vector: bytes } = this.sizes;
    for (const { from, vectors } of this.headParts()) {
      this.zeroSums(vectors);
      this.locate(RDI, this.#scratch.dScores, this.#inBlock, padded);
      this.addKeyRows(vectors, this.#position, this.#scratch.keys, from, head);
      this.eachSum(vectors, (row, vector, sum) => {
        code.storeVector(shifted(this.#dQueries, row * head + FLOAT_BYTES * from + vector * bytes), sum);
      });
    }
    for (let row = 0; row < TILE; row++) {
      code.addressOf(RAX, shifted(this.#dQueries, row * head));
      this.setAngles(this.#position, row);
      this.locate(RDX, this.#dQuery, this.#position, token, row * token);
      kernel.rotate(at(RDX), headWidth, { scale, sign: -1 });
    }
  }

  /** Adds a block's terms to the gradients of the keys and values that the block sees. */
  #accumulateBlock(block: Address): void {
    const { kernel, code } = this;
    const { dKeys, dScores, queries, dValues, weights } = this.#scratch;
    kernel.set(this.#position, 0);
    const nextKeys = code.label();
    code.place(nextKeys);
    const later = code.label();
    code.move(RAX, this.#position);
    code.compare(RAX, block);
    code.jumpIf("atLeast", later);
    code.move(RAX, block);
    code.place(later);
    code.store(this.#firstQuery, RAX);
    this.#accumulate(block, { sums: dKeys, factors: dScores, rows: queries, ofBlock: true });
    this.#accumulate(block, { sums: dValues, factors: weights, rows: this.#dOut, ofBlock: false });
    kernel.advance(this.#position, TILE);
    code.compare(RAX, this.#blockEnd);
    code.jumpIf("less", nextKeys);
  }

  /**
   * Adds to the gradients of a tile of keys, or of their values: Σ `factors`[query][key] · `rows`[query] over the block's queries that see
   * the tile. `rows` begins at the block's first query (`ofBlock`: queries) or at the row's first token (gradients of `out`).
   */
  #accumulate(
    block: Address,
    { sums, factors, rows, ofBlock }: { sums: Address; factors: Address; rows: Address; ofBlock: boolean },
  ): void {
    const { code } = this;
    const { head, padded, outToken, vector: bytes } = this.sizes;
    const rowBytes = ofBlock ? head : outToken;
    for (const { from, vectors } of this.headParts()) {
      this.locate(RSI, sums, this.#position, head, FLOAT_BYTES * from);
      const place = (row: number, vector: number) => at(RSI, row * head + vector * bytes);
      this.eachSum(vectors, (row, vector, sum) => code.loadVector(sum, place(row, vector)));
      // rdx = the first query, counted from the block's first; rcx = the number of queries.
      code.move(RDX, this.#firstQuery);
      code.move(RCX, this.#blockEnd);
      code.subtract(RCX, RDX);
      code.subtract(RDX, block);
      code.multiplyConstant(RDI, RDX, padded);
      code.add(RDI, factors);
      code.move(RAX, this.#position);
      code.addressOf(RDI, atIndex(RDI, RAX, FLOAT_BYTES));
      code.move(R8, ofBlock ? RDX : this.#firstQuery);
      code.multiplyConstant(R8, R8, rowBytes);
      code.add(R8, rows);
      if (from > 0) code.addConstant(R8, FLOAT_BYTES * from);
      const left = { register: RDI, row: FLOAT_BYTES, step: padded };
      this.addProduct(vectors, left, { register: R8, step: rowBytes });
      this.eachSum(vectors, (row, vector, sum) => code.storeVector(place(row, vector), sum));
    }
  }

  /** Writes a head's gradients of keys, rotated back, and of values into the result. */
  #writeKeysAndValues(): void {
    const { kernel, code } = this;
    const { head, token, vector } = this.sizes;
    kernel.loop(this.shape.tokens, 1, (t) => {
      this.locate(RAX, this.#scratch.dKeys, t, head);
      this.setAngles(t);
      this.locate(RDX, this.#dKey, t, token);
      kernel.rotate(at(RDX), this.shape.headWidth, { sign: -1 });
      this.locate(RSI, this.#scratch.dValues, t, head);
      this.locate(RDX, this.#dValue, t, token);
      for (let i = 0; i < head; i += vector) {
        code.loadVector(0, at(RSI, i));
        code.storeVector(at(RDX, i), 0);
      }
    });
  }
}

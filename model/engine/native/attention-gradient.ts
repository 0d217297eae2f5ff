/**
 * The kernel of the gradient of causal self-attention over a prefix tree (policy/attention.ts has the definition; attention-tiles.ts explains
 * the letters and registers). The kernel computes the weights again, from each query's largest score and the sum of its exponentials.
 *
 * For each key/value head, each branch, and each query head of the group, it takes blocks of 64 queries:
 *
 * 1. for each tile of four queries in the block: the weights, the gradients of the scores and of the queries
 * 2. for each tile of four keys that the block sees: the block's terms of the gradients of keys and values
 *
 * After each branch it writes the gradients of the path's keys and values. The sums of shared keys and values stay in the scratch, where
 * later branches add their terms.
 *
 * Source: FlashAttention-2, https://arxiv.org/abs/2307.08691.
 */
import { roundUp } from "../graph.ts";
import { type Address, at, atIndex } from "./assembler.ts";
import { checkShape, STATISTICS_BYTES, TILE, TileWriter, type TreeShape } from "./attention-tiles.ts";
import { exponential, exponentialTable } from "./exponential.ts";
import { CACHE_LINE_BYTES, FLOAT_BYTES, shifted, WORD_BYTES } from "./kernel.ts";
import type { MachineCodeOperator } from "./operator.ts";
import { R8, R9, R11, RAX, RCX, RDI, RDX, RSI } from "./registers.ts";

/** Number of queries whose weights are in memory at once. */
const QUERY_BLOCK = 64;

/** Inputs: qkv, branches, cos, sin, isRead, out, the gradient of out, the second output of `attentionOperator`. Outputs: the gradient of qkv; scratch. */
export function attentionGradientOperator(shape: TreeShape): MachineCodeOperator {
  const { tokens, heads, kvHeads, headWidth } = shape;
  checkShape(shape);
  return {
    inputs: ["float32", "int32", "float32", "float32", "int32", "float32", "float32", "float32"],
    outputs: [[tokens, (heads + 2 * kvHeads) * headWidth], [scratchOf(shape).floats]],
    write: (kernel) => new AttentionGradientWriter(kernel, shape).write(),
  };
}

/** Offsets of the arrays in the scratch, in bytes, and the number of floats of all arrays. Each array begins at a cache line of the scratch. */
function scratchOf({ tokens, length, headWidth }: TreeShape) {
  const block = Math.min(QUERY_BLOCK, tokens);
  const arrays = {
    // The rotated keys and the values of the current path.
    keysTransposed: headWidth * length,
    valuesTransposed: headWidth * length,
    keys: length * headWidth,
    values: length * headWidth,
    // The offset in the result of each token of the path, in 64 bits.
    offsets: 2 * length,
    // The rotated queries of the current block.
    queries: block * headWidth,
    // The gradients of the path's rotated keys and of its values: sums over query heads and branches.
    dKeys: length * headWidth,
    dValues: length * headWidth,
    // One number for each query of the current block and each key.
    weights: block * length,
    dScores: block * length,
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
  readonly #query = this.tokenTensor(this.sizes.token);
  readonly #key = this.tokenTensor(this.sizes.token);
  readonly #value = this.tokenTensor(this.sizes.token);
  readonly #out = this.tokenTensor(this.sizes.outToken);
  readonly #dOut = this.tokenTensor(this.sizes.outToken);
  readonly #statistic = this.tokenTensor(STATISTICS_BYTES);
  readonly #dQuery = this.tokenTensor(this.sizes.token);
  /** Variables: addresses of the current head's gradients in the first of the N tokens. */
  readonly #dKeys = this.kernel.word();
  readonly #dValues = this.kernel.word();
  /** Variables: addresses of the arrays in the scratch. */
  readonly #scratch: Readonly<Record<ScratchArray, Address>> = this.#scratchVariables();
  /** The gradients of a tile's queries, (4, D), before they are rotated back. */
  readonly #dRotated = this.kernel.memory(TILE * this.sizes.head);
  /** For each query of a tile, the dot product of `out` and the gradient of `out`. */
  readonly #deltas = this.kernel.memory(TILE * FLOAT_BYTES);
  /** Variable: the end of the current block of queries. */
  readonly #blockEnd = this.kernel.word();
  /** Variable: the block's first query that sees a key of the current tile of keys. */
  readonly #firstQuery = this.kernel.word();
  /** Variable: the first query of the current tile, counted from the block's first query. */
  readonly #inBlock = this.kernel.word();
  /** Variable: the first query of the current block. */
  readonly #block = this.kernel.word();

  #scratchVariables(): Record<ScratchArray, Address> {
    const names = Object.keys(scratchOf(this.shape).offsets);
    return Object.fromEntries(names.map((name) => [name, this.kernel.word()])) as Record<ScratchArray, Address>;
  }

  write(): void {
    const { kernel } = this;
    const { tokens, kvHeads, heads } = this.shape;
    const { head } = this.sizes;
    const group = heads / kvHeads;
    this.#setVariables();
    kernel.loop(kvHeads, 1, () => {
      this.eachBranch(() => {
        this.setToBranch([this.#query, this.#key, this.#value, this.#dQuery, this.#out, this.#dOut, this.#statistic]);
        this.#prepareKeys();
        kernel.loop(group, 1, () => {
          kernel.loopFrom(this.#block, this.shared, this.end, QUERY_BLOCK, () => {
            this.#setBlockEnd();
            this.#computeBlock();
            this.#accumulateBlock();
          });
          for (const { inBranch } of [this.#query, this.#dQuery, this.#out, this.#dOut]) kernel.advance(inBranch, head);
          kernel.advance(this.#statistic.inBranch, STATISTICS_BYTES * tokens);
        });
        this.#writeKeysAndValues();
      });
      const ofQueries = [this.#query, this.#dQuery, this.#out, this.#dOut];
      for (const { first } of ofQueries) kernel.advance(first, group * head);
      for (const variable of [this.#key.first, this.#value.first, this.#dKeys, this.#dValues])
        kernel.advance(variable, head);
      kernel.advance(this.#statistic.first, group * STATISTICS_BYTES * tokens);
    });
  }

  #setVariables(): void {
    const { kernel } = this;
    const [qkv, , , , , out, dOut, statistics] = kernel.inputs;
    const [dQkv, scratch] = kernel.outputs;
    for (const [name, offset] of Object.entries(scratchOf(this.shape).offsets)) {
      kernel.set(this.#scratch[name as ScratchArray], scratch!);
      kernel.advance(this.#scratch[name as ScratchArray], offset);
    }
    kernel.setToParts(qkv!, this.shape, [this.#query.first, this.#key.first, this.#value.first]);
    kernel.setToParts(dQkv!, this.shape, [this.#dQuery.first, this.#dKeys, this.#dValues]);
    kernel.set(this.#out.first, out!);
    kernel.set(this.#dOut.first, dOut!);
    kernel.set(this.#statistic.first, statistics!);
  }

  /** Adds the branch's keys and values to those of the path, and sets the sums of their gradients to 0. */
  #prepareKeys(): void {
    const { code } = this;
    const { head, token, vector } = this.sizes;
    const scratch = this.#scratch;
    this.eachPosition(1, () => {
      this.addToPath(this.#key, this.#value, scratch.keys, scratch.values);
      code.zero(0);
      for (const sums of [scratch.dKeys, scratch.dValues]) {
        this.locate(RDX, sums, this.position, head);
        for (let i = 0; i < head; i += vector) code.storeVector(at(RDX, i), 0);
      }
      code.move(RAX, this.position);
      code.add(RAX, this.offset);
      code.multiplyConstant(RAX, RAX, token);
      this.locate(RDX, scratch.offsets, this.position, WORD_BYTES);
      code.store(at(RDX), RAX);
    });
    this.transpose(scratch.keys, scratch.keysTransposed);
    this.transpose(scratch.values, scratch.valuesTransposed);
  }

  #setBlockEnd(): void {
    const { code } = this;
    const whole = code.label();
    code.move(RAX, this.#block);
    code.addConstant(RAX, QUERY_BLOCK);
    code.compare(RAX, this.end);
    code.jumpIf("atMost", whole);
    code.move(RAX, this.end);
    code.place(whole);
    code.store(this.#blockEnd, RAX);
  }

  /** The weights, the gradients of scores and the gradients of queries of a block. */
  #computeBlock(): void {
    const { kernel } = this;
    kernel.set(this.#inBlock, 0);
    kernel.loopFrom(this.position, this.#block, this.#blockEnd, TILE, () => {
      this.ifRead(
        () => {
          this.#prepareQueries();
          this.#computeWeights();
          this.#computeDScores();
          this.#computeDQueries();
        },
        () => this.#zeroDQueries(),
      );
      kernel.advance(this.#inBlock, TILE);
    });
  }

  /** Rotates the queries of a tile, and computes `#deltas`. */
  #prepareQueries(): void {
    const { kernel, code } = this;
    const { headWidth, scale } = this.shape;
    const { head, vector } = this.sizes;
    for (let row = 0; row < TILE; row++) {
      this.locateToken(RAX, this.#query, row);
      this.setAngles(row);
      this.locate(RDX, this.#scratch.queries, this.#inBlock, head, row * head);
      kernel.rotate(at(RDX), headWidth, { scale });
      this.locateToken(RSI, this.#out, row);
      this.locateToken(RDI, this.#dOut, row);
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

  /** Runs `body` for each sum of a tile of keys. rsi is the address of the tile's queries in an array of (block, T). */
  #eachScore(vectors: number, body: (row: number, place: Address, sum: number) => void): void {
    const { path, vector: bytes } = this.sizes;
    this.eachSum(vectors, (row, vector, sum) => {
      body(row, atIndex(RSI, R11, FLOAT_BYTES, row * path + vector * bytes), sum);
    });
  }

  /** Weights of the tile's queries, 0 where a query does not see a key. Sets r10 for the tile. */
  #computeWeights(): void {
    const { code } = this;
    const { head, path } = this.sizes;
    this.setKeyEnd();
    this.locate(RSI, this.#scratch.weights, this.#inBlock, path);
    this.eachKeyTile((vectors) => {
      this.zeroSums(vectors);
      this.locate(RDI, this.#scratch.queries, this.#inBlock, head);
      const queries = { register: RDI, row: head, step: FLOAT_BYTES };
      this.addKeyScores(vectors, queries, this.#scratch.keysTransposed);
      this.locateToken(RDX, this.#statistic);
      code.constant(RAX, exponentialTable());
      const statistic = TILE * vectors;
      const spare = [statistic + 1, statistic + 2, statistic + 3] as const;
      this.#eachScore(vectors, (row, place, sum) => {
        // The largest score, then 1 / the sum of exponentials.
        code.broadcast(statistic, at(RDX, row * STATISTICS_BYTES));
        code.vector("subtract", sum, sum, statistic);
        exponential(code, sum, RAX, spare);
        code.broadcast(statistic, at(RDX, row * STATISTICS_BYTES + FLOAT_BYTES));
        code.vector("multiply", sum, sum, statistic);
        code.storeVector(place, sum);
      });
    });
    this.hide(at(RSI), 0);
  }

  /** Gradients of the tile's scores: weight · (dWeight - delta). */
  #computeDScores(): void {
    const { code } = this;
    const { outToken, path } = this.sizes;
    this.eachKeyTile((vectors) => {
      this.zeroSums(vectors);
      this.locateToken(RDI, this.#dOut);
      const gradients = { register: RDI, row: outToken, step: FLOAT_BYTES };
      this.addKeyScores(vectors, gradients, this.#scratch.valuesTransposed);
      this.locate(RSI, this.#scratch.weights, this.#inBlock, path);
      const delta = TILE * vectors;
      this.#eachScore(vectors, (row, place, sum) => {
        code.broadcast(delta, shifted(this.#deltas, row * FLOAT_BYTES));
        code.vector("subtract", sum, sum, delta);
        code.vector("multiply", sum, sum, place);
      });
      this.locate(RSI, this.#scratch.dScores, this.#inBlock, path);
      this.#eachScore(vectors, (_, place, sum) => code.storeVector(place, sum));
    });
  }

  /** Gradients of the tile's queries, rotated back into the result. */
  #computeDQueries(): void {
    const { kernel, code } = this;
    const { headWidth, scale } = this.shape;
    const { head, path, vector: bytes } = this.sizes;
    for (const { from, vectors } of this.headParts()) {
      this.zeroSums(vectors);
      this.locate(RDI, this.#scratch.dScores, this.#inBlock, path);
      this.addKeyRows(vectors, this.#scratch.keys, from);
      this.eachSum(vectors, (row, vector, sum) => {
        code.storeVector(shifted(this.#dRotated, row * head + FLOAT_BYTES * from + vector * bytes), sum);
      });
    }
    for (let row = 0; row < TILE; row++) {
      code.addressOf(RAX, shifted(this.#dRotated, row * head));
      this.setAngles(row);
      this.locateToken(RDX, this.#dQuery, row);
      kernel.rotate(at(RDX), headWidth, { scale, sign: -1 });
    }
  }

  /** The gradients of four queries whose results no operator reads. */
  #zeroDQueries(): void {
    const { code } = this;
    const { head, token, vector } = this.sizes;
    this.locateToken(RDX, this.#dQuery);
    code.zero(0);
    for (let row = 0; row < TILE; row++)
      for (let i = 0; i < head; i += vector) code.storeVector(at(RDX, row * token + i), 0);
  }

  /** Adds a block's terms to the gradients of the keys and values that the block sees. */
  #accumulateBlock(): void {
    const { kernel, code } = this;
    const { dKeys, dScores, queries, dValues, weights } = this.#scratch;
    kernel.loopFrom(this.position, 0, this.#blockEnd, TILE, () => {
      const later = code.label();
      code.move(RAX, this.position);
      code.compare(RAX, this.#block);
      code.jumpIf("atLeast", later);
      code.move(RAX, this.#block);
      code.place(later);
      code.store(this.#firstQuery, RAX);
      this.#accumulate({ sums: dKeys, factors: dScores, rows: queries, ofBlock: true });
      this.#accumulate({ sums: dValues, factors: weights, rows: this.#dOut.inBranch, ofBlock: false });
    });
  }

  /**
   * Adds to the gradients of a tile of keys, or of their values: Σ `factors`[query][key] · `rows`[query] over the block's queries that see
   * the tile. `rows` begins at the block's first query (`ofBlock`: queries) or at position 0 (gradients of `out`).
   */
  #accumulate({ sums, factors, rows, ofBlock }: { sums: Address; factors: Address; rows: Address; ofBlock: boolean }) {
    const { code } = this;
    const { head, path, outToken, vector: bytes } = this.sizes;
    const rowBytes = ofBlock ? head : outToken;
    for (const { from, vectors } of this.headParts()) {
      this.locate(RSI, sums, this.position, head, FLOAT_BYTES * from);
      const place = (row: number, vector: number) => at(RSI, row * head + vector * bytes);
      this.eachSum(vectors, (row, vector, sum) => code.loadVector(sum, place(row, vector)));
      // rdx = the first query, counted from the block's first; rcx = the number of queries.
      code.move(RDX, this.#firstQuery);
      code.move(RCX, this.#blockEnd);
      code.subtract(RCX, RDX);
      code.subtract(RDX, this.#block);
      code.multiplyConstant(RDI, RDX, path);
      code.add(RDI, factors);
      code.move(RAX, this.position);
      code.addressOf(RDI, atIndex(RDI, RAX, FLOAT_BYTES));
      code.move(R8, ofBlock ? RDX : this.#firstQuery);
      code.multiplyConstant(R8, R8, rowBytes);
      code.add(R8, rows);
      if (from > 0) code.addConstant(R8, FLOAT_BYTES * from);
      const left = { register: RDI, row: FLOAT_BYTES, step: path };
      this.setToFlag(R9, this.#firstQuery);
      this.addProduct(vectors, left, { register: R8, step: rowBytes }, R9);
      this.eachSum(vectors, (row, vector, sum) => code.storeVector(place(row, vector), sum));
    }
  }

  /** Writes the gradients of the path's keys (rotated back) and values. If a later branch shares a key, it overwrites the key's gradient. */
  #writeKeysAndValues(): void {
    const { kernel, code } = this;
    const { head } = this.sizes;
    const { dKeys, dValues, offsets } = this.#scratch;
    kernel.loopFrom(this.position, 0, this.end, 1, () => {
      this.locate(RAX, dKeys, this.position, head);
      this.setAngles();
      this.locate(RSI, offsets, this.position, WORD_BYTES);
      code.move(RSI, at(RSI));
      code.move(RDX, RSI);
      code.add(RDX, this.#dKeys);
      kernel.rotate(at(RDX), this.shape.headWidth, { sign: -1 });
      code.move(RDI, RSI);
      code.add(RDI, this.#dValues);
      this.locate(RSI, dValues, this.position, head);
      this.copyHead(RDI, RSI);
    });
  }
}

/**
 * The kernels of causal self-attention over whole sequences (policy/attention.ts) and of its gradient.
 *
 * B rows, T tokens, H query heads, K key/value heads, G = H / K, D head width, P = T rounded up to whole vectors.
 *
 * - The kernels compute four queries at a time over the keys that these queries see, so they need no mask and no (T, T) memory.
 * - A product has one factor whose rows are vectors and one whose numbers are broadcast. So keys and values are also kept transposed,
 *   (D, P), where their tokens must be the vector.
 * - The gradient computes the weights again, from each query's largest score and the sum of its exponentials.
 *
 * Source: FlashAttention-2, https://arxiv.org/abs/2307.08691 (the gradient's formulas and the recomputed weights).
 */
import { roundUp } from "../graph.ts";
import {
  type Address,
  type Assembler,
  at,
  atIndex,
  R8,
  R10,
  R11,
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

export interface WholeShape {
  readonly rows: number;
  /** A multiple of 4. */
  readonly tokens: number;
  readonly heads: number;
  readonly kvHeads: number;
  /** A multiple of 16. */
  readonly headWidth: number;
  readonly scale: number;
}

/** Queries, or keys, of a tile. */
export const TILE = 4;
/** Queries whose weights are in memory at once in the gradient. */
const BLOCK = 64;
/** Keys are padded to a multiple of this. */
const KEYS = 16;
/** Score of a token that the query does not see. */
const HIDDEN = -1e30;

/** Inputs: qkv, cos, sin. Outputs: out; the largest score and 1 / the sum of exponentials of each query, (B, H, T, 2); scratch. */
export function attentionOperator(shape: WholeShape): MachineOperator {
  const { rows, tokens, heads, headWidth } = shape;
  checkShape(shape);
  return {
    inputs: ["float32", "float32", "float32"],
    outputs: [[rows, tokens, heads * headWidth], [rows, heads, tokens, 2], [headWidth * roundUp(tokens, KEYS)]],
    write: (kernel) => new Forward(kernel, shape).write(),
  };
}

/** Inputs: qkv, cos, sin, out, the gradient of out, the second output of `attentionOperator`. Outputs: the gradient of qkv; scratch. */
export function attentionGradientOperator(shape: WholeShape): MachineOperator {
  const { rows, tokens, heads, kvHeads, headWidth } = shape;
  checkShape(shape);
  return {
    inputs: Array.from({ length: 6 }, () => "float32"),
    outputs: [[rows, tokens, (heads + 2 * kvHeads) * headWidth], [gradientScratch(shape).floats]],
    write: (kernel) => new Backward(kernel, shape).write(),
  };
}

function checkShape({ tokens, headWidth }: WholeShape): void {
  checkMultiple("number of tokens", tokens, TILE);
  checkMultiple("headWidth", headWidth, 16);
}

/** A factor of a product: the register of its address, and the bytes from one row, or one step of the sum, to the next. */
interface Factor {
  readonly register: number;
  readonly row: number;
  readonly step: number;
}

/** What both kernels share. */
class Attention {
  protected readonly kernel: Kernel;
  protected readonly code: Assembler;
  protected readonly shape: WholeShape;
  /** Bytes of parts of the tensors; `group` is G. */
  protected readonly sizes: Readonly<Record<"vector" | "head" | "token" | "outToken" | "padded" | "group", number>>;
  /** Most vectors of keys in a tile. */
  protected readonly keyVectors: number;

  constructor(kernel: Kernel, shape: WholeShape) {
    this.kernel = kernel;
    this.code = kernel.code;
    this.shape = shape;
    const { tokens, heads, kvHeads, headWidth } = shape;
    const head = FLOAT * headWidth;
    this.sizes = {
      vector: FLOAT * this.code.vectorWidth,
      head,
      token: (heads + 2 * kvHeads) * head,
      outToken: heads * head,
      padded: FLOAT * roundUp(tokens, KEYS),
      group: heads / kvHeads,
    };
    this.keyVectors = this.code.vectorWidth === 16 ? 4 : 2;
  }

  /** `register` = `base` + `index` · `bytes` + `offset` */
  protected locate(register: number, base: Address, index: Address, bytes: number, offset = 0): void {
    this.code.move(register, index);
    this.code.multiply(register, register, bytes);
    this.code.addFrom(register, base);
    if (offset !== 0) this.code.add(register, offset);
  }

  /** Sets r14 and r15 to the angles of the token at `position` + `ahead`. */
  protected angles(position: Address, ahead = 0): void {
    const half = this.sizes.head / 2;
    this.locate(R14, this.kernel.inputs[1]!, position, half, ahead * half);
    this.locate(R15, this.kernel.inputs[2]!, position, half, ahead * half);
  }

  /** Writes (D) at `from` as a column of the (D, P) matrix, to the addresses rdx, rdx + P, … Overwrites rcx. */
  protected writeColumn(from: Address): void {
    for (let d = 0; d < this.shape.headWidth; d++) {
      this.code.load32(RCX, { ...from, offset: from.offset + FLOAT * d });
      this.code.store32(at(RDX, d * this.sizes.padded), RCX);
    }
  }

  /** Register of a sum. */
  protected sum(row: number, vector: number, vectors: number): number {
    return row * vectors + vector;
  }

  protected zeroSums(vectors: number): void {
    for (let i = 0; i < TILE * vectors; i++) this.code.zero(i);
  }

  /**
   * Adds a product to the sums of a tile, (4, vectors): `sum[row] += Σ a[row][step] · b[step]`. The number of steps is in rcx, a
   * multiple of 4. Moves the registers of both factors.
   */
  protected product(vectors: number, a: Factor, b: Factor): void {
    const code = this.code;
    const first = TILE * vectors;
    const broadcast = first + vectors;
    const again = code.label();
    code.place(again);
    for (let step = 0; step < 4; step++) {
      for (let j = 0; j < vectors; j++)
        code.loadVector(first + j, at(b.register, step * b.step + j * this.sizes.vector));
      for (let row = 0; row < TILE; row++) {
        code.broadcast(broadcast, at(a.register, row * a.row + step * a.step));
        for (let j = 0; j < vectors; j++) code.multiplyAdd(this.sum(row, j, vectors), broadcast, first + j);
      }
    }
    code.add(a.register, 4 * a.step);
    code.add(b.register, 4 * b.step);
    code.add(RCX, -4);
    code.jumpIf("more", again);
  }

  /** Runs `body` for the vectors of the keys before r10, of which r11 is the first: with several vectors at once, then with one or two. */
  protected eachKeyTile(body: (vectors: number) => void): void {
    const { code, kernel } = this;
    const least = KEYS / code.vectorWidth;
    code.constant(R11, 0);
    code.move(RBX, R10);
    for (const vectors of new Set([this.keyVectors, least])) {
      const keys = vectors * code.vectorWidth;
      kernel.whileAtLeast(RBX, keys, () => {
        body(vectors);
        code.add(R11, keys);
        code.add(RBX, -keys);
      });
    }
  }

  /** Sets r10 to the end of the keys that the tile of queries at `position` sees, rounded up. */
  protected setKeyEnd(position: Address): void {
    this.code.move(R10, position);
    this.code.add(R10, TILE - 1);
    this.code.and(R10, -KEYS);
    this.code.add(R10, KEYS);
  }

  /** Stores a number over those keys before r10 that a query of the tile at `position` does not see. @param rows  (4, P) */
  protected hide(position: Address, rows: Address, value: number): void {
    const code = this.code;
    code.constant(RDX, floatBits(value));
    for (let row = 0; row < TILE; row++) {
      code.move(RAX, position);
      code.add(RAX, row + 1);
      const [again, done] = [code.label(), code.label()];
      code.place(again);
      code.compare(RAX, R10);
      code.jumpIf("atLeast", done);
      code.store32({ ...rows, index: RAX, scale: 4, offset: rows.offset + row * this.sizes.padded }, RDX);
      code.add(RAX, 1);
      code.jump(again);
      code.place(done);
    }
  }

  /** The parts of a head that a tile sums at once: the first float of each, and the number of vectors. */
  protected headParts(): { from: number; vectors: number }[] {
    const { headWidth } = this.shape;
    const widest = this.keyVectors * this.code.vectorWidth;
    return Array.from({ length: Math.ceil(headWidth / widest) }, (_, i) => {
      const from = i * widest;
      return { from, vectors: Math.min(widest, headWidth - from) / this.code.vectorWidth };
    });
  }
}

class Forward extends Attention {
  write(): void {
    const { kernel, code, shape, sizes } = this;
    const { rows, tokens, kvHeads, heads, headWidth } = shape;
    const { head, token, outToken, padded, group } = sizes;
    const [query, key, value, out, statistics] = Array.from({ length: 5 }, () => kernel.word()) as Address[];
    const transposed = kernel.outputs[2]!;
    const rotated = at(RSP, kernel.memory(head));
    const queries = at(RSP, kernel.memory(TILE * head));
    const weights = at(RSP, kernel.memory(TILE * padded));
    kernel.set(query!, kernel.inputs[0]!);
    for (const [part, start] of [
      [key!, heads * head],
      [value!, (heads + kvHeads) * head],
    ] as const) {
      kernel.set(part, kernel.inputs[0]!);
      kernel.advance(part, start);
    }
    kernel.set(out!, kernel.outputs[0]!);
    kernel.set(statistics!, kernel.outputs[1]!);
    kernel.loop(rows, 1, () => {
      kernel.loop(kvHeads, 1, () => {
        kernel.loop(tokens, 1, (t) => {
          this.locate(RAX, key!, t, token);
          this.angles(t);
          kernel.rotate(rotated, headWidth);
          this.locate(RDX, transposed, t, FLOAT);
          this.writeColumn(rotated);
        });
        kernel.loop(group, 1, () => {
          kernel.loop(tokens, TILE, (position) => {
            for (let row = 0; row < TILE; row++) {
              this.locate(RAX, query!, position, token, row * token);
              this.angles(position, row);
              kernel.rotate(at(RSP, queries.offset + row * head), headWidth, { scale: shape.scale });
            }
            this.setKeyEnd(position);
            this.eachKeyTile((vectors) => {
              this.zeroSums(vectors);
              code.addressOf(RDI, queries);
              code.move(R8, transposed);
              code.addressOf(R8, atIndex(R8, R11, FLOAT));
              code.constant(RCX, headWidth);
              this.product(vectors, { register: RDI, row: head, step: FLOAT }, { register: R8, row: 0, step: padded });
              for (let row = 0; row < TILE; row++)
                for (let j = 0; j < vectors; j++) {
                  const place = weights.offset + row * padded + j * sizes.vector;
                  code.storeVector(atIndex(RSP, R11, FLOAT, place), this.sum(row, j, vectors));
                }
            });
            this.hide(position, weights, HIDDEN);
            this.locate(RDX, statistics!, position, 2 * FLOAT);
            for (let row = 0; row < TILE; row++)
              this.#softmax(at(RSP, weights.offset + row * padded), at(RDX, row * 2 * FLOAT));
            for (const { from, vectors } of this.headParts()) {
              this.zeroSums(vectors);
              code.addressOf(RDI, weights);
              code.move(R8, value!);
              if (from > 0) code.add(R8, FLOAT * from);
              code.move(RCX, position);
              code.add(RCX, TILE);
              this.product(vectors, { register: RDI, row: padded, step: FLOAT }, { register: R8, row: 0, step: token });
              this.locate(RSI, out!, position, outToken);
              this.locate(RDX, statistics!, position, 2 * FLOAT);
              const factor = TILE * vectors;
              for (let row = 0; row < TILE; row++) {
                code.broadcast(factor, at(RDX, row * 2 * FLOAT + FLOAT));
                for (let j = 0; j < vectors; j++) {
                  const sum = this.sum(row, j, vectors);
                  code.vector("multiply", sum, sum, factor);
                  code.storeVector(at(RSI, row * outToken + FLOAT * from + j * sizes.vector), sum);
                }
              }
            }
          });
          kernel.advance(query!, head);
          kernel.advance(out!, head);
          kernel.advance(statistics!, 2 * FLOAT * tokens);
        });
        kernel.advance(key!, head);
        kernel.advance(value!, head);
      });
      kernel.advance(query!, tokens * token - heads * head);
      kernel.advance(out!, (tokens - 1) * outToken);
      kernel.advance(key!, tokens * token - kvHeads * head);
      kernel.advance(value!, tokens * token - kvHeads * head);
    });
  }

  /** Replaces the scores of a query by e^(score - largest), and stores the largest and 1 / the sum. r10 is the number of scores. */
  #softmax(scores: Address, statistics: Address): void {
    const { code, kernel } = this;
    const [x, largest, total, one] = [0, 9, 10, 11];
    const each = (body: (place: Address) => void) => {
      code.addressOf(RSI, scores);
      code.move(RCX, R10);
      const again = code.label();
      code.place(again);
      body(at(RSI));
      code.add(RSI, this.sizes.vector);
      code.add(RCX, -code.vectorWidth);
      code.jumpIf("more", again);
    };
    code.loadVector(largest, scores);
    each((place) => code.vector("maximum", largest, largest, place));
    code.reduce("maximum", largest, largest, x);
    code.constant(RAX, exponentialTable());
    code.zero(total);
    each((place) => {
      code.loadVector(x, place);
      code.vector("subtract", x, x, largest);
      exponential(code, x, RAX, [12, 13, 14]);
      code.vector("add", total, total, x);
      code.storeVector(place, x);
    });
    code.reduce("add", total, total, x);
    kernel.number(one, 1);
    code.vector("divide", one, one, total);
    code.storeFloat(statistics, largest);
    code.storeFloat({ ...statistics, offset: statistics.offset + FLOAT }, one);
  }
}

/** Places of the gradient's parts in its scratch, in bytes. */
function gradientScratch({ tokens, headWidth }: WholeShape) {
  const padded = roundUp(tokens, KEYS);
  const block = Math.min(BLOCK, tokens);
  const parts = {
    keysTransposed: headWidth * padded,
    valuesTransposed: headWidth * padded,
    keys: tokens * headWidth,
    queries: block * headWidth,
    dKeys: tokens * headWidth,
    dValues: tokens * headWidth,
    weights: block * padded,
    dScores: block * padded,
  };
  let floats = 0;
  const places = Object.fromEntries(
    Object.entries(parts).map(([name, count]) => {
      const place = FLOAT * floats;
      floats += roundUp(count, KEYS);
      return [name, place];
    }),
  ) as Record<keyof typeof parts, number>;
  return { places, floats };
}

class Backward extends Attention {
  write(): void {
    const { kernel, code, shape, sizes } = this;
    const { rows, tokens, kvHeads, heads, headWidth, scale } = shape;
    const { head, token, outToken, padded, group } = sizes;
    const { places } = gradientScratch(shape);
    const [qkv, , , outInput, dOutInput, statisticsInput] = kernel.inputs;
    const scratch = kernel.outputs[1]!;
    const word = () => kernel.word();
    const [query, key, value, out, dOut, statistics] = [word(), word(), word(), word(), word(), word()];
    const [dQuery, dKey, dValue] = [word(), word(), word()];
    const part = Object.fromEntries(Object.keys(places).map((name) => [name, word()])) as Record<
      keyof typeof places,
      Address
    >;
    for (const [name, place] of Object.entries(places)) {
      kernel.set(part[name as keyof typeof places], scratch);
      kernel.advance(part[name as keyof typeof places], place);
    }
    const starts = [0, heads * head, (heads + kvHeads) * head];
    for (const [i, variable] of [query, key, value].entries()) {
      kernel.set(variable, qkv!);
      kernel.advance(variable, starts[i]!);
    }
    for (const [i, variable] of [dQuery, dKey, dValue].entries()) {
      kernel.set(variable, kernel.outputs[0]!);
      kernel.advance(variable, starts[i]!);
    }
    kernel.set(out, outInput!);
    kernel.set(dOut, dOutInput!);
    kernel.set(statistics, statisticsInput!);
    const dQueries = at(RSP, kernel.memory(TILE * head));
    const deltas = at(RSP, kernel.memory(TILE * FLOAT));
    const [blockEnd, first] = [word(), word()];

    const prepareKeys = () =>
      kernel.loop(tokens, 1, (t) => {
        this.locate(RAX, key, t, token);
        this.angles(t);
        this.locate(RSI, part.keys, t, head);
        kernel.rotate(at(RSI), headWidth);
        this.locate(RDX, part.keysTransposed, t, FLOAT);
        this.writeColumn(at(RSI));
        this.locate(RSI, value, t, token);
        this.locate(RDX, part.valuesTransposed, t, FLOAT);
        this.writeColumn(at(RSI));
        code.zero(0);
        for (const name of ["dKeys", "dValues"] as const) {
          this.locate(RDX, part[name], t, head);
          for (let i = 0; i < head; i += sizes.vector) code.storeVector(at(RDX, i), 0);
        }
      });

    /** Rotates the queries of a tile, and sums the products of `out` and its gradient. */
    const prepareQueries = (position: Address, inBlock: Address) => {
      for (let row = 0; row < TILE; row++) {
        this.locate(RAX, query, position, token, row * token);
        this.angles(position, row);
        this.locate(RDX, part.queries, inBlock, head, row * head);
        kernel.rotate(at(RDX), headWidth, { scale });
        this.locate(RSI, out, position, outToken, row * outToken);
        this.locate(RDI, dOut, position, outToken, row * outToken);
        code.zero(1);
        for (let i = 0; i < head; i += sizes.vector) {
          code.loadVector(0, at(RSI, i));
          code.multiplyAdd(1, 0, at(RDI, i));
        }
        code.reduce("add", 1, 1, 0);
        code.storeFloat({ ...deltas, offset: deltas.offset + row * FLOAT }, 1);
      }
    };

    const each = (vectors: number, body: (row: number, place: Address, sum: number) => void) => {
      for (let row = 0; row < TILE; row++)
        for (let j = 0; j < vectors; j++)
          body(row, atIndex(RSI, R11, FLOAT, row * padded + j * sizes.vector), this.sum(row, j, vectors));
    };

    /** Weights of the tile's queries, 0 where a query does not see a key. */
    const computeWeights = (position: Address, inBlock: Address) => {
      this.setKeyEnd(position);
      this.locate(RSI, part.weights, inBlock, padded);
      this.eachKeyTile((vectors) => {
        this.zeroSums(vectors);
        this.locate(RDI, part.queries, inBlock, head);
        code.move(R8, part.keysTransposed);
        code.addressOf(R8, atIndex(R8, R11, FLOAT));
        code.constant(RCX, headWidth);
        this.product(vectors, { register: RDI, row: head, step: FLOAT }, { register: R8, row: 0, step: padded });
        this.locate(RDX, statistics, position, 2 * FLOAT);
        code.constant(RAX, exponentialTable());
        const first = TILE * vectors;
        const spare = [first + 1, first + 2, first + 3] as const;
        each(vectors, (row, place, sum) => {
          code.broadcast(first, at(RDX, row * 2 * FLOAT));
          code.vector("subtract", sum, sum, first);
          exponential(code, sum, RAX, spare);
          code.broadcast(first, at(RDX, row * 2 * FLOAT + FLOAT));
          code.vector("multiply", sum, sum, first);
          code.storeVector(place, sum);
        });
      });
      this.hide(position, at(RSI), 0);
    };

    /** Gradients of the tile's scores: weight · (dWeight - delta). */
    const computeDScores = (position: Address, inBlock: Address) => {
      this.eachKeyTile((vectors) => {
        this.zeroSums(vectors);
        this.locate(RDI, dOut, position, outToken);
        code.move(R8, part.valuesTransposed);
        code.addressOf(R8, atIndex(R8, R11, FLOAT));
        code.constant(RCX, headWidth);
        this.product(vectors, { register: RDI, row: outToken, step: FLOAT }, { register: R8, row: 0, step: padded });
        this.locate(RSI, part.weights, inBlock, padded);
        const delta = TILE * vectors;
        each(vectors, (row, place, sum) => {
          code.broadcast(delta, { ...deltas, offset: deltas.offset + row * FLOAT });
          code.vector("subtract", sum, sum, delta);
          code.vector("multiply", sum, sum, place);
        });
        this.locate(RSI, part.dScores, inBlock, padded);
        each(vectors, (_, place, sum) => code.storeVector(place, sum));
      });
    };

    const computeDQueries = (position: Address, inBlock: Address) => {
      for (const { from, vectors } of this.headParts()) {
        this.zeroSums(vectors);
        this.locate(RDI, part.dScores, inBlock, padded);
        code.move(R8, part.keys);
        if (from > 0) code.add(R8, FLOAT * from);
        code.move(RCX, position);
        code.add(RCX, TILE);
        this.product(vectors, { register: RDI, row: padded, step: FLOAT }, { register: R8, row: 0, step: head });
        for (let row = 0; row < TILE; row++)
          for (let j = 0; j < vectors; j++)
            code.storeVector(
              { ...dQueries, offset: dQueries.offset + row * head + FLOAT * from + j * sizes.vector },
              this.sum(row, j, vectors),
            );
      }
      for (let row = 0; row < TILE; row++) {
        code.addressOf(RAX, { ...dQueries, offset: dQueries.offset + row * head });
        this.angles(position, row);
        this.locate(RDX, dQuery, position, token, row * token);
        kernel.rotate(at(RDX), headWidth, { scale, sign: -1 });
      }
    };

    /** Adds the block's part to the gradients of four keys, or of four values. */
    const accumulate = (
      sums: Address,
      factor: Address,
      [rowsAt, rowStep]: readonly [Address, number],
      [block, keys]: readonly [Address, Address],
    ) => {
      for (const { from, vectors } of this.headParts()) {
        this.locate(RSI, sums, keys, head, FLOAT * from);
        const places = (row: number, j: number) => at(RSI, row * head + j * sizes.vector);
        for (let row = 0; row < TILE; row++)
          for (let j = 0; j < vectors; j++) code.loadVector(this.sum(row, j, vectors), places(row, j));
        // The block's first query that sees one of these keys.
        code.move(RDX, first);
        code.move(RCX, blockEnd);
        code.subtractRegister(RCX, RDX);
        code.subtractFrom(RDX, block);
        code.multiply(RDI, RDX, padded);
        code.addFrom(RDI, factor);
        code.move(RAX, keys);
        code.addressOf(RDI, atIndex(RDI, RAX, FLOAT));
        code.move(R8, rowsAt === dOut ? first : RDX);
        code.multiply(R8, R8, rowStep);
        code.addFrom(R8, rowsAt);
        if (from > 0) code.add(R8, FLOAT * from);
        this.product(vectors, { register: RDI, row: FLOAT, step: padded }, { register: R8, row: 0, step: rowStep });
        for (let row = 0; row < TILE; row++)
          for (let j = 0; j < vectors; j++) code.storeVector(places(row, j), this.sum(row, j, vectors));
      }
    };

    const inBlock = word();
    const position = word();
    kernel.loop(rows, 1, () => {
      kernel.loop(kvHeads, 1, () => {
        prepareKeys();
        kernel.loop(group, 1, () => {
          kernel.loop(tokens, BLOCK, (block) => {
            const whole = code.label();
            code.move(RAX, block);
            code.add(RAX, BLOCK);
            code.compareTo(RAX, tokens);
            code.jumpIf("atMost", whole);
            code.constant(RAX, tokens);
            code.place(whole);
            code.store(blockEnd, RAX);
            kernel.set(position, block);
            kernel.set(inBlock, 0);
            const nextTile = code.label();
            code.place(nextTile);
            prepareQueries(position, inBlock);
            computeWeights(position, inBlock);
            computeDScores(position, inBlock);
            computeDQueries(position, inBlock);
            kernel.advance(inBlock, TILE);
            kernel.advance(position, TILE);
            code.compareFrom(RAX, blockEnd);
            code.jumpIf("less", nextTile);

            kernel.set(position, 0);
            const nextKeys = code.label();
            code.place(nextKeys);
            // The first query of the block that sees these keys.
            const later = code.label();
            code.move(RAX, position);
            code.compareFrom(RAX, block);
            code.jumpIf("atLeast", later);
            code.move(RAX, block);
            code.place(later);
            code.store(first, RAX);
            accumulate(part.dKeys, part.dScores, [part.queries, head], [block, position]);
            accumulate(part.dValues, part.weights, [dOut, outToken], [block, position]);
            kernel.advance(position, TILE);
            code.compareFrom(RAX, blockEnd);
            code.jumpIf("less", nextKeys);
          });
          kernel.advance(query, head);
          kernel.advance(dQuery, head);
          kernel.advance(out, head);
          kernel.advance(dOut, head);
          kernel.advance(statistics, 2 * FLOAT * tokens);
        });
        kernel.loop(tokens, 1, (t) => {
          this.locate(RAX, part.dKeys, t, head);
          this.angles(t);
          this.locate(RDX, dKey, t, token);
          kernel.rotate(at(RDX), headWidth, { sign: -1 });
          this.locate(RSI, part.dValues, t, head);
          this.locate(RDX, dValue, t, token);
          for (let i = 0; i < head; i += sizes.vector) {
            code.loadVector(0, at(RSI, i));
            code.storeVector(at(RDX, i), 0);
          }
        });
        for (const variable of [key, value, dKey, dValue]) kernel.advance(variable, head);
      });
      for (const variable of [query, dQuery]) kernel.advance(variable, tokens * token - heads * head);
      for (const variable of [key, value, dKey, dValue]) kernel.advance(variable, tokens * token - kvHeads * head);
      for (const variable of [out, dOut]) kernel.advance(variable, (tokens - 1) * outToken);
    });
  }
}

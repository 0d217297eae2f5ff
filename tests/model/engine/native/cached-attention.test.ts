/** The kernel of attention over a cache, against float64 at every position, and bit for bit against itself. */
import { describe, expect, test } from "bun:test";
import type { VectorWidth } from "../../../../model/engine/native/assembler.ts";
import { type CachedShape, cachedAttentionOperator } from "../../../../model/engine/native/cached-attention.ts";
import { farthest } from "../../farthest.ts";
import { randomFloats as random } from "../../policy/gradient-check.ts";
import { describeWidths, expectSameBits, runKernel, TestKernel } from "./machine-code.ts";
import { referenceAttention } from "./reference.ts";

type Shape = Omit<CachedShape, "rows" | "added" | "scale" | "half" | "slots" | "readsOne"> & {
  readonly scale?: number;
  readonly half?: boolean;
};

const tokenSize = ({ heads, kvHeads, headWidth }: Shape) => (heads + 2 * kvHeads) * headWidth;
/** For caches of 16-bit floats quarters of a turn, so that a rotated key is exact before it is rounded. */
function tables({ capacity, headWidth, half = false }: Shape) {
  const of = (name: string) =>
    random((capacity * headWidth) / 2, name).map((value) => (half ? Math.trunc(1.9 * value) : value));
  return { cos: of("cos"), sin: of("sin") };
}
const scaleOf = ({ scale, headWidth }: Shape) => scale ?? 1 / Math.sqrt(headWidth);

/** Rows of sequences in caches, which a kernel for each number of new tokens continues. */
class Sequences {
  readonly #shape: Shape;
  readonly #vectorWidth: VectorWidth;
  readonly #inPlace: boolean;
  readonly #kernels = new Map<number, TestKernel>();
  readonly rows: number;
  readonly lengths: Int32Array;
  keys: Float32Array;
  values: Float32Array;

  /** @param garbage  what a cache holds where no token was written */
  constructor(
    shape: Shape,
    vectorWidth: VectorWidth,
    { rows = 1, garbage = Number.NaN, inPlace = true }: { rows?: number; garbage?: number; inPlace?: boolean } = {},
  ) {
    this.#shape = shape;
    this.#vectorWidth = vectorWidth;
    this.#inPlace = inPlace;
    this.rows = rows;
    this.lengths = new Int32Array(rows);
    const size = (rows * shape.kvHeads * shape.capacity * shape.headWidth) / (shape.half ? 2 : 1);
    this.keys = new Float32Array(size).fill(garbage);
    this.values = new Float32Array(size).fill(garbage);
  }

  /** Appends the same number of tokens to every row. @param qkv  (rows, added, …) @returns (rows, added, H · D) */
  append(qkv: Float32Array): Float32Array {
    const added = qkv.length / tokenSize(this.#shape) / this.rows;
    const last = this.lengths.map((length) => length + added - 1);
    const kernel = this.#kernels.getOrInsertComputed(added, () => this.#kernel(added));
    for (const [index, values] of [qkv, this.keys, this.values, last].entries()) kernel.setInput(index, values);
    const [out, keys, values] = kernel.run();
    [this.keys, this.values] = [keys!.slice(), values!.slice()];
    for (let row = 0; row < this.rows; row++) this.lengths[row]! += added;
    return out!.slice();
  }

  #kernel(added: number): TestKernel {
    const { rows } = this;
    const shape = {
      half: false,
      ...this.#shape,
      scale: scaleOf(this.#shape),
      rows,
      added,
      slots: null,
      readsOne: false,
    };
    const { cos, sin } = tables(this.#shape);
    const qkv = new Float32Array(rows * added * tokenSize(this.#shape));
    return new TestKernel(
      cachedAttentionOperator(shape),
      this.#vectorWidth,
      [qkv, this.keys, this.values, this.lengths, cos, sin],
      this.#inPlace
        ? {
            same: [
              [1, 1],
              [2, 2],
            ],
          }
        : {},
    );
  }

  free(): void {
    for (const kernel of this.#kernels.values()) kernel.free();
  }
}

/** What one sequence gives, in pieces of these lengths over and over. */
function played(shape: Shape, vectorWidth: VectorWidth, pieces: readonly number[], tokens: number, garbage?: number) {
  const qkv = random(tokens * tokenSize(shape), "qkv");
  const sequences = new Sequences(shape, vectorWidth, garbage === undefined ? {} : { garbage });
  const out: number[] = [];
  for (let from = 0, i = 0; from < tokens; i++) {
    const added = Math.min(pieces[i % pieces.length]!, tokens - from);
    for (const value of sequences.append(qkv.slice(from * tokenSize(shape), (from + added) * tokenSize(shape))))
      out.push(value);
    from += added;
  }
  sequences.free();
  return Float32Array.from(out);
}

const shapes: [name: string, shape: Shape][] = [
  ["one head of 16", { heads: 1, kvHeads: 1, headWidth: 16, capacity: 16, window: null }],
  ["two heads that share keys", { heads: 2, kvHeads: 1, headWidth: 32, capacity: 48, window: null }],
  ["two groups of two", { heads: 4, kvHeads: 2, headWidth: 64, capacity: 80, window: null }],
  ["heads of 80, a window of 17", { heads: 3, kvHeads: 1, headWidth: 80, capacity: 64, window: 17 }],
  ["heads of 128", { heads: 2, kvHeads: 1, headWidth: 128, capacity: 144, window: null }],
  ["heads of 48, a window of 5", { heads: 2, kvHeads: 2, headWidth: 48, capacity: 64, window: 5 }],
  ["heads of 112, a window of 1", { heads: 1, kvHeads: 1, headWidth: 112, capacity: 32, window: 1 }],
  ["a window of 16", { heads: 2, kvHeads: 2, headWidth: 16, capacity: 96, window: 16 }],
  ["heads of 256", { heads: 1, kvHeads: 1, headWidth: 256, capacity: 32, window: null, scale: 0.05 }],
  ["16-bit floats, two groups of two", { heads: 4, kvHeads: 2, headWidth: 64, capacity: 80, window: null, half: true }],
  ["16-bit floats, a window of 5", { heads: 2, kvHeads: 2, headWidth: 48, capacity: 64, window: 5, half: true }],
  ["16-bit floats, a group of five", { heads: 5, kvHeads: 1, headWidth: 80, capacity: 80, window: null, half: true }],
  ["512 places", { heads: 1, kvHeads: 1, headWidth: 16, capacity: 512, window: null, scale: 1 }],
  ["16-bit floats, 256 places", { heads: 1, kvHeads: 1, headWidth: 16, capacity: 256, window: null, half: true }],
  ["512 places, a window of 100", { heads: 2, kvHeads: 1, headWidth: 32, capacity: 512, window: 100 }],
];
const references = new Map<Shape, Float64Array>();

function referenceOf(shape: Shape): Float64Array {
  return references.getOrInsertComputed(shape, () => {
    const qkv = random(shape.capacity * tokenSize(shape), "qkv");
    return referenceAttention(qkv, tables(shape), {
      ...shape,
      rows: 1,
      tokens: shape.capacity,
      scale: scaleOf(shape),
    });
  });
}

describeWidths("attention over a cache", (vectorWidth) => {
  test.each(shapes)("%s: equals float64 at every position, token by token", (_, shape) => {
    const out = played(shape, vectorWidth, [1], shape.capacity);
    expect(farthest(out, referenceOf(shape))).toBeLessThan(1e-5);
  });

  test.each(shapes)("%s: has the same bits for tokens one by one, in pieces and all at once", (_, shape) => {
    const tokens = Math.min(shape.capacity, 96);
    const once = played(shape, vectorWidth, [1], tokens);
    expectSameBits(played(shape, vectorWidth, [5, 1, 16, 3], tokens), once);
    expectSameBits(played(shape, vectorWidth, [tokens], tokens), once);
  });

  test.each(shapes.filter(([, { capacity }]) => capacity >= 48 && capacity <= 80))(
    "%s: has the same bits whatever lies behind the sequence",
    (_, shape) => {
      const clean = played(shape, vectorWidth, [7, 1], 30, 0);
      for (const garbage of [Number.NaN, Number.POSITIVE_INFINITY, -3e38])
        expectSameBits(played(shape, vectorWidth, [7, 1], 30, garbage), clean);
    },
  );

  const small: Shape = { heads: 4, kvHeads: 2, headWidth: 32, capacity: 64, window: 20 };

  test.each([1, 3])("a row has the same bits alone and beside others, with %p new tokens", (added) => {
    const rows = 5;
    const size = added * tokenSize(small);
    const together = new Sequences(small, vectorWidth, { rows });
    const alone = Array.from({ length: rows }, () => new Sequences(small, vectorWidth));
    // Sequences of different lengths: row r has 4 r tokens more than the first.
    const perRow = small.kvHeads * small.capacity * small.headWidth;
    for (const [row, own] of alone.entries()) {
      if (row > 0) own.append(random(4 * row * tokenSize(small), `start of ${row}`));
      together.lengths[row] = own.lengths[0]!;
      together.keys.set(own.keys, row * perRow);
      together.values.set(own.values, row * perRow);
    }
    for (let turn = 0; turn < 3; turn++) {
      const qkv = random(rows * size, `turn ${turn}`);
      const out = together.append(qkv);
      const outs = alone.map((own, row) => own.append(qkv.slice(row * size, (row + 1) * size)));
      expectSameBits(out, Float32Array.from(outs.flatMap((values) => [...values])));
    }
    for (const [row, own] of alone.entries()) {
      expectSameBits(together.keys.slice(row * perRow, (row + 1) * perRow), own.keys);
      expectSameBits(together.values.slice(row * perRow, (row + 1) * perRow), own.values);
    }
    for (const each of [together, ...alone]) each.free();
  });

  test.each([
    [1, false, false],
    [7, false, true],
    [1, true, false],
    [7, true, true],
  ])("finds rows in slots, with %p new tokens: the bits of rows without slots, and no change elsewhere", (...given) => {
    const [added, half, readsOne] = given;
    const [slots, order] = [5, Int32Array.of(4, 0, 3)];
    const rows = order.length;
    const shape = { ...small, half, scale: scaleOf(small), rows, added, readsOne };
    const perSlot = (small.kvHeads * small.capacity * small.headWidth) / (half ? 2 : 1);
    const { cos, sin } = tables(small);
    const qkv = random(rows * added * tokenSize(small), "qkv");
    const cache = new Float32Array(slots * perSlot).map((_, i) => Math.floor(i / perSlot));
    const own = Float32Array.from({ length: rows * perSlot }, (_, i) => order[Math.floor(i / perSlot)]!);
    const last = Int32Array.of(30, 10, 21);
    const reads = readsOne ? [Int32Array.of(0, 6, 2)] : [];
    const inSlots = cachedAttentionOperator({ ...shape, slots });
    const [out, keys, values] = runKernel(inSlots, vectorWidth, [qkv, cache, cache, last, cos, sin, order, ...reads]);
    const inRows = cachedAttentionOperator({ ...shape, slots: null });
    const [expected, ...caches] = runKernel(inRows, vectorWidth, [qkv, own, own, last, cos, sin, ...reads]);
    expectSameBits(out!, expected!);
    for (const [i, written] of [keys!, values!].entries()) {
      const after = cache.slice();
      for (const [row, slot] of order.entries())
        after.set(caches[i]!.slice(row * perSlot, (row + 1) * perSlot), slot * perSlot);
      expectSameBits(written, after);
    }
  });

  test("caches of 16-bit floats hold the rounded keys and values, two in each float", () => {
    const shape: Shape = { heads: 2, kvHeads: 1, headWidth: 32, capacity: 48, window: null, half: true };
    const sequences = new Sequences(shape, vectorWidth, { garbage: 0 });
    const tokens = 35;
    const qkv = random(tokens * tokenSize(shape), "qkv");
    sequences.append(qkv);
    const [keys, values] = [sequences.keys, sequences.values].map(({ buffer }) => new Float16Array(buffer));
    const { cos, sin } = tables(shape);
    for (let token = 0; token < shape.capacity; token++)
      for (let d = 0; d < 32; d++) {
        const key = token * 128 + 64 + (d % 16);
        const [c, s] = [cos[token * 16 + (d % 16)]!, sin[token * 16 + (d % 16)]!];
        const [a, b] = [qkv[key]!, qkv[key + 16]!];
        const [cached, value] =
          token < tokens ? [d < 16 ? a * c - b * s : b * c + a * s, qkv[token * 128 + 96 + d]!] : [0, 0];
        expect(keys![Math.floor(token / 16) * 512 + 16 * d + (token % 16)]! + 0).toBe(Math.f16round(cached) + 0);
        expect(values![token * 32 + d]).toBe(Math.f16round(value));
      }
    sequences.free();
  });

  test("caches that are not updated in place do not change, and their copies have all of their values", () => {
    const qkv = random(8 * tokenSize(small), "qkv");
    const [inPlace, apart] = [true, false].map(
      (inPlace) => new Sequences(small, vectorWidth, { inPlace, rows: 2, garbage: 3 }),
    );
    for (const half of [0, 1]) {
      const piece = qkv.slice((half * qkv.length) / 2, ((half + 1) * qkv.length) / 2);
      // The kernel fails this test itself if it changes an input.
      expectSameBits(apart!.append(piece), inPlace!.append(piece));
    }
    expectSameBits(apart!.keys, inPlace!.keys);
    expectSameBits(apart!.values, inPlace!.values);
    inPlace!.free();
    apart!.free();
  });

  test("a cache of keys has blocks of 16 tokens with one token in each column, and a cache of values has one token in each row", () => {
    const shape: Shape = { heads: 1, kvHeads: 2, headWidth: 16, capacity: 32, window: null };
    const sequences = new Sequences({ ...shape, heads: 2 }, vectorWidth, { garbage: 7 });
    const size = tokenSize({ ...shape, heads: 2 });
    const tokens = 19;
    const qkv = random(tokens * size, "qkv");
    sequences.append(qkv);
    const { cos, sin } = tables(shape);
    for (let head = 0; head < 2; head++)
      for (let token = 0; token < 32; token++)
        for (let d = 0; d < 16; d++) {
          const key = token * size + (2 + head) * 16;
          const [a, b] = [qkv[key + (d % 8)]!, qkv[key + (d % 8) + 8]!];
          const [c, s] = [cos[token * 8 + (d % 8)]!, sin[token * 8 + (d % 8)]!];
          const [cached, value] =
            token >= tokens ? [7, 7] : [d < 8 ? a * c - b * s : b * c + a * s, qkv[key + 32 + d]!];
          const start = head * 32 * 16;
          const block = start + Math.floor(token / 16) * 256;
          expect(Math.abs(sequences.keys[block + 16 * d + (token % 16)]! - cached)).toBeLessThan(1e-6);
          expect(sequences.values[start + token * 16 + d]).toBe(value);
        }
    sequences.free();
  });

  test("a score that is not a number gives results that are not numbers", () => {
    const sequences = new Sequences(small, vectorWidth);
    sequences.append(random(6 * tokenSize(small), "start"));
    const qkv = random(tokenSize(small), "qkv");
    // In the second query head.
    qkv[32] = Number.NaN;
    const out = sequences.append(qkv);
    expect([...out].map(Number.isNaN)).toEqual([...out].map((_, i) => i >= 32 && i < 64));
    sequences.free();
  });

  test.each([
    [0, 6],
    [3, 0],
  ])("reads only the tokens %p and %p of two rows, with the bits of the whole, and writes all caches", (...reads) => {
    const [rows, added] = [2, 7];
    const shape = { ...small, half: false, scale: scaleOf(small), rows, added, slots: null };
    const cache = new Float32Array(rows * shape.kvHeads * shape.capacity * shape.headWidth);
    const { cos, sin } = tables(small);
    const qkv = random(rows * added * tokenSize(small), "qkv");
    const inputs = [qkv, cache, cache, Int32Array.of(20, 40), cos, sin];
    const [all, keys, values] = runKernel(cachedAttentionOperator({ ...shape, readsOne: false }), vectorWidth, inputs);
    const operator = cachedAttentionOperator({ ...shape, readsOne: true });
    const [read, sameKeys, sameValues] = runKernel(operator, vectorWidth, [...inputs, Int32Array.from(reads)]);
    const width = shape.heads * shape.headWidth;
    for (let row = 0; row < rows; row++) {
      for (let token = 0; token < added; token++) {
        const of = (out: Float32Array) => out.slice((row * added + token) * width, (row * added + token + 1) * width);
        if (token === reads[row]) expectSameBits(of(read!), of(all!));
        else expect(of(read!).every(Number.isNaN)).toBe(true);
      }
    }
    expectSameBits(sameKeys!, keys!);
    expectSameBits(sameValues!, values!);
  });

  test("large scores leave all weight on the largest", () => {
    const shape: Shape = { heads: 1, kvHeads: 1, headWidth: 16, capacity: 48, window: null, scale: 1 };
    const tokens = 40;
    const qkv = random(tokens * 48, "qkv");
    // Scores of about ±80, ±800 and ±8000.
    for (const factor of [8, 25, 80]) {
      const large = qkv.map((value, i) => (i % 48 < 32 ? factor * value : value));
      const sequences = new Sequences(shape, vectorWidth);
      const expected = referenceAttention(large, tables(shape), { ...shape, rows: 1, tokens, scale: 1 });
      // A score of thousands has an error of thousandths, which its weight has too.
      const tolerance = factor === 80 ? 5e-3 : factor === 25 ? 5e-4 : 5e-5;
      expect(farthest(sequences.append(large), expected)).toBeLessThan(tolerance);
      sequences.free();
    }
  });
});

describe("the operator of attention over a cache", () => {
  const shape = {
    rows: 1,
    added: 1,
    heads: 2,
    kvHeads: 1,
    headWidth: 16,
    capacity: 32,
    scale: 1,
    half: false,
    window: null,
    slots: null,
    readsOne: false,
  };

  test.each([
    ["headWidth", 16, [8, 24, 0, 16.5, Number.NaN]],
    ["capacity", 16, [24, 8, 0, -16]],
  ] as const)("refuses a %s that is no multiple of %p", (what, of, sizes) => {
    for (const size of sizes)
      expect(() => cachedAttentionOperator({ ...shape, [what]: size })).toThrow(
        new RangeError(`this kernel needs a ${what} that is a multiple of ${of}, got ${size}`),
      );
    expect(cachedAttentionOperator(shape).outputs).toEqual([
      [1, 1, 32],
      [1, 1, 32, 16],
      [1, 1, 32, 16],
    ]);
    expect(cachedAttentionOperator({ ...shape, half: true }).outputs[1]).toEqual([1, 1, 16, 16]);
  });
});

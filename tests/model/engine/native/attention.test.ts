/** The kernels of attention over prefix trees and of its gradient, against float64 and finite differences. */
import { describe, expect, test } from "bun:test";
import type { VectorWidth } from "../../../../model/engine/native/assembler.ts";
import { attentionOperator } from "../../../../model/engine/native/attention.ts";
import { attentionGradientOperator } from "../../../../model/engine/native/attention-gradient.ts";
import type { TreeShape } from "../../../../model/engine/native/attention-tiles.ts";
import { farthest } from "../../farthest.ts";
import { randomFloats as random } from "../../policy/gradient-check.ts";
import { bitsOf, describeWidths, expectSameBits, runKernel } from "./machine-code.ts";
import { referenceAttention, referenceGradient, referenceStatistics } from "./reference.ts";

/** A branch: the number of tokens that it shares with the path before it, and the number of tokens of its path. */
type Branch = readonly [shared: number, end: number];

interface Sizes {
  readonly branches: readonly Branch[];
  readonly heads: number;
  readonly kvHeads: number;
  readonly headWidth: number;
  readonly scale?: number;
}

/** Sequences that share nothing. */
const rows = (count: number, tokens: number): Branch[] => Array.from({ length: count }, () => [0, tokens]);

const cases: [string, Sizes][] = [
  ["4 tokens", { branches: rows(1, 4), heads: 1, kvHeads: 1, headWidth: 16 }],
  ["12 tokens, heads of 48 that share keys", { branches: rows(2, 12), heads: 2, kvHeads: 1, headWidth: 48 }],
  ["20 tokens, heads of 128, three rows", { branches: rows(3, 20), heads: 2, kvHeads: 2, headWidth: 128 }],
  ["36 tokens, heads of 80, two groups of three", { branches: rows(2, 36), heads: 6, kvHeads: 2, headWidth: 80 }],
  ["64 tokens, two groups of two", { branches: rows(2, 64), heads: 4, kvHeads: 2, headWidth: 16 }],
  ["68 tokens, heads of 64", { branches: rows(1, 68), heads: 2, kvHeads: 2, headWidth: 64 }],
  [
    "a path that goes on from the whole path before it",
    {
      branches: [
        [0, 8],
        [8, 20],
      ],
      heads: 2,
      kvHeads: 1,
      headWidth: 16,
    },
  ],
  [
    "shorter paths after a longer one",
    {
      branches: [
        [0, 24],
        [20, 24],
        [4, 12],
        [0, 4],
      ],
      heads: 2,
      kvHeads: 2,
      headWidth: 32,
    },
  ],
  [
    "branches of branches of several lengths",
    {
      branches: [
        [0, 40],
        [36, 84],
        [36, 40],
        [40, 132],
        [16, 92],
        [0, 20],
        [4, 72],
      ],
      heads: 4,
      kvHeads: 2,
      headWidth: 32,
    },
  ],
  ["128 tokens, a scale of 1", { branches: rows(1, 128), heads: 2, kvHeads: 1, headWidth: 16, scale: 1 }],
  ["132 tokens, one group of three", { branches: rows(1, 132), heads: 3, kvHeads: 1, headWidth: 32 }],
  ["260 tokens, heads of 16", { branches: rows(1, 260), heads: 2, kvHeads: 1, headWidth: 16 }],
];

interface Inputs {
  readonly branches: readonly Branch[];
  readonly shape: TreeShape;
  readonly qkv: Float32Array;
  readonly cos: Float32Array;
  readonly sin: Float32Array;
  readonly dOut: Float32Array;
}

/** @param factor  of queries and keys */
function inputsOf({ scale, branches, ...sizes }: Sizes, factor = 1): Inputs {
  const { heads, kvHeads, headWidth } = sizes;
  const tokens = branches.reduce((sum, [shared, end]) => sum + end - shared, 0);
  const length = 16 * Math.ceil(Math.max(...branches.map(([, end]) => end)) / 16);
  const size = (heads + 2 * kvHeads) * headWidth;
  const scaled = (heads + kvHeads) * headWidth;
  return {
    branches,
    shape: { ...sizes, branches: branches.length + 1, tokens, length, scale: scale ?? 1 / Math.sqrt(headWidth) },
    qkv: random(tokens * size, "qkv").map((value, i) => (i % size < scaled ? factor * value : value)),
    // Without the circle's relation of cosine and sine, an exchange of the two shows.
    cos: random((length * headWidth) / 2, "cos"),
    sin: random((length * headWidth) / 2, "sin"),
    dOut: random(tokens * heads * headWidth, "dOut"),
  };
}

/** @param isRead  a flag for each four tokens */
function computed(
  { branches, shape, qkv, cos, sin, dOut }: Inputs,
  vectorWidth: VectorWidth,
  garbage = Number.NaN,
  isRead: Int32Array = new Int32Array(shape.tokens / 4).fill(1),
) {
  const table = Int32Array.from([...branches, [0, 0]].flat());
  const given = [qkv, table, cos, sin, isRead];
  const [out, statistics] = runKernel(attentionOperator(shape), vectorWidth, given, { garbage });
  const inputs = [...given, out!, dOut, statistics!];
  const [dQkv] = runKernel(attentionGradientOperator(shape), vectorWidth, inputs, { garbage });
  return { out: out!, statistics: statistics!, dQkv: dQkv! };
}

/** Each path as a sequence of its own. A path contributes the results of its branch, and its part of the gradients of all its tokens. */
function expectedOf({ branches, shape, qkv, cos, sin, dOut }: Inputs) {
  const { tokens, heads, kvHeads, headWidth } = shape;
  const [size, width] = [(heads + 2 * kvHeads) * headWidth, heads * headWidth];
  const out = new Float64Array(tokens * width);
  const statistics = new Float64Array(heads * tokens * 2);
  const dQkv = new Float64Array(tokens * size);
  let path: number[] = [];
  let next = 0;
  for (const [shared, end] of branches) {
    path = [...path.slice(0, shared), ...Array.from({ length: end - shared }, () => next++)];
    const one = { ...shape, rows: 1, tokens: end };
    const own = Float32Array.from(path.flatMap((token) => [...qkv.subarray(token * size, (token + 1) * size)]));
    const results = referenceAttention(own, { cos, sin }, one);
    const found = referenceStatistics(own, { cos, sin }, one);
    const dOwn = Float32Array.from(
      path.flatMap((token, position) =>
        position < shared ? new Array(width).fill(0) : [...dOut.subarray(token * width, (token + 1) * width)],
      ),
    );
    const gradient = referenceGradient(own, dOwn, { cos, sin }, one);
    for (const [position, token] of path.entries()) {
      for (let i = 0; i < size; i++) dQkv[token * size + i]! += gradient[position * size + i]!;
      if (position < shared) continue;
      out.set(results.subarray(position * width, (position + 1) * width), token * width);
      for (let head = 0; head < heads; head++) {
        const from = (head * end + position) * 2;
        statistics.set(found.subarray(from, from + 2), (head * tokens + token) * 2);
      }
    }
  }
  return { out, statistics, dQkv };
}
const largest = (values: Float64Array) => values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);

const known = new Map<string, { inputs: Inputs; expected: ReturnType<typeof expectedOf> }>();
const caseOf = (name: string) =>
  known.getOrInsertComputed(name, () => {
    const inputs = inputsOf(cases.find(([key]) => key === name)![1]);
    return { inputs, expected: expectedOf(inputs) };
  });

test("the reference's gradient is the slope of its result", () => {
  const { shape, qkv, cos, sin, dOut } = inputsOf({ branches: rows(2, 5), heads: 4, kvHeads: 2, headWidth: 4 });
  for (const window of [null, 2]) {
    const windowed = { ...shape, rows: 2, tokens: 5, window };
    const gradient = referenceGradient(qkv, dOut, { cos, sin }, windowed);
    const values = Float64Array.from(qkv);
    const weighed = () =>
      referenceAttention(values, { cos, sin }, windowed).reduce((sum, value, i) => sum + value * dOut[i]!, 0);
    for (const [i, value] of qkv.entries()) {
      const [more, less] = [1e-5, -1e-5].map((step) => {
        values[i] = value + step;
        return weighed();
      });
      values[i] = value;
      expect(Math.abs((more! - less!) / 2e-5 - gradient[i]!)).toBeLessThan(1e-7);
    }
  }
});

describeWidths("attention over a tree", (vectorWidth) => {
  test.each(cases.map(([name]) => name))("%s: result, statistics and gradient agree with float64", (name) => {
    const { inputs, expected } = caseOf(name);
    const { out, statistics, dQkv } = computed(inputs, vectorWidth);
    expect(farthest(out, expected.out)).toBeLessThan(1e-5);
    expect(farthest(statistics, expected.statistics)).toBeLessThan(1e-5);
    expect(farthest(dQkv, expected.dQkv) / largest(expected.dQkv)).toBeLessThan(1e-5);
  });

  test.each(cases.slice(0, 9).map(([name]) => name))(
    "%s: the bits do not depend on what the scratch memory, the stack and the results held before",
    (name) => {
      const { inputs } = caseOf(name);
      const clean = computed(inputs, vectorWidth, 0);
      for (const garbage of [Number.NaN, -3e38, 1]) {
        const found = computed(inputs, vectorWidth, garbage);
        for (const key of ["out", "statistics", "dQkv"] as const) expectSameBits(found[key], clean[key]);
      }
    },
  );

  test.each(cases.map(([name]) => name))("%s: queries whose results are not read are left out", (name) => {
    const { inputs } = caseOf(name);
    const { tokens, heads, headWidth } = inputs.shape;
    const width = heads * headWidth;
    const isRead = Int32Array.from({ length: tokens / 4 }, (_, i) => (i % 3 === 1 ? 0 : 1));
    const isTokenRead = (token: number) => isRead[Math.floor(token / 4)] === 1;
    // The gradient of results that no operator reads is 0.
    const dOut = inputs.dOut.map((value, i) => (isTokenRead(Math.floor(i / width)) ? value : 0));
    const all = computed({ ...inputs, dOut }, vectorWidth);
    const some = computed({ ...inputs, dOut }, vectorWidth, Number.NaN, isRead);
    for (let token = 0; token < tokens; token++) {
      const [found, whole] = [some, all].map(({ out }) => out.slice(token * width, (token + 1) * width));
      if (isTokenRead(token)) expectSameBits(found!, whole!);
      else expect([...found!].every(Number.isNaN)).toBe(true);
    }
    // Sums may differ only in the sign of a zero.
    expect(some.dQkv.map((value) => value + 0)).toEqual(all.dQkv.map((value) => value + 0));
  });

  test("a path has the same bits alone and in a tree", () => {
    const branches: Branch[] = [
      [0, 20],
      [16, 72],
      [16, 20],
      [0, 36],
    ];
    const inputs = inputsOf({ branches, heads: 4, kvHeads: 2, headWidth: 16 });
    const { tokens } = inputs.shape;
    const together = computed(inputs, vectorWidth);
    const rowOf = (values: Float32Array, token: number) =>
      values.slice((token * values.length) / tokens, ((token + 1) * values.length) / tokens);
    let path: number[] = [];
    let next = 0;
    for (const [shared, end] of branches) {
      path = [...path.slice(0, shared), ...Array.from({ length: end - shared }, () => next++)];
      const of = (values: Float32Array) => Float32Array.from(path.flatMap((token) => [...rowOf(values, token)]));
      const shape = { ...inputs.shape, branches: 2, tokens: end };
      const alone = computed(
        { ...inputs, branches: [[0, end]], shape, qkv: of(inputs.qkv), dOut: of(inputs.dOut) },
        vectorWidth,
      );
      expectSameBits(of(together.out), alone.out);
      // Only the last branch has all terms of its gradients.
      if (end === 36) expectSameBits(of(together.dQkv), alone.dQkv);
    }
  });

  test("a token's result does not depend on later tokens", () => {
    const inputs = inputsOf({ branches: rows(1, 68), heads: 2, kvHeads: 1, headWidth: 32 });
    const { out } = computed(inputs, vectorWidth);
    for (const from of [17, 35, 66]) {
      const qkv = inputs.qkv.map((value, i) => (i < from * 128 ? value : -value - 1));
      const changed = computed({ ...inputs, qkv }, vectorWidth).out;
      expectSameBits(changed.slice(0, from * 64), out.slice(0, from * 64));
      expect(bitsOf(changed.slice(from * 64))).not.toEqual(bitsOf(out.slice(from * 64)));
    }
  });

  test.each([
    [80, 7],
    [800, 22],
  ])("scores beyond ±%p give no infinite number, and results that are as exact as the scores", (size, factor) => {
    const inputs = inputsOf({ branches: rows(1, 36), heads: 2, kvHeads: 1, headWidth: 16, scale: 1 }, factor);
    const expected = expectedOf(inputs);
    const most = expected.statistics.filter((_, i) => i % 2 === 0).reduce((a, b) => Math.max(a, b));
    expect(most).toBeGreaterThan(size);
    // A float32 sum of 16 products.
    const error = 1e-6 * most;
    const { out, statistics, dQkv } = computed(inputs, vectorWidth);
    expect(farthest(out, expected.out)).toBeLessThan(error);
    expect(farthest(statistics, expected.statistics)).toBeLessThan(error);
    expect(farthest(dQkv, expected.dQkv) / largest(expected.dQkv)).toBeLessThan(error);
  });

  test("a score that is not a number gives results and gradients that are not numbers", () => {
    const inputs = inputsOf({ branches: rows(1, 20), heads: 2, kvHeads: 2, headWidth: 16 });
    const qkv = inputs.qkv.slice();
    // In the first head's query of token 10.
    qkv[10 * 96 + 3] = Number.NaN;
    const { out, dQkv } = computed({ ...inputs, qkv }, vectorWidth);
    expect([...out].map(Number.isNaN)).toEqual([...out].map((_, i) => Math.floor(i / 16) === 20));
    // The query of token 10, and the keys that it sees.
    for (const place of [10 * 96, 32, 10 * 96 + 32]) expect(dQkv[place]).toBeNaN();
    for (const place of [9 * 96, 16, 48]) expect(dQkv[place]).not.toBeNaN();
  });
});

describe("the operators of attention over a tree", () => {
  const shape = { branches: 3, tokens: 40, length: 32, heads: 4, kvHeads: 2, headWidth: 16, scale: 1 };

  test.each([
    ["attention", attentionOperator],
    ["its gradient", attentionGradientOperator],
  ])("%s refuses sizes that its kernel does not take", (_, make) => {
    for (const [key, what, multiple, refused] of [
      ["branches", "number of branches", 1, [0, -1, 1.5]],
      ["tokens", "number of tokens", 4, [0, 1, 2, 6, 21, -4, 4.5]],
      ["length", "length of a path", 16, [0, 8, 20, -16]],
      ["headWidth", "headWidth", 16, [0, 8, 24, 40]],
    ] as const)
      for (const size of refused)
        expect(() => make({ ...shape, [key]: size })).toThrow(
          new RangeError(`this kernel needs a ${what} that is a multiple of ${multiple}, got ${size}`),
        );
  });

  test("their results have one row for each token of the tree", () => {
    expect(attentionOperator(shape).outputs.slice(0, 2)).toEqual([
      [40, 64],
      [4, 40, 2],
    ]);
    expect(attentionGradientOperator(shape).outputs[0]).toEqual([40, 128]);
  });
});

/** The kernels of attention over whole sequences and of its gradient, against float64 and finite differences. */
import { describe, expect, test } from "bun:test";
import type { VectorWidth } from "../../../../model/engine/native/assembler.ts";
import { attentionOperator } from "../../../../model/engine/native/attention.ts";
import { attentionGradientOperator } from "../../../../model/engine/native/attention-gradient.ts";
import type { WholeShape } from "../../../../model/engine/native/attention-tiles.ts";
import { farthest } from "../../farthest.ts";
import { randomValues } from "../../policy/gradient-check.ts";
import { bitsOf, describeWidths, expectSameBits, runKernel } from "./machine-code.ts";
import { referenceAttention, referenceGradient, referenceStatistics } from "./reference.ts";

type Sizes = Omit<WholeShape, "scale"> & { readonly scale?: number };

const cases: [string, Sizes][] = [
  ["4 tokens", { rows: 1, tokens: 4, heads: 1, kvHeads: 1, headWidth: 16 }],
  ["12 tokens, heads of 48 that share keys", { rows: 2, tokens: 12, heads: 2, kvHeads: 1, headWidth: 48 }],
  ["20 tokens, heads of 128, three rows", { rows: 3, tokens: 20, heads: 2, kvHeads: 2, headWidth: 128 }],
  ["36 tokens, heads of 80, two groups of three", { rows: 2, tokens: 36, heads: 6, kvHeads: 2, headWidth: 80 }],
  ["64 tokens, two groups of two", { rows: 2, tokens: 64, heads: 4, kvHeads: 2, headWidth: 16 }],
  ["68 tokens, heads of 64", { rows: 1, tokens: 68, heads: 2, kvHeads: 2, headWidth: 64 }],
  ["128 tokens, a scale of 1", { rows: 1, tokens: 128, heads: 2, kvHeads: 1, headWidth: 16, scale: 1 }],
  ["132 tokens, one group of three", { rows: 1, tokens: 132, heads: 3, kvHeads: 1, headWidth: 32 }],
  ["260 tokens, heads of 16", { rows: 1, tokens: 260, heads: 2, kvHeads: 1, headWidth: 16 }],
];

interface Inputs {
  readonly shape: WholeShape;
  readonly qkv: Float32Array;
  readonly cos: Float32Array;
  readonly sin: Float32Array;
  readonly dOut: Float32Array;
}

/** @param factor  of queries and keys */
function inputsOf({ scale, ...sizes }: Sizes, factor = 1): Inputs {
  const { rows, tokens, heads, kvHeads, headWidth } = sizes;
  const random = (length: number, name: string) => Float32Array.from(randomValues(length, name));
  const size = (heads + 2 * kvHeads) * headWidth;
  const scaled = (heads + kvHeads) * headWidth;
  return {
    shape: { ...sizes, scale: scale ?? 1 / Math.sqrt(headWidth) },
    qkv: random(rows * tokens * size, "qkv").map((value, i) => (i % size < scaled ? factor * value : value)),
    // Without the circle's relation of cosine and sine, an exchange of the two shows.
    cos: random((tokens * headWidth) / 2, "cos"),
    sin: random((tokens * headWidth) / 2, "sin"),
    dOut: random(rows * tokens * heads * headWidth, "dOut"),
  };
}

function computed({ shape, qkv, cos, sin, dOut }: Inputs, vectorWidth: VectorWidth, garbage = Number.NaN) {
  const [out, statistics] = runKernel(attentionOperator(shape), vectorWidth, [qkv, cos, sin], { garbage });
  const inputs = [qkv, cos, sin, out!, dOut, statistics!];
  const [dQkv] = runKernel(attentionGradientOperator(shape), vectorWidth, inputs, { garbage });
  return { out: out!, statistics: statistics!, dQkv: dQkv! };
}

const expectedOf = ({ shape, qkv, cos, sin, dOut }: Inputs) => ({
  out: referenceAttention(qkv, { cos, sin }, shape),
  statistics: referenceStatistics(qkv, { cos, sin }, shape),
  dQkv: referenceGradient(qkv, dOut, { cos, sin }, shape),
});
const largest = (values: Float64Array) => values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);

const known = new Map<string, { inputs: Inputs; expected: ReturnType<typeof expectedOf> }>();
const caseOf = (name: string) =>
  known.getOrInsertComputed(name, () => {
    const inputs = inputsOf(cases.find(([key]) => key === name)![1]);
    return { inputs, expected: expectedOf(inputs) };
  });

test("the reference's gradient is the slope of its result", () => {
  const { shape, qkv, cos, sin, dOut } = inputsOf({ rows: 2, tokens: 5, heads: 4, kvHeads: 2, headWidth: 4 });
  for (const window of [null, 2]) {
    const windowed = { ...shape, window };
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

describeWidths("attention over whole sequences", (vectorWidth) => {
  test.each(cases.map(([name]) => name))("%s: result, statistics and gradient agree with float64", (name) => {
    const { inputs, expected } = caseOf(name);
    const { out, statistics, dQkv } = computed(inputs, vectorWidth);
    expect(farthest(out, expected.out)).toBeLessThan(1e-5);
    expect(farthest(statistics, expected.statistics)).toBeLessThan(1e-5);
    expect(farthest(dQkv, expected.dQkv) / largest(expected.dQkv)).toBeLessThan(1e-5);
  });

  test.each(cases.slice(0, 6).map(([name]) => name))(
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

  test("a row has the same bits alone and beside others", () => {
    const sizes: Sizes = { rows: 3, tokens: 20, heads: 4, kvHeads: 2, headWidth: 16 };
    const inputs = inputsOf(sizes);
    const together = computed(inputs, vectorWidth);
    for (let row = 0; row < 3; row++) {
      const part = (values: Float32Array) => values.slice((row * values.length) / 3, ((row + 1) * values.length) / 3);
      const alone = computed(
        { ...inputs, shape: { ...inputs.shape, rows: 1 }, qkv: part(inputs.qkv), dOut: part(inputs.dOut) },
        vectorWidth,
      );
      for (const key of ["out", "statistics", "dQkv"] as const) expectSameBits(part(together[key]), alone[key]);
    }
  });

  test("a token's result does not depend on later tokens", () => {
    const inputs = inputsOf({ rows: 1, tokens: 68, heads: 2, kvHeads: 1, headWidth: 32 });
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
    const inputs = inputsOf({ rows: 1, tokens: 36, heads: 2, kvHeads: 1, headWidth: 16, scale: 1 }, factor);
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
    const inputs = inputsOf({ rows: 1, tokens: 20, heads: 2, kvHeads: 2, headWidth: 16 });
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

describe("the operators of attention over whole sequences", () => {
  const shape = { rows: 2, tokens: 20, heads: 4, kvHeads: 2, headWidth: 16, scale: 1 };

  test.each([
    ["attention", attentionOperator],
    ["its gradient", attentionGradientOperator],
  ])("%s refuses sizes that its kernel does not take", (_, make) => {
    for (const tokens of [0, 1, 2, 6, 21, -4, 4.5])
      expect(() => make({ ...shape, tokens })).toThrow(
        new RangeError(`this kernel needs a number of tokens that is a multiple of 4, got ${tokens}`),
      );
    for (const headWidth of [0, 8, 24, 40])
      expect(() => make({ ...shape, headWidth })).toThrow(
        new RangeError(`this kernel needs a headWidth that is a multiple of 16, got ${headWidth}`),
      );
  });

  test("their results have the shapes of the definition's", () => {
    expect(attentionOperator(shape).outputs.slice(0, 2)).toEqual([
      [2, 20, 64],
      [2, 4, 20, 2],
    ]);
    expect(attentionGradientOperator(shape).outputs[0]).toEqual([2, 20, 128]);
  });
});

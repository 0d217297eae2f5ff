/** Muon's kernel against float64, and the functions that have it. */
import { describe, expect, test } from "bun:test";
import { compiledEngine } from "../../../../model/engine/compiled.ts";
import type { Engine } from "../../../../model/engine/engine.ts";
import { type MuonShape, muonOperator } from "../../../../model/engine/native/muon.ts";
import { type Bfloat16Products, type Target, trace } from "../../../../model/engine/trace.ts";
import { Optimizer } from "../../../../model/learn/optimizer.ts";
import { describeWhere } from "../../../needs.ts";
import { plainMuon } from "../../learn/plain-muon.ts";
import { randomValues } from "../../policy/gradient-check.ts";
import { expectSameBits, lackOf, runKernel } from "./machine-code.ts";

const settings = {
  learningRate: 0.5,
  beta1: 0.9,
  beta2: 0.99,
  epsilon: 1e-8,
  weightDecay: 0.1,
  clipNorm: 1,
};
const shapeOf = (rows: number, columns: number, gradients = 2): MuonShape => ({
  rows,
  columns,
  gradients,
  momentum: 0.95,
  stepSize: 0.2 * Math.sqrt(Math.max(rows, columns)),
  steps: 5,
  a: 3.4445,
  b: -4.775,
  c: 2.0315,
});
const sizes = [
  [16, 16],
  [48, 48], // square
  [80, 96], // nearly square
  [96, 80],
  [32, 64], // wide
  [64, 32], // tall
  [48, 80],
  [112, 48],
  [16, 288], // Gram matrices of two blocks of steps
  [144, 16],
] as const;

/** The Euclidean length of the difference from `expected`, as a share of the length of `expected`. */
const gapOf = (found: readonly number[], expected: readonly number[]) =>
  Math.hypot(...found.map((value, i) => value - expected[i]!)) / Math.hypot(...expected);

/** Two steps of the kernel and two in float64. @returns the gap of both steps' moves */
function gapAfterTwoSteps(shape: MuonShape, gradientAt: (step: number, part: number) => Float32Array): number {
  const { rows, columns, gradients } = shape;
  const size = rows * columns;
  const start = Float32Array.from(randomValues(size, "parameters"));
  let [parameters, moment]: Float32Array[] = [start, new Float32Array(size)];
  const seen: Float64Array[] = [];
  // Outputs lie in the memory of inputs.
  const same = Array.from({ length: 2 + gradients }, (_, i) => [i, i < 2 ? i : i + 1] as const);
  for (let step = 0; step < 2; step++) {
    const parts = Array.from({ length: gradients }, (_, part) => gradientAt(step, part));
    const sum = Float64Array.from({ length: size }, (_, i) => parts.reduce((all, values) => all + values[i]!, 0));
    seen.push(sum);
    const norm = Math.hypot(...sum);
    const { learningRate, weightDecay, epsilon } = settings;
    const scalars = Float32Array.of(1 / norm, 77, 1 - learningRate * weightDecay, 77, 77, 77, epsilon, learningRate);
    const results = runKernel(muonOperator(shape), 16, [parameters!, moment!, scalars, ...parts], { same });
    [parameters, moment] = results;
    for (const zeros of results.slice(2, 2 + gradients)) expectSameBits(zeros, new Float32Array(size));
  }
  // The momentum of the clipped gradients, .95 · first + second.
  const [first, second] = seen.map((gradient) => ({ gradient, norm: Math.hypot(...gradient) }));
  const momentum = Array.from(
    second!.gradient,
    (value, i) => (0.95 * first!.gradient[i]!) / first!.norm + value / second!.norm,
  );
  expect(gapOf([...moment!], momentum)).toBeLessThan(1e-6);
  const expected = plainMuon(Float64Array.from(start), seen, [rows, columns], settings);
  const moves = (after: ArrayLike<number>) => Array.from(after, (value, i) => value - start[i]!);
  return gapOf(moves(parameters!), moves(expected));
}

describeWhere(lackOf(16), "Muon's kernel", () => {
  test.each(sizes)("moves a matrix of %p by %p as float64 does", (rows, columns) => {
    for (const gradients of [1, 3]) {
      const gap = gapAfterTwoSteps(shapeOf(rows, columns, gradients), (step, part) =>
        Float32Array.from(randomValues(rows * columns, `gradient ${step} ${part}`)),
      );
      expect(gap).toBeLessThan(5e-6);
    }
  });

  test.each([
    [32, 96],
    [96, 32],
    [48, 48],
  ])("moves a matrix of %p by %p as float64 does, if its gradient has a rank of 2", (rows, columns) => {
    const gap = gapAfterTwoSteps(shapeOf(rows, columns), (step) => {
      const factors = (length: number, name: string) => randomValues(length, `${name} ${step}`);
      const [left, right] = [factors(2 * rows, "left"), factors(2 * columns, "right")];
      return Float32Array.from({ length: rows * columns }, (_, i) => {
        const [row, column] = [Math.floor(i / columns), i % columns];
        return left[row]! * right[column]! + left[rows + row]! * right[columns + column]!;
      });
    });
    // Rounding gives the gradient more ranks, and the iteration enlarges them. In float32 the definition has this error too.
    expect(gap).toBeLessThan(2e-4);
  });

  test("refuses rows and columns that are not multiples of 16", () => {
    expect(() => muonOperator(shapeOf(40, 32))).toThrow("number of rows that is a multiple of 16, got 40");
    expect(() => muonOperator(shapeOf(32, 40))).toThrow("number of columns that is a multiple of 16, got 40");
  });
});

describe("Muon", () => {
  /** The operators of ours in a step on a matrix. */
  async function operatorsOf(shape: readonly [number, number], target: Target, rounded?: Bfloat16Products) {
    const engine = compiledEngine({ threads: 1 });
    const operators: string[] = [];
    const traced: Engine = {
      ...engine,
      compile(name, build, inputs, options) {
        const { nodes } = trace(build, inputs, target, rounded).graph;
        if (name === "Muon") operators.push(...nodes.filter(({ machineCode }) => machineCode).map(({ op }) => op));
        return engine.compile(name, build, inputs, options);
      },
    };
    const arrays = Array.from({ length: 2 }, () => new Float32Array(shape[0] * shape[1]));
    await Optimizer.create(traced, arrays[0]!, [arrays[1]!], undefined, [{ start: 0, shape }]);
    return operators.map((op) => op.split("_")[0]!);
  }

  test("is one node on a CPU with AVX-512", async () => {
    expect(await operatorsOf([32, 64], "AVX-512")).toEqual(["Muon"]);
  });

  test("is its definition on tiles, with rounded factors, and on other targets", async () => {
    const three = <T>(product: T) => new Array<T>(15).fill(product);
    expect(await operatorsOf([32, 64], "AMX")).toEqual(three("TileProduct"));
    for (const target of ["AVX-512", "AMX"] as const)
      expect(await operatorsOf([32, 64], target, "gradients")).toEqual(three("RoundedProduct"));
    for (const target of ["AVX2", "cpu", "webgpu", "cuda"] as const)
      expect(await operatorsOf([32, 64], target)).toEqual([]);
  });

  test.each([
    [24, 32],
    [32, 24],
  ] as const)("is its definition for a matrix of %p by %p", async (rows, columns) => {
    expect(await operatorsOf([rows, columns], "AVX-512")).not.toContain("Muon");
  });
});

/** AdamW and Muon against their formulas in float64, step by step, and with gradients that are not finite. */
import { describe, expect, test } from "bun:test";
import { compiledEngine } from "../../../model/engine/compiled.ts";
import { missingForBfloat16 } from "../../../model/engine/native/machine.ts";
import { Optimizer, type OptimizerSettings } from "../../../model/learn/optimizer.ts";
import { describeWhere } from "../../needs.ts";
import { engines } from "../engine/engines.ts";
import { farthest } from "../farthest.ts";
import { randomValues } from "../policy/gradient-check.ts";
import { plainMuon } from "./plain-muon.ts";

const settings: OptimizerSettings = {
  learningRate: 0.01,
  beta1: 0.9,
  beta2: 0.99,
  epsilon: 1e-8,
  weightDecay: 0.1,
  clipNorm: 1,
};
/** A number of parameters that machine code does not take, and one that it takes: it is a multiple of 16. */
const SIZES = [37, 48];

/** Algorithm 2 of https://arxiv.org/abs/1711.05101, after clipping by the global norm. */
function plainAdamW(
  parameters: Float64Array,
  gradients: readonly Float64Array[],
  given: OptimizerSettings,
): Float64Array {
  const { learningRate, beta1, beta2, epsilon, weightDecay, clipNorm } = given;
  const [moment, variance] = [new Float64Array(parameters.length), new Float64Array(parameters.length)];
  const after = parameters.slice();
  for (const [t, gradient] of gradients.entries()) {
    const norm = Math.sqrt(gradient.reduce((sum, g) => sum + g * g, 0));
    const clip = norm > clipNorm ? clipNorm / norm : 1;
    for (let i = 0; i < parameters.length; i++) {
      const g = gradient[i]! * clip;
      moment[i] = beta1 * moment[i]! + (1 - beta1) * g;
      variance[i] = beta2 * variance[i]! + (1 - beta2) * g * g;
      const m = moment[i]! / (1 - beta1 ** (t + 1));
      const v = variance[i]! / (1 - beta2 ** (t + 1));
      after[i] = after[i]! - learningRate * (m / (Math.sqrt(v) + epsilon) + weightDecay * after[i]!);
    }
  }
  return after;
}

const enginesAndSizes = engines.flatMap(([name, engine]) => SIZES.map((size) => [name, size, engine] as const));

describe.each(enginesAndSizes)("AdamW on the %s engine, with %p parameters,", (_, size, engine) => {
  const start = () => Float32Array.from(randomValues(size, "parameters"));
  const gradientsOf = (step: number, scale: number) =>
    Float32Array.from(randomValues(size, `gradient ${step}`), (value) => value * scale);

  test.each([
    ["clipped", 1, settings],
    ["not clipped", 0.01, settings],
    ["without decay", 1, { ...settings, weightDecay: 0 }],
    ["of a coarse epsilon", 1e-3, { ...settings, epsilon: 1e-2 }],
  ])("takes the paper's steps, %s", async (_, scale, given) => {
    const [parameters, gradients, ofAnotherLane] = [start(), new Float32Array(size), new Float32Array(size)];
    const optimizer = await Optimizer.create(engine, parameters, [gradients, ofAnotherLane]);
    const seen: Float64Array[] = [];
    for (let step = 0; step < 5; step++) {
      gradients.set(gradientsOf(step, scale));
      ofAnotherLane.set(gradientsOf(step + 100, scale));
      const whole = Float64Array.from(gradients, (value, i) => value + ofAnotherLane[i]!);
      seen.push(whole);
      const { gradientNorm, applied } = await optimizer.step(given);
      expect(Math.abs(gradientNorm - Math.hypot(...whole))).toBeLessThan(1e-5 * scale);
      expect(applied).toBe(true);
      expect([...gradients, ...ofAnotherLane]).toEqual(new Array(2 * size).fill(0));
    }
    // Of steps of 0.01 each; the clip's own 1e-6 is torch's.
    expect(farthest(parameters, plainAdamW(Float64Array.from(start()), seen, given))).toBeLessThan(1e-6);
    expect(optimizer.state.step).toBe(5);
  });

  test("moves every value of a vector of several pieces by the learning rate, in its first step", async () => {
    const length = 2 * Math.min(engine.valuesPerPiece, 2 ** 15) + 5;
    const parameters = new Float32Array(length);
    const gradients = [0.5, -0.25].map((value) => new Float32Array(length).fill(value));
    const optimizer = await Optimizer.create(engine, parameters, gradients);
    const { gradientNorm } = await optimizer.step({ ...settings, clipNorm: 1e9 });
    expect(gradientNorm / (0.25 * Math.sqrt(length))).toBeCloseTo(1, 6);
    expect(farthest(parameters, new Float32Array(length).fill(-settings.learningRate))).toBeLessThan(1e-8);
  });

  test("adds torch's 1e-6 to the norm that it divides the clip by, worked by hand", async () => {
    const [parameters, gradient] = [new Float32Array(1), Float32Array.of(1e-6)];
    const optimizer = await Optimizer.create(engine, parameters, [gradient]);
    const { gradientNorm } = await optimizer.step({ ...settings, clipNorm: 1e-6, epsilon: 5e-7 });
    expect(gradientNorm / 1e-6).toBeCloseTo(1, 5);
    // 1e-6 / (1e-6 + 1e-6) halves the gradient, and an epsilon as large as this half halves AdamW's step of .01.
    expect(parameters[0]).toBeCloseTo(-0.005, 7);
  });

  test("continues from a saved state", async () => {
    const [kept, gradients] = [start(), gradientsOf(0, 1)];
    const unbroken = await Optimizer.create(engine, kept, [gradients]);
    await unbroken.step(settings);
    gradients.set(gradientsOf(1, 1));
    const [copy, { moment, variance, step }] = [kept.slice(), unbroken.state];
    const resumed = await Optimizer.create(engine, copy, [gradients], {
      moment: moment.slice(),
      variance: variance.slice(),
      step,
    });
    await unbroken.step(settings);
    gradients.set(gradientsOf(1, 1));
    await resumed.step(settings);
    expect([...copy]).toEqual([...kept]);
    expect(resumed.state.step).toBe(2);
  });

  test.each([Number.NaN, Number.POSITIVE_INFINITY])(
    "changes nothing but the gradient if that is %p, and says so",
    async (wrong) => {
      const [parameters, gradients] = [start(), gradientsOf(0, 1)];
      gradients[5] = wrong;
      const optimizer = await Optimizer.create(engine, parameters, [gradients]);
      const { gradientNorm, applied } = await optimizer.step(settings);
      expect([applied, Number.isFinite(gradientNorm)]).toEqual([false, false]);
      expect([...parameters]).toEqual([...start()]);
      expect(optimizer.state.step).toBe(0);
      expect(optimizer.state.moment.every((value) => value === 0)).toBe(true);
    },
  );
});

describe.each(engines)("Muon on the %s engine", (_, engine) => {
  test.each([
    [3, 5],
    [5, 3],
    [4, 4],
    [32, 48],
    [48, 32],
    [32, 32],
  ] as [number, number][])("moves a matrix of %p by %p, and AdamW what is around it", async (rows, columns) => {
    const size = rows * columns;
    const length = 7 + size + 4;
    const parameters = Float32Array.from(randomValues(length, "parameters"));
    const start = Float64Array.from(parameters);
    const gradient = new Float32Array(length);
    const optimizer = await Optimizer.create(engine, parameters, [gradient], undefined, [
      { start: 7, shape: [rows, columns] },
    ]);
    const seen: Float64Array[] = [];
    // Without clipping, so that both references see the same gradient.
    const given = { ...settings, clipNorm: 1e9 };
    for (let step = 0; step < 3; step++) {
      gradient.set(randomValues(length, `gradient ${step}`));
      seen.push(Float64Array.from(gradient));
      expect((await optimizer.step(given)).applied).toBe(true);
      expect([...gradient]).toEqual(new Array(length).fill(0));
    }
    const part = (of: Float64Array) => of.slice(7, 7 + size);
    const matrix = plainMuon(part(start), seen.map(part), [rows, columns], given);
    const around = (of: ArrayLike<number>) =>
      Float64Array.from([...Array.from(of).slice(0, 7), ...Array.from(of).slice(7 + size)]);
    expect(farthest(parameters.slice(7, 7 + size), matrix)).toBeLessThan(1e-6);
    expect(
      farthest(Float32Array.from(around(parameters)), plainAdamW(around(start), seen.map(around), given)),
    ).toBeLessThan(1e-6);
    expect([...optimizer.state.variance.slice(7, 7 + size)]).toEqual(new Array(size).fill(0));
  });
});

describeWhere(missingForBfloat16(), "Muon with rounded factors", () => {
  test.each([
    [32, 64],
    [64, 32],
  ] as [number, number][])("moves a matrix of %p by %p nearly as Muon in float32 does", async (rows, columns) => {
    const size = rows * columns;
    const moved = async (bfloat16Products: "none" | "gradients") => {
      const engine = compiledEngine({ threads: 1, bfloat16Products });
      const parameters = new Float32Array(size);
      const gradient = Float32Array.from(randomValues(size, "gradient"));
      const matrices = [{ start: 0, shape: [rows, columns] as [number, number] }];
      const optimizer = await Optimizer.create(engine, parameters, [gradient], undefined, matrices);
      await optimizer.step({ ...settings, weightDecay: 0 });
      return parameters;
    };
    const [exact, rounded] = [await moved("none"), await moved("gradients")];
    const gap = Math.hypot(...exact.map((value, i) => value - rounded[i]!)) / Math.hypot(...exact);
    expect(gap).toBeGreaterThan(1e-4);
    expect(gap).toBeLessThan(5e-2);
  });
});

/** AdamW against the paper's formulas in float64, step by step, and with gradients that are not finite. */
import { describe, expect, test } from "bun:test";
import { AdamW, type AdamWSettings } from "../../../model/learn/optimizer.ts";
import { engines } from "../engine/engines.ts";
import { farthest } from "../farthest.ts";
import { randomValues } from "../policy/gradient-check.ts";

const settings: AdamWSettings = {
  learningRate: 0.01,
  beta1: 0.9,
  beta2: 0.99,
  epsilon: 1e-8,
  weightDecay: 0.1,
  clipNorm: 1,
};
const SIZE = 37;

/** Algorithm 2 of https://arxiv.org/abs/1711.05101, after clipping by the global norm. */
function plainAdamW(parameters: Float64Array, gradients: readonly Float64Array[], given: AdamWSettings): Float64Array {
  const { learningRate, beta1, beta2, epsilon, weightDecay, clipNorm } = given;
  const [moment, variance] = [new Float64Array(SIZE), new Float64Array(SIZE)];
  const after = parameters.slice();
  for (const [t, gradient] of gradients.entries()) {
    const norm = Math.sqrt(gradient.reduce((sum, g) => sum + g * g, 0));
    const clip = norm > clipNorm ? clipNorm / norm : 1;
    for (let i = 0; i < SIZE; i++) {
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

describe.each(engines)("AdamW on the %s engine", (_, engine) => {
  const start = () => Float32Array.from(randomValues(SIZE, "parameters"));
  const gradientsOf = (step: number, scale: number) =>
    Float32Array.from(randomValues(SIZE, `gradient ${step}`), (value) => value * scale);

  test.each([
    ["clipped", 1, settings],
    ["not clipped", 0.01, settings],
    ["without decay", 1, { ...settings, weightDecay: 0 }],
    ["of a coarse epsilon", 1e-3, { ...settings, epsilon: 1e-2 }],
  ])("takes the paper's steps, %s", async (_, scale, given) => {
    const [parameters, gradients, ofAnotherLane] = [start(), new Float32Array(SIZE), new Float32Array(SIZE)];
    const optimizer = await AdamW.create(engine, parameters, [gradients, ofAnotherLane]);
    const seen: Float64Array[] = [];
    for (let step = 0; step < 5; step++) {
      gradients.set(gradientsOf(step, scale));
      ofAnotherLane.set(gradientsOf(step + 100, scale));
      const whole = Float64Array.from(gradients, (value, i) => value + ofAnotherLane[i]!);
      seen.push(whole);
      const { gradientNorm, applied } = await optimizer.step(given);
      expect(Math.abs(gradientNorm - Math.hypot(...whole))).toBeLessThan(1e-5 * scale);
      expect(applied).toBe(true);
      expect([...gradients, ...ofAnotherLane]).toEqual(new Array(2 * SIZE).fill(0));
    }
    // Of steps of 0.01 each; the clip's own 1e-6 is torch's.
    expect(farthest(parameters, plainAdamW(Float64Array.from(start()), seen, given))).toBeLessThan(1e-6);
    expect(optimizer.state.step).toBe(5);
  });

  test("moves every value of a vector of several pieces by the learning rate, in its first step", async () => {
    const length = 2 * Math.min(engine.pieceValues, 2 ** 15) + 5;
    const parameters = new Float32Array(length);
    const gradients = [0.5, -0.25].map((value) => new Float32Array(length).fill(value));
    const optimizer = await AdamW.create(engine, parameters, gradients);
    const { gradientNorm } = await optimizer.step({ ...settings, clipNorm: 1e9 });
    expect(gradientNorm / (0.25 * Math.sqrt(length))).toBeCloseTo(1, 6);
    expect(farthest(parameters, new Float32Array(length).fill(-settings.learningRate))).toBeLessThan(1e-8);
  });

  test("continues from a saved state", async () => {
    const [kept, gradients] = [start(), gradientsOf(0, 1)];
    const unbroken = await AdamW.create(engine, kept, [gradients]);
    await unbroken.step(settings);
    gradients.set(gradientsOf(1, 1));
    const [copy, { moment, variance, step }] = [kept.slice(), unbroken.state];
    const resumed = await AdamW.create(engine, copy, [gradients], {
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
      const optimizer = await AdamW.create(engine, parameters, [gradients]);
      const { gradientNorm, applied } = await optimizer.step(settings);
      expect([applied, Number.isFinite(gradientNorm)]).toEqual([false, false]);
      expect([...parameters]).toEqual([...start()]);
      expect(optimizer.state.step).toBe(0);
      expect(optimizer.state.moment.every((value) => value === 0)).toBe(true);
    },
  );
});

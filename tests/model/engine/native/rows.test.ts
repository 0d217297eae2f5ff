/** The kernels of SwiGLU, of its gradient and of the sum of rows against float64. */
import { describe, expect, test } from "bun:test";
import {
  type RowsShape,
  rowSumOperator,
  swigluGradientOperator,
  swigluOperator,
} from "../../../../model/engine/native/rows.ts";
import { randomFloats as random } from "../../policy/gradient-check.ts";
import { describeWidths, expectOwnBits, runKernel } from "./machine-code.ts";
import { ROW_SIZES, relativeGap } from "./rows.ts";

const sigmoid = (x: number) => 1 / (1 + Math.exp(-x));
/** Gates far beyond where the sigmoid is 0 or 1 in float32, and small ones. */
const EXTREME = [-100, 100, 0, -0, -88, 88, -20, 20, 1e-20, -1e-20, 1e4, -1e4, 5, -5, 0.5, -0.5];

const expectSwiglu = (y: Float32Array, gate: Float32Array, up: Float32Array) => {
  const expected = Float64Array.from(gate, (x, i) => x * sigmoid(x) * up[i]!);
  expect(relativeGap(y, expected)).toBeLessThan(1e-6);
};

describeWidths("the kernels of rows", (vectorWidth) => {
  /** Expects of SwiGLU's gradient what float64 says. */
  const expectGradients = (shape: RowsShape, gate: Float32Array, up: Float32Array, dy: Float32Array) => {
    const [dGate, dUp] = runKernel(swigluGradientOperator(shape), vectorWidth, [gate, up, dy]);
    const slope = (x: number) => sigmoid(x) + x * sigmoid(x) * (1 - sigmoid(x));
    const expectedDGate = Float64Array.from(gate, (x, i) => dy[i]! * up[i]! * slope(x));
    const expectedDUp = Float64Array.from(gate, (x, i) => dy[i]! * x * sigmoid(x));
    expect(relativeGap(dGate!, expectedDGate)).toBeLessThan(1e-6);
    expect(relativeGap(dUp!, expectedDUp)).toBeLessThan(1e-6);
  };

  test.each(ROW_SIZES)("SwiGLU of %p rows of %p agrees with float64", (rows, width) => {
    const [gate, up] = [random(rows * width, "gate").map((x) => 4 * x), random(rows * width, "up")];
    const [y] = runKernel(swigluOperator({ rows, width }), vectorWidth, [gate, up]);
    expectSwiglu(y!, gate, up);
  });

  test.each(ROW_SIZES)("SwiGLU's gradient of %p rows of %p agrees with float64", (rows, width) => {
    const [gate, up, dy] = [random(rows * width, "gate"), random(rows * width, "up"), random(rows * width, "dy")];
    expectGradients({ rows, width }, gate, up, dy);
  });

  test("extreme gates give their limits", () => {
    const shape = { rows: 1, width: 16 };
    const gate = Float32Array.from(EXTREME);
    const [up, dy] = [random(16, "up"), random(16, "dy")];
    const [y] = runKernel(swigluOperator(shape), vectorWidth, [gate, up]);
    expectSwiglu(y!, gate, up);
    expectGradients(shape, gate, up, dy);
    // 10^4 · sigmoid(-10^4) is below the smallest float.
    expect(Math.abs(y![11]!)).toBeLessThan(1e-30);
  });

  test("a gate that is not a number gives a result and gradients that are not numbers, and no others", () => {
    const shape = { rows: 1, width: 32 };
    const [gate, up, dy] = [random(32, "gate"), random(32, "up"), random(32, "dy")];
    gate[21] = Number.NaN;
    const [y] = runKernel(swigluOperator(shape), vectorWidth, [gate, up]);
    const gradients = runKernel(swigluGradientOperator(shape), vectorWidth, [gate, up, dy]);
    for (const values of [y!, ...gradients]) expect([...values].map(Number.isNaN)).toEqual([...gate].map(Number.isNaN));
  });

  test.each(ROW_SIZES)("the sum of %p rows of %p agrees with float64", (rows, width) => {
    const x = random(rows * width, "x");
    const [sum] = runKernel(rowSumOperator({ rows, width }), vectorWidth, [x]);
    const expected = new Float64Array(width);
    for (const [i, value] of x.entries()) expected[i % width]! += value;
    expect(relativeGap(sum!, expected)).toBeLessThan(1e-6);
  });

  test("the bits do not depend on what the results held before", () => {
    const shape = { rows: 3, width: 48 };
    const inputs = ["gate", "up", "dy"].map((name) => random(144, name));
    expectOwnBits(swigluOperator(shape), vectorWidth, inputs.slice(0, 2));
    expectOwnBits(swigluGradientOperator(shape), vectorWidth, inputs);
    expectOwnBits(rowSumOperator(shape), vectorWidth, inputs.slice(0, 1));
  });
});

describe("the operators of rows", () => {
  test.each([swigluOperator, swigluGradientOperator, rowSumOperator])(
    "refuse a width that is no multiple of 16",
    (make) => {
      for (const width of [0, 7, 8, 24, -16, 16.5])
        expect(() => make({ rows: 1, width })).toThrow(
          new RangeError(`this kernel needs a width that is a multiple of 16, got ${width}`),
        );
      expect(make({ rows: 2, width: 32 }).outputs[0]!.at(-1)).toBe(32);
    },
  );
});

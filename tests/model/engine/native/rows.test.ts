/** The kernels of SwiGLU, of its gradient and of RMSNorm's gradient against float64. */
import { describe, expect, test } from "bun:test";
import {
  type RowsShape,
  rmsNormGradientOperator,
  swigluGradientOperator,
  swigluOperator,
} from "../../../../model/engine/native/rows.ts";
import { farthest } from "../../farthest.ts";
import { randomValues } from "../../policy/gradient-check.ts";
import { bitsOf, describeWidths, runKernel } from "./machine-code.ts";

const random = (length: number, name: string) => Float32Array.from(randomValues(length, name));
const sigmoid = (x: number) => 1 / (1 + Math.exp(-x));
/** Gates far beyond where the sigmoid is 0 or 1 in float32, and small ones. */
const EXTREME = [-100, 100, 0, -0, -88, 88, -20, 20, 1e-20, -1e-20, 1e4, -1e4, 5, -5, 0.5, -0.5];
const sizes = [
  [1, 16],
  [3, 16],
  [2, 48],
  [5, 144],
  [1, 1024],
] as const;

/** Largest difference from the expected numbers, each relative to 1 or to the number. */
const gap = (found: Float32Array, expected: ArrayLike<number>) => {
  const size = (i: number) => Math.max(1, Math.abs(expected[i]!));
  return farthest(
    found.map((value, i) => value / size(i)),
    Float64Array.from(expected, (value, i) => value / size(i)),
  );
};

describeWidths("the kernels of rows", (vectorWidth) => {
  /** Expects of SwiGLU's gradient what float64 says. */
  const expectGradients = (shape: RowsShape, gate: Float32Array, up: Float32Array, dy: Float32Array) => {
    const [dGate, dUp] = runKernel(swigluGradientOperator(shape), vectorWidth, [gate, up, dy]);
    const slope = (x: number) => sigmoid(x) + x * sigmoid(x) * (1 - sigmoid(x));
    expect(
      gap(
        dGate!,
        Float64Array.from(gate, (x, i) => dy[i]! * up[i]! * slope(x)),
      ),
    ).toBeLessThan(1e-6);
    expect(
      gap(
        dUp!,
        Float64Array.from(gate, (x, i) => dy[i]! * x * sigmoid(x)),
      ),
    ).toBeLessThan(1e-6);
  };

  test.each(sizes)("SwiGLU of %p rows of %p agrees with float64", (rows, width) => {
    const [gate, up] = [random(rows * width, "gate").map((x) => 4 * x), random(rows * width, "up")];
    const [y] = runKernel(swigluOperator({ rows, width }), vectorWidth, [gate, up]);
    expect(
      gap(
        y!,
        Float64Array.from(gate, (x, i) => x * sigmoid(x) * up[i]!),
      ),
    ).toBeLessThan(1e-6);
  });

  test.each(sizes)("SwiGLU's gradient of %p rows of %p agrees with float64", (rows, width) => {
    const [gate, up, dy] = [random(rows * width, "gate"), random(rows * width, "up"), random(rows * width, "dy")];
    expectGradients({ rows, width }, gate, up, dy);
  });

  test("extreme gates give their limits", () => {
    const shape = { rows: 1, width: 16 };
    const gate = Float32Array.from(EXTREME);
    const [up, dy] = [random(16, "up"), random(16, "dy")];
    const [y] = runKernel(swigluOperator(shape), vectorWidth, [gate, up]);
    expect(
      gap(
        y!,
        Float64Array.from(gate, (x, i) => x * sigmoid(x) * up[i]!),
      ),
    ).toBeLessThan(1e-6);
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

  test.each(sizes)("RMSNorm's gradient of %p rows of %p agrees with float64", (rows, width) => {
    const [x, gain, dy] = [random(rows * width, "x"), random(width, "gain"), random(rows * width, "dy")];
    const inverse = Float32Array.from({ length: rows }, (_, row) => {
      const own = x.subarray(row * width, (row + 1) * width);
      return 1 / Math.sqrt(own.reduce((sum, value) => sum + value * value, 0) / width + 1e-6);
    });
    const [dx, dGain] = runKernel(rmsNormGradientOperator({ rows, width }), vectorWidth, [x, gain, inverse, dy]);
    const [expectedDx, expectedDGain] = [new Float64Array(rows * width), new Float64Array(width)];
    for (let row = 0; row < rows; row++) {
      const norm = inverse[row]!;
      let along = 0;
      for (let i = 0; i < width; i++) along += (dy[row * width + i]! * gain[i]! * x[row * width + i]!) / width;
      for (let i = 0; i < width; i++) {
        const at = row * width + i;
        expectedDx[at] = norm * (dy[at]! * gain[i]! - x[at]! * norm * norm * along);
        expectedDGain[i]! += dy[at]! * x[at]! * norm;
      }
    }
    expect(gap(dx!, expectedDx)).toBeLessThan(2e-6);
    expect(gap(dGain!, expectedDGain)).toBeLessThan(2e-6);
  });

  test("RMSNorm's gradient is the slope of the norm", () => {
    const [rows, width] = [2, 16];
    const [x, gain, dy] = [random(rows * width, "x"), random(width, "gain"), random(rows * width, "dy")];
    const inverseOf = (x: ArrayLike<number>, row: number) => {
      let sum = 0;
      for (let i = 0; i < width; i++) sum += x[row * width + i]! ** 2;
      return 1 / Math.sqrt(sum / width + 1e-3);
    };
    const weighed = (x: ArrayLike<number>, gain: ArrayLike<number>) => {
      let sum = 0;
      for (let i = 0; i < rows * width; i++)
        sum += dy[i]! * x[i]! * inverseOf(x, Math.floor(i / width)) * gain[i % width]!;
      return sum;
    };
    const slopes = (values: Float32Array, of: (moved: Float64Array) => number) =>
      Float64Array.from(values, (value, i) => {
        const moved = Float64Array.from(values);
        const [more, less] = [1e-5, -1e-5].map((step) => of(moved.with(i, value + step)));
        return (more! - less!) / 2e-5;
      });
    const inverse = Float32Array.from({ length: rows }, (_, row) => inverseOf(x, row));
    const [dx, dGain] = runKernel(rmsNormGradientOperator({ rows, width }), vectorWidth, [x, gain, inverse, dy]);
    expect(
      gap(
        dx!,
        slopes(x, (moved) => weighed(moved, gain)),
      ),
    ).toBeLessThan(1e-5);
    expect(
      gap(
        dGain!,
        slopes(gain, (moved) => weighed(x, moved)),
      ),
    ).toBeLessThan(1e-5);
  });

  test("the bits do not depend on what the results held before", () => {
    const shape = { rows: 3, width: 48 };
    const inputs = ["gate", "up", "dy"].map((name) => random(144, name));
    const norm = [inputs[0]!, random(48, "gain"), random(3, "inverse"), inputs[2]!];
    for (const [operator, given] of [
      [swigluOperator(shape), inputs.slice(0, 2)],
      [swigluGradientOperator(shape), inputs],
      [rmsNormGradientOperator(shape), norm],
    ] as const) {
      const [clean, dirty] = [0, Number.NaN].map((garbage) => runKernel(operator, vectorWidth, given, { garbage }));
      expect(dirty!.map(bitsOf)).toEqual(clean!.map(bitsOf));
    }
  });
});

describe("the operators of rows", () => {
  test.each([swigluOperator, swigluGradientOperator, rmsNormGradientOperator])(
    "refuse a width that is no multiple of 16",
    (make) => {
      for (const width of [0, 7, 8, 24, -16, 16.5])
        expect(() => make({ rows: 1, width })).toThrow(
          new RangeError(`this kernel needs a width that is a multiple of 16, got ${width}`),
        );
      expect(make({ rows: 2, width: 32 }).outputs[0]).toEqual([2, 32]);
    },
  );
});

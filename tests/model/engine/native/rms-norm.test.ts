/** The kernels of RMSNorm and of its gradient against float64. */
import { describe, expect, test } from "bun:test";
import { rmsNormGradientOperator, rmsNormOperator } from "../../../../model/engine/native/rms-norm.ts";
import { randomFloats as random } from "../../policy/gradient-check.ts";
import { describeWidths, expectOwnBits, expectSameBits, runKernel } from "./machine-code.ts";
import { ROW_SIZES, relativeGap } from "./rows.ts";

describeWidths("the kernels of RMSNorm", (vectorWidth) => {
  test.each(ROW_SIZES)("RMSNorm of %p rows of %p and each row's factor agree with float64", (rows, width) => {
    const [x, gain] = [random(rows * width, "x"), random(width, "gain")];
    const epsilon = 1e-3;
    const [y, inverse] = runKernel(rmsNormOperator({ rows, width, epsilon }), vectorWidth, [x, gain]);
    const factors = Float64Array.from({ length: rows }, (_, row) => {
      const own = x.subarray(row * width, (row + 1) * width);
      return 1 / Math.sqrt(own.reduce((sum, value) => sum + value * value, 0) / width + epsilon);
    });
    expect(relativeGap(inverse!, factors)).toBeLessThan(5e-7);
    const expected = Float64Array.from(x, (value, i) => value * factors[Math.floor(i / width)]! * gain[i % width]!);
    expect(relativeGap(y!, expected)).toBeLessThan(1e-6);
  });

  test("RMSNorm of a row of zeros is zeros, and of a row with NaN is NaN", () => {
    const x = new Float32Array(48);
    x[20] = Number.NaN;
    const gain = random(16, "gain");
    const [y, inverse] = runKernel(rmsNormOperator({ rows: 3, width: 16, epsilon: 1e-6 }), vectorWidth, [x, gain]);
    expect([...y!].map(Number.isNaN)).toEqual([...x].map((_, i) => Math.floor(i / 16) === 1));
    expect(Math.abs(inverse![0]! / 1000 - 1)).toBeLessThan(1e-6);
  });

  test.each(ROW_SIZES)("RMSNorm's gradient of %p rows of %p agrees with float64", (rows, width) => {
    const [x, gain, dy] = [random(rows * width, "x"), random(width, "gain"), random(rows * width, "dy")];
    const inverse = Float32Array.from({ length: rows }, (_, row) => {
      const own = x.subarray(row * width, (row + 1) * width);
      return 1 / Math.sqrt(own.reduce((sum, value) => sum + value * value, 0) / width + 1e-6);
    });
    const operator = rmsNormGradientOperator({ rows, width, addend: false });
    const [dx, dGain] = runKernel(operator, vectorWidth, [x, gain, inverse, dy]);
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
    expect(relativeGap(dx!, expectedDx)).toBeLessThan(2e-6);
    expect(relativeGap(dGain!, expectedDGain)).toBeLessThan(2e-6);
    const addend = random(rows * width, "addend");
    const summing = rmsNormGradientOperator({ rows, width, addend: true });
    const [sum, sameDGain] = runKernel(summing, vectorWidth, [x, gain, inverse, dy, addend]);
    expectSameBits(
      sum!,
      dx!.map((value, i) => value + addend[i]!),
    );
    expectSameBits(sameDGain!, dGain!);
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
    const operator = rmsNormGradientOperator({ rows, width, addend: false });
    const [dx, dGain] = runKernel(operator, vectorWidth, [x, gain, inverse, dy]);
    const expectedDx = slopes(x, (moved) => weighed(moved, gain));
    const expectedDGain = slopes(gain, (moved) => weighed(x, moved));
    expect(relativeGap(dx!, expectedDx)).toBeLessThan(1e-5);
    expect(relativeGap(dGain!, expectedDGain)).toBeLessThan(1e-5);
  });

  test("the bits do not depend on what the results held before", () => {
    const shape = { rows: 3, width: 48, epsilon: 1e-6 };
    const [x, gain, inverse, dy] = [144, 48, 3, 144].map((size, i) => random(size, `input ${i}`));
    expectOwnBits(rmsNormOperator(shape), vectorWidth, [x!, gain!]);
    expectOwnBits(rmsNormGradientOperator({ ...shape, addend: false }), vectorWidth, [x!, gain!, inverse!, dy!]);
  });
});

describe("the operators of RMSNorm", () => {
  test("refuse a width that is no multiple of 16", () => {
    for (const width of [0, 8, 24, -16, 16.5]) {
      const refusal = new RangeError(`this kernel needs a width that is a multiple of 16, got ${width}`);
      expect(() => rmsNormOperator({ rows: 1, width, epsilon: 1e-6 })).toThrow(refusal);
      expect(() => rmsNormGradientOperator({ rows: 1, width, addend: false })).toThrow(refusal);
    }
  });
});

/** The logarithm of a vector against JavaScript's in float64. */
import { expect, test } from "bun:test";
import { logarithm, logarithmTable } from "../../../../model/engine/native/logarithm.ts";
import { describeWidths, mappedFloats } from "./machine-code.ts";

const logarithms = mappedFloats(logarithmTable, logarithm);

describeWidths("the logarithm", (vectorWidth) => {
  /** Expects an error below 2e-7, relative to 1 or to the logarithm. */
  const expectLogarithms = (numbers: Float32Array) => {
    const found = logarithms(vectorWidth, numbers);
    for (const [i, x] of numbers.entries()) {
      const expected = Math.log(x);
      expect([x, Math.abs(found[i]! - expected) < 2e-7 * Math.max(1, Math.abs(expected))]).toEqual([x, true]);
    }
  };

  test("has a relative error below 2e-7 from 1 to the largest number", () => {
    expectLogarithms(Float32Array.from({ length: 30_001 }, (_, i) => 2 ** ((127.9 * i) / 30_000)));
  });

  test("has that error where the exponent changes", () => {
    const near = (x: number) => [-3, -2, -1, 0, 1, 2, 3].map((steps) => x * (1 + steps * 2 ** -23));
    expectLogarithms(Float32Array.from([2, 4, 1024].flatMap((x) => [...near(x), ...near(x * Math.SQRT2)])));
  });

  test("of 1 is 0", () => {
    expect([...logarithms(vectorWidth, [1, 1])]).toEqual([0, 0]);
  });

  test("is the same in other registers", () => {
    const numbers = Float32Array.from({ length: 64 }, (_, i) => 1.3 + i);
    const found = logarithms(vectorWidth, numbers);
    expect(logarithms(vectorWidth, numbers, 9, [1, 0, 15])).toEqual(found);
    if (vectorWidth === 16) expect(logarithms(vectorWidth, numbers, 17, [31, 24, 20])).toEqual(found);
  });
});

/** The exponential of a vector against JavaScript's in float64. */
import { expect, test } from "bun:test";
import { exponential, exponentialTable } from "../../../../model/engine/native/exponential.ts";
import { describeWidths, mappedFloats } from "./machine-code.ts";

const exponentials = mappedFloats(exponentialTable, exponential);

describeWidths("the exponential", (vectorWidth) => {
  test("has a relative error below 1e-7 from -87 to 88", () => {
    const numbers = Float32Array.from({ length: 60_001 }, (_, i) => -87 + (175 * i) / 60_000);
    const found = exponentials(vectorWidth, numbers);
    const errors = numbers.map((x, i) => Math.abs(found[i]! / Math.exp(x) - 1));
    expect(errors.reduce((a, b) => Math.max(a, b))).toBeLessThan(1e-7);
  });

  test("has a relative error below 1e-7 at the ends of the polynomial's interval, where rounding changes", () => {
    const numbers = Float32Array.from({ length: 2000 }, (_, i) => {
      const half = (Math.floor(i / 8) - 125 + 0.5) * Math.LN2;
      return half + ((i % 8) - 3.5) * 1e-6 * Math.abs(half);
    });
    const found = exponentials(vectorWidth, numbers);
    for (const [i, x] of numbers.entries()) expect(Math.abs(found[i]! / Math.exp(x) - 1)).toBeLessThan(1e-7);
  });

  test("of 0 is 1, and of small numbers keeps their order", () => {
    const [one, minus, more, less] = exponentials(vectorWidth, [0, -0, 1e-3, -1e-3]);
    expect([one, minus]).toEqual([1, 1]);
    expect(more).toBeGreaterThan(1);
    expect(less).toBeLessThan(1);
  });

  test("is e^-87.3 for all numbers below -87.3, and e^88.3 for all numbers above 88.3", () => {
    const least = exponentials(vectorWidth, [-87.3, -87.31, -88, -1000, -1e30, Number.NEGATIVE_INFINITY]);
    const most = exponentials(vectorWidth, [88.3, 88.31, 89, 1000, 1e30, Number.POSITIVE_INFINITY]);
    expect(new Set(least).size).toBe(1);
    expect(new Set(most).size).toBe(1);
    expect(Math.abs(least[0]! / Math.exp(Math.fround(-87.3)) - 1)).toBeLessThan(1e-7);
    expect(Math.abs(most[0]! / Math.exp(Math.fround(88.3)) - 1)).toBeLessThan(1e-7);
  });

  test("of NaN is NaN", () => {
    expect([...exponentials(vectorWidth, [Number.NaN, 0, Number.NaN])]).toEqual([Number.NaN, 1, Number.NaN]);
  });

  test("is the same in other registers", () => {
    const numbers = Float32Array.from({ length: 64 }, (_, i) => i - 40.3);
    const found = exponentials(vectorWidth, numbers);
    expect(exponentials(vectorWidth, numbers, 9, [1, 0, 15])).toEqual(found);
    if (vectorWidth === 16) expect(exponentials(vectorWidth, numbers, 17, [31, 24, 20])).toEqual(found);
  });
});

import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { deviation, isConstant, mean, median, positionsBy, variance } from "../../model/statistics.ts";

describe("statistics", () => {
  test("match numbers worked by hand", () => {
    // 1, 2, 3, 6: mean 3, squares 4 + 1 + 0 + 9 = 14
    expect(mean([1, 2, 3, 6])).toBe(3);
    expect(variance([1, 2, 3, 6])).toBeCloseTo(14 / 3, 12);
    expect(variance([1, 2, 3, 6], 0)).toBe(3.5);
    expect(deviation([1, 2, 3, 6], 0)).toBeCloseTo(1.8708286934, 10);
    expect([median([3, 1, 2]), median([6, 1, 3, 2]), median([4]), median([10, 9, 1])]).toEqual([2, 2.5, 4, 9]);
  });

  test("a constant list has a spread of exactly 0, although its mean is rounded", () => {
    // The float64 mean of three 0.1 is not 0.1.
    expect((0.1 + 0.1 + 0.1) / 3).not.toBe(0.1);
    expect(deviation([0.1, 0.1, 0.1])).toBe(0);
    expect(isConstant([])).toBe(true);
  });

  test("refuse lists that have no mean or variance", () => {
    expect(() => mean([])).toThrow("a mean needs at least 1 value, got 0");
    expect(() => variance([1])).toThrow("a variance with divisor n - 1 needs more than 1 values, got 1");
  });

  test("positionsBy splits the positions: each once, ascending, first seen first", () => {
    expect([...positionsBy(["b", "a", "b"])]).toEqual([
      ["b", [0, 2]],
      ["a", [1]],
    ]);
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 0, max: 4 })), (keys) => {
        const found = [...positionsBy(keys)];
        expect(found.flatMap(([, at]) => at).sort((a, b) => a - b)).toEqual([...keys.keys()]);
        for (const [key, at] of found) expect(at.every((i) => keys[i] === key)).toBe(true);
      }),
    );
  });
});

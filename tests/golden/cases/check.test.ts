import { expect, test } from "bun:test";
import { holds, matrixOf } from "./check.ts";

test.each<[unknown, unknown, boolean]>([
  [1, 1.000009, true],
  [1, 1.00002, false],
  [Number.NaN, Number.NaN, true],
  [Number.NaN, 1, false],
  [1, "1", false],
  [[1, 2], [1, 2, 3], false],
  [[1, [2]], [1, [2.000001]], true],
  [{ a: 1 }, { a: 1, b: 2 }, false],
  [{ a: undefined }, { b: 1 }, false],
  [{ a: { b: [1] } }, { a: { b: [1] } }, true],
  [[], {}, false],
])("%j and %j are equal: %p", (expected, got, equal) => {
  expect(holds({ name: "one", expected, got })).toBe(equal);
}); // biome-ignore format: a row a case

test("a check may have a tolerance of its own", () => {
  expect([0.1, 0.3].map((tolerance) => holds({ name: "one", expected: 1, got: 1.2, tolerance }))).toEqual([
    false,
    true,
  ]);
});

test("a matrix is read row by row", () => {
  expect(matrixOf([1, 2, 3, 4, 5, 6], 3)).toEqual([[1, 2, 3], [4, 5, 6]]); // biome-ignore format: a row
});

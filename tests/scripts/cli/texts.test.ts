import { expect, test } from "bun:test";
import { aligned, alignedWithin } from "../../../scripts/cli/texts.ts";

const rows = [
  ["", "one", "two", "three"],
  ["success", "1", "22", "3"],
];

test("the first column is at the left, the others are at the right", () => {
  expect(aligned(rows)).toBe("         one  two  three\nsuccess    1   22      3");
});

test("a table as wide as the terminal is one table; a narrower terminal has the rest below", () => {
  expect(alignedWithin(24, rows)).toBe(aligned(rows));
  expect(alignedWithin(23, rows)).toBe("         one  two\nsuccess    1   22\n\n         three\nsuccess      3");
  // Each table has a column, however narrow the terminal.
  expect(alignedWithin(5, rows).split("\n\n")).toHaveLength(3);
});

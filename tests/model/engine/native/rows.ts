/** What the tests of kernels of rows share. */
import { farthest } from "../../farthest.ts";

/** Rows and their widths. */
export const ROW_SIZES = [
  [1, 16],
  [3, 16],
  [2, 48],
  [5, 144],
  [1, 1024],
] as const;

/** Largest difference from the expected numbers, each relative to 1 or to the number. */
export function relativeGap(found: Float32Array, expected: ArrayLike<number>): number {
  const size = (i: number) => Math.max(1, Math.abs(expected[i]!));
  return farthest(
    found.map((value, i) => value / size(i)),
    Float64Array.from(expected, (value, i) => value / size(i)),
  );
}

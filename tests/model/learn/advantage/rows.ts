/** Random rows for the tests of this folder: masks that are never empty, turn ends where turns can end. */
import fc from "fast-check";
import type { Rows, Turns } from "../../../../model/learn/advantage/rows.ts";

export interface RandomRows extends Rows {
  readonly turns: Turns[];
  readonly values: Float32Array;
}

const number = fc.double({ min: -10, max: 10, noNaN: true });

/** One row: which tokens are written, in runs; each run is a turn, which ends where the run does. */
const row = (width: number) =>
  fc
    .record({
      written: fc.array(fc.boolean(), { minLength: width, maxLength: width }),
      rewards: fc.array(fc.oneof(fc.constant(0), number), { minLength: width, maxLength: width }),
      values: fc.array(number, { minLength: width, maxLength: width }),
    })
    .map(({ written, rewards, values }) => {
      const ends = [...written.keys()].filter((t) => written[t] && !written[t + 1]);
      return { written, values, turns: { ends, rewards: ends.map((end) => rewards[end]!) } };
    });

export const randomRows: fc.Arbitrary<RandomRows> = fc
  .integer({ min: 2, max: 12 })
  .chain((width) => fc.tuple(fc.constant(width), fc.array(row(width), { minLength: 1, maxLength: 4 })))
  .filter(([, rows]) => rows.flatMap((row) => row.written).filter(Boolean).length >= 2)
  .map(([width, rows]) => ({
    width,
    written: Uint8Array.from(rows.flatMap((row) => row.written.map(Number))),
    turns: rows.map((row) => row.turns),
    values: Float32Array.from(rows.flatMap((row) => row.values)),
  }));

/** Columns of one row's written tokens. */
export const writtenColumns = ({ width, written }: Rows, row: number): number[] =>
  [...Array(width).keys()].filter((column) => written[row * width + column]);

/** Equal within float32 rounding of numbers of this size. */
export function near(got: ArrayLike<number>, expected: ArrayLike<number>, size = 100): boolean {
  return got.length === expected.length && Array.from(got).every((x, i) => Math.abs(x - expected[i]!) <= size * 2e-6);
}

/** Sequences of the tests of micro-batches. */
import { expect } from "bun:test";
import fc from "fast-check";
import type { MicroBatch, Sequence } from "../../../model/learn/batch.ts";

export const sequenceOf = (tokens: readonly number[], written: readonly number[]): Sequence => ({
  tokens: Int32Array.from(tokens),
  written: Int32Array.from(written),
});

/** Up to 30 sequences of 2 to 40 tokens of a small vocabulary, so that many begin with equal tokens. */
export const anySequences = fc.array(
  fc.integer({ min: 2, max: 40 }).chain((length) =>
    fc
      .record({
        tokens: fc.array(fc.integer({ min: 0, max: 1 }), { minLength: length, maxLength: length }),
        written: fc.subarray(
          Array.from({ length: length - 1 }, (_, i) => i + 1),
          { minLength: 1 },
        ),
      })
      .map(({ tokens, written }) => sequenceOf(tokens, written)),
  ),
  { maxLength: 30 },
);

/**
 * Expects that each written token's pick has the right target, and that the picked state has read the tokens before the target.
 *
 * @param readBy  the tokens that a state has read, itself included
 */
export function expectToRead(
  { members, counts, rows, width, pickOfWritten, picks, targets }: MicroBatch,
  sequences: readonly Sequence[],
  readBy: (state: number) => number[],
): void {
  expect(rows).toBeGreaterThanOrEqual(members.length);
  expect([pickOfWritten.length, picks.length, picks.length % 32]).toEqual([rows * width, targets.length, 0]);
  for (const [row, member] of members.entries()) {
    const { tokens, written } = sequences[member]!;
    expect(counts[row]).toBe(written.length);
    for (const [column, position] of written.entries()) {
      const pick = pickOfWritten[row * width + column]!;
      expect(targets[pick]).toBe(tokens[position]!);
      expect(readBy(picks[pick]!)).toEqual([...tokens.subarray(0, position)]);
    }
  }
}

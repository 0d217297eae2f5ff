/** Micro-batches of rows hold every sequence once, find each written token's state, and keep to the memory limit. */
import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { type BatchLimits, checkSequences, layRows, rowBatches, type Sequence } from "../../../model/learn/batch.ts";
import { anySequences, expectToRead, sequenceOf } from "./sequences.ts";

const limits: BatchLimits = { tokensMax: 12, lengthMultiple: 4, widthMultiple: 2 };

/** The values, padded with 0. */
const padded = (values: number[], length: number) => Int32Array.from({ length }, (_, i) => values[i] ?? 0);

describe("rowBatches", () => {
  test("lay out two sequences as worked by hand", () => {
    const batches = rowBatches([sequenceOf([5, 6, 7], [2]), sequenceOf([1, 2, 3, 4], [1, 3])], limits);
    expect(batches).toEqual([
      {
        // 12 tokens hold three rows of length 4; the third is padding. Nothing reads the last written token of a sequence.
        tokens: Int32Array.of(1, 2, 3, 0, 5, 6, 0, 0, 0, 0, 0, 0),
        length: 4,
        tree: null,
        // The state before token 1 of row 0 is state 0; before token 2 of row 1 it is 4 + 1.
        picks: padded([0, 2, 5], 32),
        targets: padded([2, 4, 7], 32),
        rows: 16,
        width: 2,
        // Two picks of row 0, then one of row 1.
        pickOfWritten: padded([0, 1, 2], 32),
        members: [1, 0],
        counts: [2, 1],
      },
    ]);
  });

  test("compute equal sequences once, and written tokens that follow equal states once", () => {
    const sequences = [
      sequenceOf([1, 2, 3, 4], [1, 3]),
      sequenceOf([1, 2, 3, 4], [1, 3]),
      // Equal up to the last written token, which differs.
      sequenceOf([1, 2, 3, 5], [3]),
      // Equal up to its last written token.
      sequenceOf([1, 2, 3, 4, 9], [2, 3]),
    ];
    const [batch, ...others] = rowBatches(sequences, limits);
    expect(others).toEqual([]);
    expect(batch!.tokens).toEqual(padded([1, 2, 3], 12));
    expect(batch!.picks.subarray(0, 5)).toEqual(Int32Array.of(0, 2, 2, 1, 0));
    expect(batch!.targets.subarray(0, 5)).toEqual(Int32Array.of(2, 4, 5, 3, 0));
    expect(batch!.members).toEqual([0, 1, 2, 3]);
    expect(batch!.pickOfWritten.subarray(0, 8)).toEqual(Int32Array.of(0, 1, 0, 1, 2, 0, 3, 1));
  });

  test("are an empty list if there are no sequences", () => {
    expect(rowBatches([], limits)).toEqual([]);
  });

  test("give a sequence beyond the limit a batch of its own", () => {
    const long = sequenceOf(
      Array.from({ length: 30 }, (_, i) => i),
      [29],
    );
    const batches = rowBatches([sequenceOf([1, 2], [1]), long], limits);
    expect(batches.map(({ tokens, length, members }) => [tokens.length / length, length, members])).toEqual([
      [1, 32, [1]],
      [3, 4, [0]],
    ]);
  });

  test("pad rows to a multiple of 4 and no further", () => {
    const different = (count: number) => Array.from({ length: count }, (_, i) => sequenceOf([i, 2, 3, 4], [3]));
    const roomy = { ...limits, tokensMax: 32 };
    const rows = (sequences: readonly Sequence[]) =>
      rowBatches(sequences, roomy).map(({ tokens, length, members }) => [tokens.length / length, members.length]);
    expect(rows(different(9))).toEqual([
      [8, 8],
      [4, 1],
    ]);
    expect(rows(different(12))).toEqual([
      [8, 8],
      [4, 4],
    ]);
  });

  const anyLimits = fc.record({
    tokensMax: fc.integer({ min: 1, max: 200 }),
    lengthMultiple: fc.integer({ min: 1, max: 16 }),
    widthMultiple: fc.integer({ min: 1, max: 16 }),
  });

  test("hold every sequence once and whole, within any limits", () => {
    fc.assert(
      fc.property(anySequences, anyLimits, (sequences, anyOf) => {
        const batches = rowBatches(sequences, anyOf);
        const members = batches.flatMap((batch) => batch.members);
        expect(members.toSorted((a, b) => a - b)).toEqual(sequences.map((_, i) => i));
        for (const batch of batches) {
          const { length, width, tokens, tree } = batch;
          expect(tree).toBeNull();
          expect(tokens.length === length || tokens.length <= anyOf.tokensMax).toBe(true);
          expect([tokens.length % length, length % anyOf.lengthMultiple, width % anyOf.widthMultiple]).toEqual([
            0, 0, 0,
          ]);
          expectToRead(batch, sequences, (state) => {
            const start = state - (state % length);
            return [...tokens.subarray(start, state + 1)];
          });
        }
      }),
    );
  });
});

test.each([
  ["no written token", [1, 2], [], "sequence 0: written tokens must lie in 1 … 1, got "],
  ["the first token written", [1, 2], [0, 1], "sequence 0: written tokens must lie in 1 … 1, got 0,1"],
  ["one beyond the end", [1, 2], [2], "sequence 0: written tokens must lie in 1 … 1, got 2"],
  ["one written twice", [1, 2, 3], [1, 1], "sequence 0: written tokens must ascend, got 1,1"],
])("a sequence with %s is refused", (_, tokens, written, message) => {
  expect(() => checkSequences([sequenceOf(tokens, written)])).toThrow(new RangeError(message));
});

test("layRows puts each sequence's values into its row, and 0 elsewhere", () => {
  const [batch] = rowBatches([sequenceOf([5, 6, 7], [2]), sequenceOf([1, 2, 3, 4], [1, 3])], limits);
  expect(layRows(batch!, [[0.5], [0.25, -1]])).toEqual(
    Float32Array.from({ length: 32 }, (_, i) => [0.25, -1, 0.5][i] ?? 0),
  );
});

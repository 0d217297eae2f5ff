/** Micro-batches hold every sequence once, index each written token, and keep to the memory limit. */
import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { type BatchLimits, layRows, microBatches, type Sequence } from "../../../model/learn/batch.ts";

const limits: BatchLimits = { tokensMax: 12, lengthMultiple: 4, widthMultiple: 2 };
const sequenceOf = (tokens: number[], written: number[]): Sequence => ({
  tokens: Int32Array.from(tokens),
  written: Int32Array.from(written),
});

describe("microBatches", () => {
  test("lays out two sequences as worked by hand", () => {
    const batches = microBatches([sequenceOf([5, 6, 7], [2]), sequenceOf([1, 2, 3, 4], [1, 3])], limits);
    expect(batches).toEqual([
      {
        // 12 tokens hold three rows of length 4; the third is padding.
        rows: 3,
        length: 4,
        width: 2,
        members: [1, 0],
        counts: [2, 1],
        tokens: Int32Array.of(1, 2, 3, 4, 5, 6, 7, 0, 0, 0, 0, 0),
        // The state before token 1 of row 0 is state 0; before token 2 of row 1 it is 4 + 1.
        picks: Int32Array.of(0, 2, 5, 0, 0, 0),
        targets: Int32Array.of(2, 4, 7, 0, 0, 0),
      },
    ]);
  });

  test("keep sequences of equal length in their order", () => {
    const equal = Array.from({ length: 3 }, () => sequenceOf([1, 2], [1]));
    expect(microBatches(equal, limits).flatMap(({ members }) => members)).toEqual([0, 1, 2]);
  });

  test("are an empty list if there are no sequences", () => {
    expect(microBatches([], limits)).toEqual([]);
  });

  test("give a sequence beyond the limit a batch of its own", () => {
    const long = sequenceOf(
      Array.from({ length: 30 }, (_, i) => i),
      [29],
    );
    const batches = microBatches([sequenceOf([1, 2], [1]), long], limits);
    expect(batches.map(({ rows, length, members }) => [rows, length, members])).toEqual([
      [1, 32, [1]],
      [3, 4, [0]],
    ]);
  });

  test("pad rows to a multiple of 4 and no further", () => {
    const nine = Array.from({ length: 9 }, () => sequenceOf([1, 2, 3, 4], [1]));
    const roomy = { ...limits, tokensMax: 32 };
    expect(microBatches(nine, roomy).map(({ rows, members }) => [rows, members.length])).toEqual([
      [8, 8],
      [4, 1],
    ]);
    const twelve = [...nine, ...nine.slice(0, 3)];
    expect(microBatches(twelve, roomy).map(({ rows, members }) => [rows, members.length])).toEqual([
      [8, 8],
      [4, 4],
    ]);
  });

  test.each([
    ["no written token", [1, 2], [], "sequence 0: written tokens must lie in 1 … 1, got "],
    ["the first token written", [1, 2], [0, 1], "sequence 0: written tokens must lie in 1 … 1, got 0,1"],
    ["one beyond the end", [1, 2], [2], "sequence 0: written tokens must lie in 1 … 1, got 2"],
    ["one written twice", [1, 2, 3], [1, 1], "sequence 0: written tokens must ascend, got 1,1"],
  ])("refuse a sequence with %s", (_, tokens, written, message) => {
    expect(() => microBatches([sequenceOf(tokens, written)], limits)).toThrow(new RangeError(message));
  });

  const anySequence = fc.integer({ min: 2, max: 40 }).chain((length) =>
    fc.record({
      tokens: fc.array(fc.integer({ min: 0, max: 99 }), { minLength: length, maxLength: length }),
      written: fc.subarray(
        Array.from({ length: length - 1 }, (_, i) => i + 1),
        { minLength: 1 },
      ),
    }),
  );
  const anyLimits = fc.record({
    tokensMax: fc.integer({ min: 1, max: 200 }),
    lengthMultiple: fc.integer({ min: 1, max: 16 }),
    widthMultiple: fc.integer({ min: 1, max: 16 }),
  });

  test("hold every sequence once and whole, within any limits", () => {
    fc.assert(
      fc.property(fc.array(anySequence, { maxLength: 30 }), anyLimits, (drawn, anyOf) => {
        const sequences = drawn.map(({ tokens, written }) => sequenceOf(tokens, written));
        const batches = microBatches(sequences, anyOf);
        const members = batches.flatMap((batch) => batch.members);
        expect(members.toSorted((a, b) => a - b)).toEqual(sequences.map((_, i) => i));
        for (const { rows, length, width, members, tokens, picks, targets } of batches) {
          expect(rows === 1 || rows * length <= anyOf.tokensMax).toBe(true);
          expect([length % anyOf.lengthMultiple, width % anyOf.widthMultiple]).toEqual([0, 0]);
          expect([tokens.length, picks.length, targets.length]).toEqual([rows * length, rows * width, rows * width]);
          // Padding rows cost as much as full ones.
          expect(rows - members.length).toBeLessThan(4);
          for (const [row, member] of members.entries()) {
            const sequence = sequences[member]!;
            expect([...tokens.subarray(row * length, row * length + sequence.tokens.length)]).toEqual([
              ...sequence.tokens,
            ]);
            for (const [column, position] of sequence.written.entries()) {
              expect(picks[row * width + column]).toBe(row * length + position - 1);
              expect(targets[row * width + column]).toBe(sequence.tokens[position]!);
            }
          }
        }
      }),
    );
  });
});

test("layRows puts each sequence's values into its row, and 0 elsewhere", () => {
  const [batch] = microBatches([sequenceOf([5, 6, 7], [2]), sequenceOf([1, 2, 3, 4], [1, 3])], limits);
  expect([...layRows(batch!, [[0.5], [0.25, -1]])]).toEqual([0.25, -1, 0.5, 0, 0, 0]);
});

import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { type Aggregation, importanceWeights, tokenWeights } from "../../../model/learn/aggregation.ts";

// Rows of 1 and 3 tokens, and a row of padding.
const rows = { width: 3, written: Uint8Array.of(0, 1, 0, 1, 1, 1, 0, 0, 0) };

const mask = fc.array(fc.integer({ min: 0, max: 1 }), { minLength: 4, maxLength: 4 });
const masks = fc.array(mask, { minLength: 1, maxLength: 5 }).filter((all) => all.flat().includes(1));

describe("tokenWeights", () => {
  test.each<[Aggregation, number, number]>([
    ["token-mean", 1 / 4, 1 / 4],
    ["seq-mean-token-sum", 1 / 2, 1 / 2],
    ["seq-mean-token-mean", 1 / 2, 1 / 6],
    ["seq-mean-token-sum-norm", 1 / 8, 1 / 8],
  ])("%s matches rows of 1 and 3 tokens worked by hand", (aggregation, short, long) => {
    const weights = tokenWeights(rows, aggregation, 8);
    expect([...weights]).toEqual(Array.from(Float32Array.of(0, short, 0, long, long, long, 0, 0, 0)));
  });

  test("equals its definition, a loop over tokens, then over rows", () => {
    const losses = fc.array(fc.integer({ min: -50, max: 50 }), { minLength: 20, maxLength: 20 });
    fc.assert(
      fc.property(masks, losses, (all, loss) => {
        // Per row that is not padding: the losses of its written tokens.
        const told = all.map((row, r) => row.flatMap((one, t) => (one === 1 ? [loss[r * 4 + t]!] : [])));
        const real = told.filter((tokens) => tokens.length > 0);
        const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0);
        const mean = (values: readonly number[]) => sum(values) / values.length;
        const definitions: Record<Aggregation, number> = {
          "token-mean": mean(real.flat()),
          "seq-mean-token-sum": mean(real.map(sum)),
          "seq-mean-token-mean": mean(real.map(mean)),
          // As verl, a sum over rows: the caller's divisor holds their number.
          "seq-mean-token-sum-norm": sum(real.flat()) / 8,
        };
        for (const [aggregation, expected] of Object.entries(definitions)) {
          const batch = { width: 4, written: Uint8Array.from(all.flat()) };
          const weights = tokenWeights(batch, aggregation as Aggregation, 8);
          expect(weights.reduce((total, weight, i) => total + weight * loss[i]!, 0)).toBeCloseTo(expected, 4);
        }
      }),
    );
  });

  test("does not change with rows of padding", () => {
    const kinds = fc.constantFrom<Aggregation>("token-mean", "seq-mean-token-sum", "seq-mean-token-mean");
    fc.assert(
      fc.property(masks, kinds, (all, aggregation) => {
        const written = Uint8Array.from(all.flat());
        const padded = Uint8Array.from([...written, 0, 0, 0, 0]);
        const weights = tokenWeights({ width: 4, written }, aggregation);
        expect(tokenWeights({ width: 4, written: padded }, aggregation).subarray(0, written.length)).toEqual(weights);
      }),
    );
  });

  test("refuses a minibatch in which nothing is written", () => {
    expect(() => tokenWeights({ width: 2, written: new Uint8Array(4) }, "token-mean")).toThrow(
      "no token of the minibatch is written, so there is no loss",
    );
  });
});

describe("importanceWeights", () => {
  const learner = Float32Array.of(9, Math.log(3), 9, Math.log(0.5), Math.log(2), 0, 9, 9, 9);
  const sampler = new Float32Array(9);

  test.each([
    [2, "token", [0, 2, 0, 0.5, 2, 1, 0, 0, 0]],
    [10, "sequence", [0, 3, 0, 1, 1, 1, 0, 0, 0]],
  ] as const)("truncate to %p the ratio of each %s, worked by hand", (cap, level, expected) => {
    const weights = importanceWeights(rows, learner, sampler, { cap, level });
    for (const [i, weight] of expected.entries()) expect(weights[i]).toBeCloseTo(weight, 5);
  });

  test("are 1 where learner and sampler agree, and never exceed the cap", () => {
    const logs = fc.float32Array({ minLength: 9, maxLength: 9, min: -20, max: 0, noNaN: true });
    fc.assert(
      fc.property(logs, logs, (a, b) => {
        const same = importanceWeights(rows, a, a, { cap: 2, level: "token" });
        expect([...same]).toEqual([...rows.written]);
        const weights = importanceWeights(rows, a, b, { cap: 2, level: "token" });
        expect(weights.every((weight) => weight >= 0 && weight <= 2)).toBe(true);
      }),
    );
  });
});

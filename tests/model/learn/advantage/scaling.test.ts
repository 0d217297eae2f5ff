import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { filterLossScale, lengthWeights, rowFactors, softReweight } from "../../../../model/learn/advantage/scaling.ts";

describe("softReweight", () => {
  test("is each group's std over the widest, worked by hand", () => {
    // stds: of 0, 2: sqrt 2; of 1, 1: 0; of 0, 1: sqrt(1/2); alone: 0.
    const factors = softReweight([0, 2, 1, 1, 0, 1, 9], [0, 0, 1, 1, 2, 2, 3]);
    [1, 1, 0, 0, 0.5, 0.5, 0].forEach((factor, row) => {
      expect(factors[row]).toBeCloseTo(factor, 5);
    });
  });

  test("equals its definition, and does not change when all rewards are multiplied", () => {
    const row = fc.tuple(fc.integer({ min: -9, max: 9 }), fc.integer({ min: 0, max: 3 }));
    fc.assert(
      fc.property(fc.array(row, { minLength: 1, maxLength: 12 }), (all) => {
        const [rewards, groups] = [all.map(([reward]) => reward), all.map(([, group]) => group)];
        const std = (group: number) => {
          const own = rewards.filter((_, i) => groups[i] === group);
          const center = own.reduce((sum, reward) => sum + reward, 0) / own.length;
          const squares = own.reduce((sum, reward) => sum + (reward - center) ** 2, 0);
          return own.length < 2 ? 0 : Math.sqrt(squares / (own.length - 1));
        };
        const widest = Math.max(...groups.map(std));
        const wider = softReweight(
          rewards.map((reward) => 10 * reward),
          groups,
        );
        for (const [i, factor] of softReweight(rewards, groups).entries()) {
          expect(factor).toBeCloseTo(std(groups[i]!) / (widest + 1e-6), 9);
          expect(wider[i]).toBeCloseTo(factor, 5);
        }
      }),
    );
  });

  test("is 0 for every row of a constant batch, not NaN", () => {
    expect([...softReweight([1, 1], [0, 0])]).toEqual([0, 0]);
  });
});

test("filterLossScale follows the kept share", () => {
  expect([filterLossScale("none", 0.25), filterLossScale("linear", 0.25), filterLossScale("sqrt", 0.25)]).toEqual([
    1, 0.25, 0.5,
  ]);
});

describe("lengthWeights", () => {
  test("match lengths worked by hand", () => {
    const weights = lengthWeights([1, 3]);
    expect(weights[0]).toBeCloseTo(2 / (1 + 1e-6), 9);
    expect(weights[1]).toBeCloseTo(2 / (3 + 1e-6), 9);
  });

  test("give every row the same weight times length", () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 1, max: 500 }), { minLength: 1 }), (lengths) => {
        const average = lengths.reduce((sum, length) => sum + length, 0) / lengths.length;
        lengthWeights(lengths).forEach((weight, row) => {
          expect((weight * lengths[row]!) / average).toBeCloseTo(1, 5);
        });
      }),
    );
  });
});

describe("rowFactors", () => {
  const rows = { rewards: [1, 0, 3, 3], groups: [0, 0, 1, 1], lengths: [2, 4, 2, 4], keptShare: 0.25 };
  const none = { softReweight: false, filterLossScaling: "none", lengthWeighting: false, zero: false } as const;

  test("is 1 without any factor, and 0 with `zero`", () => {
    expect([...rowFactors(rows, none)]).toEqual([1, 1, 1, 1]);
    expect([...rowFactors(rows, { ...none, softReweight: true, zero: true })]).toEqual([0, 0, 0, 0]);
  });

  test("multiplies the advantages, worked by hand", () => {
    // Group 0 is the widest: its factor is just under 1; group 1 is constant. Mean length 3. Root of a quarter.
    const all = rowFactors(rows, { softReweight: true, filterLossScaling: "sqrt", lengthWeighting: true, zero: false });
    expect([...all].map((factor) => factor.toFixed(4))).toEqual(["0.7500", "0.3750", "0.0000", "0.0000"]);
  });
});

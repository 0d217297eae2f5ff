import { describe, expect, test } from "bun:test";
import { bunraku, entropyFloor, gradientThreeSigma, ragen } from "../../bench/detector/alarms.ts";
import { outcomeOf } from "../../bench/detector/outcome.ts";

const repeat = <T>(count: number, value: T): T[] => Array.from({ length: count }, () => value);

describe("the outcome of a run", () => {
  test("is a collapse where success ends below half of its peak, from the update in which it first fell so far", () => {
    // The mean of five falls below .4 when three of them are 0: (2 · .8) / 5 = .32.
    const success = [...repeat(20, 0.8), ...repeat(20, 0)];
    expect(outcomeOf(success)).toEqual({ kind: "collapsed", onset: 22 });
  });

  test("is unclear where success fell and came back, or ends between", () => {
    expect(outcomeOf([...repeat(20, 0.8), ...repeat(20, 0), ...repeat(20, 0.8)]).kind).toBe("unclear");
    expect(outcomeOf([...repeat(20, 0.8), ...repeat(20, 0.5)]).kind).toBe("unclear");
  });

  test("is healthy at the ceiling, while it rises, and at chance", () => {
    for (const success of [
      repeat(40, 1),
      Array.from({ length: 40 }, (_, i) => i / 40),
      Array.from({ length: 40 }, (_, i) => 0.05 + 0.04 * (i % 2)),
    ]) {
      expect(outcomeOf(success).kind).toBe("healthy");
    }
  });
});

describe("the first alarm", () => {
  const learns = {
    "train/success": 0.5,
    "train/in_group_std": 1,
    "train/kept_groups": 1,
    "train/entropy": 0.5,
    "train/grad_norm": 1,
  };

  test("of a healthy run is none", () => {
    const updates = repeat(50, learns);
    for (const detector of [bunraku(["warning", "collapsed"]), ragen, entropyFloor(0.1), gradientThreeSigma]) {
      expect(detector(updates)).toBeNull();
    }
  });

  test("of the entropy floor is the third update in a row below it", () => {
    const low = { ...learns, "train/entropy": 0.05 };
    expect(entropyFloor(0.1)([...repeat(10, learns), low, low, learns, low, low, low])).toBe(15);
  });

  test("of the gradient is the update above mean + 3 σ, from the twentieth on", () => {
    const updates = Array.from({ length: 30 }, (_, i) => ({ ...learns, "train/grad_norm": i % 2 === 0 ? 1 : 2 }));
    expect(gradientThreeSigma(updates.with(5, { ...learns, "train/grad_norm": 9 }))).toBeNull();
    expect(gradientThreeSigma(updates.with(25, { ...learns, "train/grad_norm": 9 }))).toBe(25);
  });

  test("of Bunraku comes when success and form fall, and of RAGEN-2's stops when no group has a spread", () => {
    const malformed = { ...learns, "train/success": 0, "train/format_errors": 1, "train/in_group_std": 0 };
    const updates = [...repeat(20, { ...learns, "train/format_errors": 0 }), ...repeat(30, malformed)];
    const alarm = bunraku(["collapsed"])(updates)!;
    expect(alarm).toBeGreaterThanOrEqual(20);
    expect(alarm).toBeLessThan(30);
    // Ten updates in a row below a tenth of the baseline.
    expect(ragen(updates)).toBe(29);
  });
});

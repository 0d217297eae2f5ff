import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { explainedVariance, repetition, rewardSpread } from "../../../model/health/diagnostics.ts";

describe("rewardSpread", () => {
  test("averages the std of groups that can be compared, worked by hand", () => {
    // sqrt 2, 0, and a group of one that counts for neither.
    expect(rewardSpread([0, 2, 1, 1, 9], [0, 0, 1, 1, 2])).toEqual({
      rewardStd: Math.SQRT2 / 2,
      zeroStdShare: 0.5,
    });
    expect(rewardSpread([1, 2], [0, 1])).toBeNull();
  });

  test("counts a group as constant whose rewards differ only as sums in another order do", () => {
    const [one, other] = [0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1];
    expect(one).not.toBe(other);
    expect(rewardSpread([one, other, 0, 1e-9], [0, 0, 1, 1])!.zeroStdShare).toBe(0.5);
    expect(rewardSpread([one, other], [0, 0])).toEqual({ rewardStd: 0, zeroStdShare: 1 });
  });
});

describe("explainedVariance", () => {
  const all = Uint8Array.of(1, 1, 1);

  test("matches three tokens worked by hand", () => {
    // Returns 0, 3, 6: variance 6. Errors 0, 1, 2: variance 2/3. 1 - 1/9.
    expect(explainedVariance(Float32Array.of(0, 2, 4), Float32Array.of(0, 3, 6), all)).toBeCloseTo(8 / 9, 6);
  });

  test("is 1 for a perfect critic, 0 for a constant one, null for constant returns", () => {
    const returns = fc.array(fc.integer({ min: -9, max: 9 }), { minLength: 3, maxLength: 3 });
    fc.assert(
      fc.property(returns, fc.integer({ min: -5, max: 5 }), (list, constant) => {
        const targets = Float32Array.from(list);
        const varies = new Set(list).size > 1;
        expect(explainedVariance(targets, targets, all)).toBe(varies ? 1 : null);
        const same = explainedVariance(new Float32Array(3).fill(constant), targets, all);
        if (varies) expect(same).toBeCloseTo(0, 9);
      }),
    );
  });

  test("reads written tokens only", () => {
    const written = Uint8Array.of(1, 0, 1);
    expect(explainedVariance(Float32Array.of(1, 50, 2), Float32Array.of(1, -50, 2), written)).toBe(1);
  });
});

describe("repetition", () => {
  test("is the share of n-grams seen before, worked by hand", () => {
    // 1 2, 2 1, 1 2, 2 1, 1 3: three distinct of five.
    expect(repetition([1, 2, 1, 2, 1, 3], 2)).toBeCloseTo(0.4, 12);
    expect(repetition([1, 2, 3, 4], 2)).toBe(0);
    expect(repetition([1], 2)).toBeNull();
  });

  test("distinguishes 1 2 3 and 12 3, and is near 1 for a loop", () => {
    expect(repetition([1, 23, 12, 3], 2)).toBe(0);
    expect(repetition(Array(100).fill(7), 3)).toBeCloseTo(97 / 98, 12);
  });

  test("equals counting repeats one by one", () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 0, max: 3 }), { minLength: 3, maxLength: 30 }), (tokens) => {
        const grams = tokens.slice(0, -2).map((_, i) => tokens.slice(i, i + 3));
        const repeats = grams.filter((gram, i) => grams.slice(0, i).some((old) => old.every((t, k) => t === gram[k])));
        expect(repetition(tokens, 3)).toBeCloseTo(repeats.length / grams.length, 12);
      }),
    );
  });
});

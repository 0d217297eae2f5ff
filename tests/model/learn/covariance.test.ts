import { describe, expect, test } from "bun:test";
import { covariances, holdBack } from "../../../model/learn/covariance.ts";

// Two rows; the last column of the second is padding. Means of the five tokens: advantage .2, log-probability -1.
const rows = { width: 3, written: Uint8Array.of(1, 1, 1, 1, 1, 0) };
const advantages = Float32Array.of(1, 1, 1, -1, -1, 99);
const logProbs = Float32Array.of(-0.5, -1, -2.5, -0.5, -0.5, 99);
const covariance = covariances(rows, advantages, logProbs);

test("covariances are products of distances from the means of the written tokens, worked by hand", () => {
  const expected = [0.8 * 0.5, 0, 0.8 * -1.5, -1.2 * 0.5, -1.2 * 0.5, 0];
  for (const [i, value] of expected.entries()) expect(covariance[i]).toBeCloseTo(value, 6);
});

describe("holdBack", () => {
  test("changes nothing without a rule", () => {
    expect(holdBack(rows, advantages, covariance, null)).toEqual({ advantages, factors: null, share: 0 });
  });

  test("by KL-Cov puts the coefficient on the tokens with the largest covariance, and leaves advantages", () => {
    const rule = { treatment: "kl", share: 0.4, coefficient: 3 } as const;
    expect(holdBack(rows, advantages, covariance, rule)).toEqual({
      advantages,
      factors: Float32Array.of(3, 3, 0, 0, 0, 0),
      share: 0.4,
    });
  });

  test("by KL-Cov treats one token where the share is less than one", () => {
    const { factors } = holdBack(rows, advantages, covariance, { treatment: "kl", share: 1e-4, coefficient: 1 });
    expect([...factors!]).toEqual([1, 0, 0, 0, 0, 0]);
  });

  test("by Clip-Cov takes the advantage of tokens between the bounds", () => {
    const rule = { treatment: "clip", share: 1, bounds: [-0.7, 0.1], draw: [1, "draw"] } as const;
    const held = holdBack(rows, advantages, covariance, rule);
    expect([...held.advantages]).toEqual([1, 0, 1, 0, 0, 99]);
    expect(held).toMatchObject({ factors: null, share: 0.6 });
    expect(advantages[1]).toBe(1);
  });

  test("by either treats as many tokens as the share says, rounded down", () => {
    expect(holdBack(rows, advantages, covariance, { treatment: "kl", share: 0.5, coefficient: 1 }).share).toBe(0.4);
  });

  test("by Clip-Cov leaves tokens on a bound", () => {
    // Token 1 has covariance 0, token 0 has 0.4.
    for (const bounds of [
      [0, 1],
      [-0.1, covariance[0]!],
    ] as const) {
      const held = holdBack(rows, advantages, covariance, { treatment: "clip", share: 1, bounds, draw: [1, "draw"] });
      expect(held.share).toBe(0.2);
    }
  });

  test("by Clip-Cov treats no token where none lies between the bounds", () => {
    const rule = { treatment: "clip", share: 1, bounds: [1, 5], draw: [1, "draw"] } as const;
    expect(holdBack(rows, advantages, covariance, rule)).toEqual({ advantages, factors: null, share: 0 });
  });

  test("by Clip-Cov draws each token between the bounds equally often, and as many as the share says", () => {
    const times = [0, 0, 0, 0, 0, 0];
    for (let draw = 0; draw < 3000; draw++) {
      const rule = { treatment: "clip", share: 0.4, bounds: [-0.7, 0.1], draw: [7, `update ${draw}`] } as const;
      const held = holdBack(rows, advantages, covariance, rule);
      expect(held.share).toBe(0.4);
      for (const [i, advantage] of held.advantages.entries()) if (advantage === 0) times[i]! += 1;
    }
    // Two of the tokens 1, 3 and 4: each 2,000 times, with a standard deviation of 26.
    expect([times[0], times[2], times[5]]).toEqual([0, 0, 0]);
    for (const i of [1, 3, 4]) expect(Math.abs(times[i]! - 2000)).toBeLessThan(130);
  });
});

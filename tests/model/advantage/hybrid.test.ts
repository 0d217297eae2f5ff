import { describe, expect, test } from "bun:test";
import { hybrid } from "../../../model/advantage/hybrid.ts";

// Two trajectories of one token each, one group; rewards 0 and 2, so each is 2 away from the other.
const rows = { width: 2, written: Uint8Array.of(1, 0, 1, 0) };
const critic = (values: number[]) => {
  const returns = Float32Array.of(0, 0, 2, 0);
  return { values: Float32Array.from(values), returns, advantages: returns.map((r, i) => r - values[i]!) };
};

describe("hybrid", () => {
  test("weighs both baselines by their measured error, worked by hand", () => {
    // Critic: errors -1 and 1, mean square 1. Group: errors -2 and 2, mean square 4. Share of the critic 4 / 5.
    const { advantages, criticShare } = hybrid(rows, critic([1, 0, 1, 0]), [0, 2], [0, 0]);
    expect(criticShare).toBeCloseTo(0.8, 12);
    expect(advantages[0]).toBeCloseTo(0.8 * -1 + 0.2 * -2, 6);
    expect(advantages[2]).toBeCloseTo(0.8 * 1 + 0.2 * 2, 6);
    expect(advantages[1]).toBe(0);
  });

  test("trusts a perfect critic alone, and hardly a wild one", () => {
    expect(hybrid(rows, critic([0, 0, 2, 0]), [0, 2], [0, 0]).criticShare).toBe(1);
    expect(hybrid(rows, critic([100, 0, -100, 0]), [0, 2], [0, 0]).criticShare).toBeLessThan(0.001);
  });

  test("uses the critic alone for a trajectory that is alone in its group", () => {
    const { advantages, criticShare } = hybrid(rows, critic([1, 0, 1, 0]), [0, 2], [0, 1]);
    expect(criticShare).toBe(1);
    expect([advantages[0], advantages[2]]).toEqual([-1, 1]);
  });

  test("splits evenly where both baselines are exact", () => {
    const exact = {
      values: Float32Array.of(1, 0, 1, 0),
      returns: Float32Array.of(1, 0, 1, 0),
      advantages: new Float32Array(4),
    };
    expect(hybrid(rows, exact, [1, 1], [0, 0]).criticShare).toBe(0.5);
  });
});

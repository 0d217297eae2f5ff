import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { gae } from "../../../../model/learn/advantage/gae.ts";
import { hybrid } from "../../../../model/learn/advantage/hybrid.ts";
import { tokenRewards } from "../../../../model/learn/advantage/rows.ts";
import { near, randomRows, writtenColumns } from "./rows.ts";

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

  test("gives a perfect critic all the weight, and a very wrong critic almost none", () => {
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

  const rule = { gamma: 1, lambda: 1 };
  /** Random rows in groups of two, with the critic's side of it. */
  const drawn = randomRows.map((rows) => {
    const rewards = rows.turns.map(({ rewards }) => rewards.reduce((sum, reward) => sum + reward, 0));
    const groups = rewards.map((_, row) => row >> 1);
    const estimate = gae(rows, tokenRewards(rows, rows.turns, "end"), rows.values, rule);
    return { rows, rewards, groups, critic: { ...estimate, values: rows.values } };
  });

  test("equals its definition, token by token", () => {
    fc.assert(
      fc.property(drawn, ({ rows, rewards, groups, critic }) => {
        const mean = (values: number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;
        const tokens = rewards.flatMap((_, row) =>
          writtenColumns(rows, row).map((column) => row * rows.width + column),
        );
        const others = (row: number) => rewards.filter((_, i) => i !== row && groups[i] === groups[row]);
        const compared = rewards.map((_, row) => row).filter((row) => others(row).length > 0);
        const ours = mean(tokens.map((i) => (critic.returns[i]! - critic.values[i]!) ** 2));
        const theirs =
          compared.length === 0
            ? Number.POSITIVE_INFINITY
            : mean(compared.map((row) => (rewards[row]! - mean(others(row))) ** 2));
        const share = compared.length === 0 ? 1 : ours + theirs === 0 ? 0.5 : theirs / (ours + theirs);
        const got = hybrid(rows, critic, rewards, groups);
        expect(got.criticShare).toBeCloseTo(share, 5);
        const expected = tokens.map((i) => {
          const row = Math.floor(i / rows.width);
          const weight = others(row).length > 0 ? share : 1;
          return weight * critic.advantages[i]! + (weight < 1 ? (1 - weight) * (rewards[row]! - mean(others(row))) : 0);
        });
        const advantages = tokens.map((i) => got.advantages[i]!);
        expect(near(advantages, expected, 1000)).toBe(true);
      }),
    );
  });

  test("lies between both estimates", () => {
    fc.assert(
      fc.property(drawn, ({ rows, rewards, groups, critic }) => {
        const { criticShare, advantages } = hybrid(rows, critic, rewards, groups);
        expect(criticShare).toBeGreaterThanOrEqual(0);
        expect(criticShare).toBeLessThanOrEqual(1);
        expect(advantages.every((advantage, i) => rows.written[i] === 1 || advantage === 0)).toBe(true);
      }),
    );
  });
});

import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { biLevelGae, discountedReturns, gae } from "../../../../model/learn/advantage/gae.ts";
import { tokenRewards } from "../../../../model/learn/advantage/rows.ts";
import { near, type RandomRows, randomRows, writtenColumns } from "./rows.ts";

const discount = fc.double({ min: 0, max: 1, noNaN: true });

/** The definition, O(T^2): `A_t = sum_k (gamma lambda)^k d_t+k` over the row's written tokens only. */
function slowGae(batch: RandomRows, rewards: Float32Array, gamma: number, lambda: number): Map<number, number> {
  const advantages = new Map<number, number>();
  for (let row = 0; row < batch.turns.length; row++) {
    const at = writtenColumns(batch, row).map((column) => row * batch.width + column);
    const deltas = at.map(
      (i, k) => rewards[i]! + gamma * (k + 1 < at.length ? batch.values[at[k + 1]!]! : 0) - batch.values[i]!,
    );
    at.forEach((i, t) => {
      const advantage = deltas.slice(t).reduce((sum, delta, k) => sum + (gamma * lambda) ** k * delta, 0);
      advantages.set(i, advantage);
    });
  }
  return advantages;
}

describe("gae", () => {
  test("matches two written tokens around an observation, worked by hand", () => {
    // d_2 = 1 - 0.4 = 0.6; d_0 = 0.9 * 0.4 - 0.5 = -0.14; A_0 = -0.14 + 0.9 * 0.5 * 0.6 = 0.13
    const rows = { width: 3, written: Uint8Array.of(1, 0, 1) };
    const { advantages, returns } = gae(rows, Float32Array.of(0, 0, 1), Float32Array.of(0.5, 7, 0.4), {
      gamma: 0.9,
      lambda: 0.5,
    });
    expect(advantages[0]).toBeCloseTo(0.13, 6);
    expect(advantages[2]).toBeCloseTo(0.6, 6);
    expect(returns[0]).toBeCloseTo(0.63, 6);
  });

  test("equals its definition", () => {
    fc.assert(
      fc.property(randomRows, discount, discount, (batch, gamma, lambda) => {
        const rewards = tokenRewards(batch, batch.turns, "turns");
        const { advantages, returns } = gae(batch, rewards, batch.values, { gamma, lambda });
        for (const [i, advantage] of slowGae(batch, rewards, gamma, lambda)) {
          const expected = [advantage, advantage + batch.values[i]!];
          expect(near([advantages[i]!, returns[i]!], expected)).toBe(true);
        }
      }),
    );
  });

  test("with gamma and lambda 1 is the reward still to come, less the value", () => {
    fc.assert(
      fc.property(randomRows, (batch) => {
        const rewards = tokenRewards(batch, batch.turns, "turns");
        const { returns } = gae(batch, rewards, batch.values, { gamma: 1, lambda: 1 });
        batch.turns.forEach(({ ends, rewards: earned }, row) => {
          for (const column of writtenColumns(batch, row)) {
            const rest = earned.filter((_, k) => ends[k]! >= column).reduce((sum, reward) => sum + reward, 0);
            expect(Math.abs(returns[row * batch.width + column]! - rest)).toBeLessThan(1e-3);
          }
        });
      }),
    );
  });

  test("does not read values of tokens that the policy did not write", () => {
    const rows = { width: 3, written: Uint8Array.of(1, 0, 1) };
    const rewards = Float32Array.of(0, 0, 1);
    const first = (unwritten: number) =>
      gae(rows, rewards, Float32Array.of(0.5, unwritten, 0.4), { gamma: 1, lambda: 0.9 }).advantages[0];
    expect(first(7)).toBe(first(-7)!);
  });
});

/** Two steps, each by definition: turn-level GAE as a sum over turns, then token-level GAE inside one turn at a time. */
function slowBiLevel(batch: RandomRows, gamma: number, lambda: number, gammaTurn: number): Map<number, number> {
  const returns = new Map<number, number>();
  batch.turns.forEach(({ ends, rewards }, row) => {
    const value = (column: number) => batch.values[row * batch.width + column]!;
    const deltas = ends.map(
      (end, k) => rewards[k]! + (k + 1 < ends.length ? gammaTurn * value(ends[k + 1]!) : 0) - value(end),
    );
    ends.forEach((end, k) => {
      const target = value(end) + deltas.slice(k).reduce((sum, d, j) => sum + (gammaTurn * lambda) ** j * d, 0);
      const tokens = writtenColumns(batch, row).filter((t) => t <= end && (k === 0 || t > ends[k - 1]!));
      const inner = tokens.map((t, j) => (t === end ? target : gamma * value(tokens[j + 1]!)) - value(t));
      tokens.forEach((t, j) => {
        const advantage = inner.slice(j).reduce((sum, d, m) => sum + (gamma * lambda) ** m * d, 0);
        returns.set(row * batch.width + t, advantage + value(t));
      });
    });
  });
  return returns;
}

describe("biLevelGae", () => {
  test("matches two turns worked by hand", () => {
    // Turn ends 1 and 3, gammaTurn 0.9, lambda 0.5, gamma 1. A(3) = 2 - 1 = 1; A(1) = 0 + 0.9 * 1 - 0.5 + 0.45 * 1 = 0.85.
    // Token 1 earns 1.35; token 0: d = 0.5 - 0.2 = 0.3, A = 0.3 + 0.5 * 0.85 = 0.725.
    const rows = { width: 4, written: Uint8Array.of(1, 1, 1, 1) };
    const turns = [{ ends: [1, 3], rewards: [0, 2] }];
    const rule = { gamma: 1, lambda: 0.5, gammaTurn: 0.9 };
    const { advantages, returns } = biLevelGae(rows, turns, Float32Array.of(0.2, 0.5, 0.8, 1), rule);
    // Token 2: d = 1 - 0.8 = 0.2, A = 0.2 + 0.5 * 1 = 0.7.
    expect(near(advantages, [0.725, 0.85, 0.7, 1], 1)).toBe(true);
    expect(near(returns, [0.925, 1.35, 1.5, 2], 1)).toBe(true);
  });

  test("equals its definition, turns that earned 0 included", () => {
    fc.assert(
      fc.property(randomRows, discount, discount, discount, (batch, gamma, lambda, gammaTurn) => {
        const { returns } = biLevelGae(batch, batch.turns, batch.values, { gamma, lambda, gammaTurn });
        const expected = [...slowBiLevel(batch, gamma, lambda, gammaTurn)];
        for (const [i, value] of expected) expect(near([returns[i]!], [value])).toBe(true);
        expect(expected.length).toBe(batch.written.reduce((sum, one) => sum + one, 0));
      }),
    );
  });

  test("is plain gae where there is one turn", () => {
    const rows = { width: 4, written: Uint8Array.of(0, 1, 1, 1) };
    const turns = [{ ends: [3], rewards: [1] }];
    const values = Float32Array.of(0, 0.1, 0.5, 0.3);
    const plain = gae(rows, tokenRewards(rows, turns, "turns"), values, { gamma: 0.9, lambda: 0.8 });
    const bi = biLevelGae(rows, turns, values, { gamma: 0.9, lambda: 0.8, gammaTurn: 0.5 });
    expect(near(bi.advantages.subarray(1), plain.advantages.subarray(1))).toBe(true);
  });

  test("refuses written tokens after the last turn", () => {
    const rows = { width: 3, written: Uint8Array.of(1, 1, 1) };
    const rule = { gamma: 1, lambda: 1, gammaTurn: 1 };
    expect(() => biLevelGae(rows, [{ ends: [1], rewards: [1] }], new Float32Array(3), rule)).toThrow(
      "row 0: the last written token is at column 2, but the last turn ends at 1",
    );
    expect(() => biLevelGae(rows, [{ ends: [], rewards: [] }], new Float32Array(3), rule)).toThrow(
      "row 0: the last written token is at column 2, but the last turn ends at none",
    );
  });
});

const rows = { width: 4, written: Uint8Array.of(1, 1, 0, 1) };

describe("discountedReturns", () => {
  test("matches a row worked by hand", () => {
    // 8; then across the observation 0 + 0.5 * 8 = 4; then 1 + 0.5 * 4 = 3.
    const rewards = Float32Array.of(1, 0, 0, 8);
    expect([...discountedReturns(rows, rewards, 0.5)]).toEqual([3, 4, 0, 8]);
  });

  test("equals its definition, a discounted sum over later written tokens", () => {
    fc.assert(
      fc.property(randomRows, fc.double({ min: 0, max: 1, noNaN: true }), (batch, gamma) => {
        const rewards = tokenRewards(batch, batch.turns, "turns");
        const returns = discountedReturns(batch, rewards, gamma);
        for (let row = 0; row < batch.turns.length; row++) {
          const at = writtenColumns(batch, row).map((column) => row * batch.width + column);
          const expected = at.map((_, t) => at.slice(t).reduce((sum, i, k) => sum + gamma ** k * rewards[i]!, 0));
          const got = at.map((i) => returns[i]!);
          expect(near(got, expected)).toBe(true);
        }
      }),
    );
  });
});

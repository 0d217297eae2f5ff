import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { discountedReturns } from "../../../../model/learn/advantage/gae.ts";
import { tokenRewards } from "../../../../model/learn/advantage/rows.ts";
import { near, randomRows, writtenColumns } from "./rows.ts";

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
          expect(
            near(
              at.map((i) => returns[i]!),
              expected,
            ),
          ).toBe(true);
        }
      }),
    );
  });

  test("refuses a reward that would be lost", () => {
    expect(() => discountedReturns(rows, Float32Array.of(0, 0, 2, 0), 1)).toThrow(
      "row 0: reward 2 at column 2, which the policy did not write",
    );
  });
});

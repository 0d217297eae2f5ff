import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { overTokens, overTurns, tokenRewards, whiten } from "../../../../model/learn/advantage/rows.ts";
import { deviation, mean } from "../../../../model/statistics.ts";
import { near, randomRows } from "./rows.ts";

// Two turns, columns 1-2 and 5; an observation between them, padding behind.
const rows = { width: 8, written: Uint8Array.of(0, 1, 1, 0, 0, 1, 0, 0) };
const turns = [{ ends: [2, 5], rewards: [0.5, -2] }];

describe("tokenRewards", () => {
  test("puts each turn's reward on its last token, or the sum on the last turn's", () => {
    expect([...tokenRewards(rows, turns, "turns")]).toEqual([0, 0, 0.5, 0, 0, -2, 0, 0]);
    expect([...tokenRewards(rows, turns, "end")]).toEqual([0, 0, 0, 0, 0, -1.5, 0, 0]);
  });

  test("loses no reward", () => {
    fc.assert(
      fc.property(randomRows, fc.constantFrom("turns" as const, "end" as const), (batch, placement) => {
        const placed = tokenRewards(batch, batch.turns, placement);
        batch.turns.forEach(({ rewards }, row) => {
          const line = placed.subarray(row * batch.width, (row + 1) * batch.width);
          const sum = rewards.reduce((total, reward) => total + reward, 0);
          expect(line.reduce((total, reward) => total + reward, 0)).toBeCloseTo(sum, 3);
        });
      }),
    );
  });
});

describe("overTokens and overTurns", () => {
  test("spread a number over the tokens that the policy wrote", () => {
    expect([...overTokens(rows, [7])]).toEqual([0, 7, 7, 0, 0, 7, 0, 0]);
    expect([...overTurns(rows, [[2, 5]], [[3, 4]])]).toEqual([0, 3, 3, 0, 0, 4, 0, 0]);
  });
});

describe("whiten", () => {
  test("matches three tokens worked by hand", () => {
    // 1, 2, 6: mean 3, sample variance (4 + 1 + 9) / 2 = 7
    const whitened = whiten(Float32Array.of(1, 99, 2, 6), Uint8Array.of(1, 0, 1, 1));
    const root = Math.sqrt(7);
    expect(near(whitened, [-2 / root, 96 / root, -1 / root, 3 / root])).toBe(true);
  });

  test("gives mean 0 and variance 1 over the written tokens, and does not read others", () => {
    fc.assert(
      fc.property(randomRows, fc.double({ min: -100, max: 100, noNaN: true }), (batch, noise) => {
        const ramp = batch.values.map((value, i) => value + i);
        const whitened = whiten(ramp, batch.written);
        const kept = [...whitened].filter((_, i) => batch.written[i]);
        const before = deviation([...ramp].filter((_, i) => batch.written[i]));
        expect(mean(kept)).toBeCloseTo(0, 4);
        expect(deviation(kept)).toBeCloseTo(before / Math.sqrt(before ** 2 + 1e-8), 4);
        const noisy = whiten(
          ramp.map((x, i) => (batch.written[i] ? x : noise)),
          batch.written,
        );
        expect([...noisy].filter((_, i) => batch.written[i])).toEqual(kept);
      }),
    );
  });

  test("adds 1e-8 to the variance: tiny differences stay small", () => {
    // Variance 1e-8 of two numbers, each half of 1.41e-4 from their mean: half of 1 / sqrt 2, not all of it.
    const half = Math.sqrt(0.5e-8);
    expect(whiten(Float32Array.of(half, -half), Uint8Array.of(1, 1))[0]).toBeCloseTo(0.5, 5);
  });

  test("gives 0 to the only written token", () => {
    expect(whiten(Float32Array.of(1, 2), Uint8Array.of(0, 1))[1]).toBe(0);
  });
});

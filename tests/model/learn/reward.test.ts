import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { type Normalization, normalizeRewards, normalizeTurns, overlongPenalty } from "../../../model/learn/reward.ts";

const earned = {
  rewards: [4, 0, 0, 7, 1, 1],
  penalties: [0, 0, -1, 0, 0, 0],
  groups: [0, 0, 0, 0, 1, 1],
  tags: ["A", "A", "A", "B", "B", "B"],
};
const scores = (grouping: Normalization["grouping"], method: Normalization["method"]) =>
  [...normalizeRewards(earned, { grouping, method }).scores].map((score) => Number(score.toFixed(4)));

describe("normalizeRewards", () => {
  test("adds the penalty with every method", () => {
    expect(scores("state", "identity")).toEqual([4, 0, -1, 7, 1, 1]);
  });

  test("compares within group, tag or batch, worked by hand", () => {
    expect(scores("state", "mean")).toEqual([1.5, -2.5, -3.5, 4.5, 0, 0]);
    expect(scores("inductive", "mean")).toEqual([3, -1, -2, 4, -2, -2]);
    expect(scores("batch", "mean")).toEqual([2, -2, -3, 5, -1, -1]);
    // Tag A: 4, 0, -1, mean 1, sample variance 14 / 2 = 7. Tag B: 7, 1, 1, mean 3, variance 24 / 2 = 12.
    const [a, b] = [Math.sqrt(7), Math.sqrt(12)];
    const expected = [3 / a, -1 / a, -2 / a, 4 / b, -2 / b, -2 / b].map((score) => Number(score.toFixed(4)));
    expect(scores("inductive", "mean_std")).toEqual(expected);
  });

  test("gives a constant group 0 in every comparing method", () => {
    for (const method of ["mean", "mean_std", "asym_clip"] as const) {
      expect(scores("state", method).slice(4)).toEqual([0, 0]);
    }
  });

  test("asym_clip clamps to -1 and 3", () => {
    const lucky = {
      rewards: [100, ...Array(15).fill(0)],
      penalties: Array(16).fill(0),
      groups: Array(16).fill(0),
      tags: Array(16).fill(""),
    };
    expect(normalizeRewards(lucky, { grouping: "state", method: "asym_clip" }).scores[0]).toBe(3);
    const unlucky = { ...lucky, rewards: lucky.rewards.map((reward) => -reward) };
    expect(normalizeRewards(unlucky, { grouping: "state", method: "asym_clip" }).scores[0]).toBe(-1);
  });

  test("does not change rewards if every group has one member; the only member among larger groups gets 0", () => {
    const singles = { rewards: [1, 2], penalties: [-0.5, 0], groups: [0, 1], tags: ["", ""] };
    const rule = { grouping: "state", method: "mean_std" } as const;
    expect([...normalizeRewards(singles, rule).scores]).toEqual([0.5, 2]);
    const lost = { rewards: [9, 1, 3], penalties: [0, 0, 0], groups: [0, 1, 1], tags: ["", "", ""] };
    expect(normalizeRewards(lost, rule).scores[0]).toBe(0);
    // The scale 0 keeps its turns' rewards out of turn-level credit too.
    expect([...normalizeRewards(lost, { grouping: "state", method: "mean" }).scales]).toEqual([0, 1, 1]);
  });

  test("takes a group whose std is at most 1e-6 for constant, and adds 1e-6 to larger ones", () => {
    const pair = (reward: number) => ({ rewards: [reward, 0], penalties: [0, 0], groups: [0, 0], tags: ["", ""] });
    const first = (reward: number) =>
      normalizeRewards(pair(reward), { grouping: "state", method: "mean_std" }).scores[0];
    expect(first(1e-6)).toBe(0);
    // Mean and distance 1e-6, sample std sqrt 2 millionths.
    expect(first(2e-6)).toBeCloseTo(1 / (Math.SQRT2 + 1), 9);
  });

  test("equals its definition for every grouping and method", () => {
    const episode = fc.record({
      reward: fc.integer({ min: -20, max: 20 }),
      penalty: fc.constantFrom(0, -1, -2),
      group: fc.integer({ min: 0, max: 3 }),
      tag: fc.constantFrom("A", "B"),
    });
    const groupings = fc.constantFrom<Normalization["grouping"]>("state", "inductive", "batch");
    const methods = fc.constantFrom<Normalization["method"]>("identity", "mean", "mean_std", "asym_clip");
    fc.assert(
      fc.property(fc.array(episode, { minLength: 1, maxLength: 12 }), groupings, methods, (all, grouping, method) => {
        const given = {
          rewards: all.map(({ reward }) => reward),
          penalties: all.map(({ penalty }) => penalty),
          groups: all.map(({ group }) => group),
          tags: all.map(({ tag }) => tag),
        };
        const key = (one: (typeof all)[number]) => ({ state: `${one.group}`, inductive: one.tag, batch: "" })[grouping];
        const alone = new Set(all.map(key)).size === all.length;
        const got = normalizeRewards(given, { grouping, method }).scores;
        for (const [i, one] of all.entries()) {
          const score = one.reward + one.penalty;
          const others = all.filter((other) => key(other) === key(one)).map(({ reward, penalty }) => reward + penalty);
          const center = others.reduce((sum, other) => sum + other, 0) / others.length;
          const squares = others.reduce((sum, other) => sum + (other - center) ** 2, 0);
          const std = others.length < 2 ? 0 : Math.sqrt(squares / (others.length - 1));
          const standard = std <= 1e-6 ? 0 : (score - center) / (std + 1e-6);
          const expected = {
            identity: score,
            mean: score - center,
            mean_std: standard,
            asym_clip: Math.max(-1, Math.min(3, standard)),
          };
          expect(got[i]).toBeCloseTo(alone ? score : expected[method], 5);
        }
      }),
    );
  });

  test("mean_std by group has mean 0 and sample std 1, and does not change the rewards", () => {
    const group = fc.array(fc.integer({ min: -50, max: 50 }), { minLength: 2, maxLength: 8 });
    fc.assert(
      fc.property(
        group.filter((rewards) => new Set(rewards).size > 1),
        (rewards) => {
          const before = rewards.slice();
          const zeros = rewards.map(() => 0);
          const tags = rewards.map(() => "");
          const given = { rewards, penalties: zeros, groups: zeros, tags };
          const got = [...normalizeRewards(given, { grouping: "state", method: "mean_std" }).scores];
          expect(got.reduce((sum, score) => sum + score, 0)).toBeCloseTo(0, 6);
          const squares = got.reduce((sum, score) => sum + score ** 2, 0);
          expect(squares / (got.length - 1)).toBeCloseTo(1, 4);
          expect(rewards).toEqual(before);
        },
      ),
    );
  });
});

describe("normalizeTurns", () => {
  test("keeps each turn's share and puts what normalization changed on the last, worked by hand", () => {
    // Sum 3, score -1, scale 0.5: 0.5, then 1 + (-1 - 1.5).
    expect(normalizeTurns({ ends: [3, 9], rewards: [1, 2] }, -1, 0.5)).toEqual({ ends: [3, 9], rewards: [0.5, -1.5] });
  });

  test("adds up to the episode's score", () => {
    const turns = fc.array(fc.integer({ min: -9, max: 9 }), { minLength: 1, maxLength: 6 });
    const methods = fc.constantFrom<Normalization["method"]>("identity", "mean", "mean_std", "asym_clip");
    fc.assert(
      fc.property(fc.array(turns, { minLength: 1, maxLength: 5 }), methods, (episodes, method) => {
        const rewards = episodes.map((episode) => episode.reduce((sum, reward) => sum + reward, 0));
        const zeros = rewards.map(() => 0);
        const given = { rewards, penalties: zeros, groups: zeros, tags: rewards.map(() => "") };
        const { scores, scales } = normalizeRewards(given, { grouping: "state", method });
        episodes.forEach((episode, row) => {
          const turned = normalizeTurns({ ends: [...episode.keys()], rewards: episode }, scores[row]!, scales[row]!);
          expect(turned.rewards.reduce((sum, reward) => sum + reward, 0)).toBeCloseTo(scores[row]!, 9);
        });
      }),
    );
  });
});

describe("overlongPenalty", () => {
  const rule = { tokensMax: 100, margin: 20 };

  test("falls from 0 to -1 over the margin, worked by hand", () => {
    expect([0, 80, 90, 95, 100, 500].map((tokens) => overlongPenalty(tokens, rule))).toEqual([
      0, 0, -0.5, -0.75, -1, -1,
    ]);
  });

  test("is within -1 and 0, and never falls for a shorter reply", () => {
    const length = fc.integer({ min: 0, max: 300 });
    fc.assert(
      fc.property(length, length, fc.integer({ min: 1, max: 100 }), (a, b, margin) => {
        const [short, long] = [Math.min(a, b), Math.max(a, b)].map((n) =>
          overlongPenalty(n, { tokensMax: 100, margin }),
        );
        expect(long!).toBeLessThanOrEqual(short!);
        expect(long!).toBeGreaterThanOrEqual(-1);
        expect(short!).toBeLessThanOrEqual(0);
      }),
    );
  });
});

import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { drGrpo, expertIteration, grpo, maxRl, rloo } from "../../../../model/learn/advantage/group.ts";

const one = [5, 5, 5, 5];

/** Any number of trajectories, in up to four groups of any sizes, in any order. */
const rollout = fc
  .array(fc.tuple(fc.integer({ min: 0, max: 3 }), fc.double({ min: -10, max: 10, noNaN: true })), { minLength: 1 })
  .map((rows) => ({ groups: rows.map(([group]) => group), rewards: rows.map(([, reward]) => reward) }));

describe("group advantages", () => {
  test("grpo matches a group worked by hand", () => {
    // mean 0.5, sample std sqrt(1/3): 0.5 / 0.57735 = 0.86603
    const advantages = grpo([1, 0, 1, 0], one);
    expect([...advantages].map((a) => a.toFixed(4))).toEqual(["0.8660", "-0.8660", "0.8660", "-0.8660"]);
  });

  test("grpo adds 1e-6 to the std: tiny differences stay small", () => {
    // Mean 0, sample std sqrt 2 millionths.
    expect(grpo([1e-6, -1e-6], [0, 0])[0]).toBeCloseTo(1 / (Math.SQRT2 + 1), 9);
  });

  test("drGrpo and rloo match groups worked by hand", () => {
    // The others of 6 are 0, 1, 1: mean 2/3.
    expect([...drGrpo([6, 0, 1, 1], one)]).toEqual([4, -2, -1, -1]);
    expect(rloo([6, 0, 1, 1], one)[0]).toBeCloseTo(6 - 2 / 3, 12);
  });

  test("expertIteration gives successes their reward, and failures nothing, whatever the others earned", () => {
    expect([...expertIteration([10, -1, 8, 3], [true, false, true, false])]).toEqual([10, 0, 8, 0]);
  });

  test("maxRl divides by the share of successes, worked by hand; a group without one gets 0", () => {
    // Rewards of 0 and 1, as in the paper: mean and share 1/4, so (1 - 1/4) / (1/4) = 3 and -1.
    expect([...maxRl([0, 1, 0, 0], one, [false, true, false, false])]).toEqual([-1, 3, -1, -1]);
    // Costs: mean 2, share 1/4: (11 - 2) * 4; the mean of the other group is negative, and none of it succeeded.
    const rewards = [11, -1, -1, -1, -1, -3];
    expect([
      ...maxRl(
        rewards,
        [0, 0, 0, 0, 1, 1],
        rewards.map((reward) => reward > 0),
      ),
    ]).toEqual([36, -12, -12, -12, 0, 0]);
  });

  test.each([
    ["grpo", grpo],
    ["drGrpo", drGrpo],
    ["rloo", rloo],
  ] as const)("%s is exactly zero where every reward is equal", (_, estimate) => {
    expect([...estimate([0.1, 0.1, 0.1], [0, 0, 0])]).toEqual([0, 0, 0]);
  });

  test.each([
    ["grpo", grpo],
    ["drGrpo", drGrpo],
    ["rloo", rloo],
  ] as const)("%s keeps groups apart: each row is what its group alone would give it", (_, estimate) => {
    fc.assert(
      fc.property(rollout, ({ groups, rewards }) => {
        const all = estimate(rewards, groups);
        for (const group of new Set(groups)) {
          const rows = [...groups.keys()].filter((row) => groups[row] === group);
          const alone = estimate(
            rows.map((row) => rewards[row]!),
            rows.map(() => 0),
          );
          expect(rows.map((row) => all[row])).toEqual([...alone]);
        }
      }),
    );
  });

  test("rloo is the reward less the mean of the group's others", () => {
    fc.assert(
      fc.property(rollout, ({ groups, rewards }) => {
        const advantages = rloo(rewards, groups);
        rewards.forEach((reward, row) => {
          const others = rewards.filter((_, i) => i !== row && groups[i] === groups[row]);
          const expected = others.length === 0 ? 0 : reward - others.reduce((sum, r) => sum + r, 0) / others.length;
          expect(advantages[row]).toBeCloseTo(expected, 9);
        });
      }),
    );
  });

  test("grpo does not change when a group's rewards are moved, or multiplied", () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: -20, max: 20 }), { minLength: 2 }), (rewards) => {
        const groups = rewards.map(() => 0);
        const plain = grpo(rewards, groups);
        const moved = grpo(
          rewards.map((reward) => 3 * reward + 7),
          groups,
        );
        for (const [row, advantage] of moved.entries()) expect(advantage).toBeCloseTo(plain[row]!, 4);
      }),
    );
  });

  test("the only member of a group gets 0", () => {
    expect([...drGrpo([9, 1, 3], [0, 1, 1])]).toEqual([0, -1, 1]);
    expect([grpo([9, 1, 3], [0, 1, 1])[0], rloo([9, 1, 3], [0, 1, 1])[0]]).toEqual([0, 0]);
  });
});

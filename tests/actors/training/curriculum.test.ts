/** The curriculum gives groups to the envs whose episodes differ most: scores and splits worked by hand. */

import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { partName } from "../../../actors/metrics/metrics.ts";
import type { PlayedTicket } from "../../../actors/play/finished-ticket.ts";
import { curriculumMetrics, groupEnvs, scoresAfter } from "../../../actors/training/curriculum.ts";
import { aConfig, aTicket } from "../../fixtures.ts";
import { outcomeOf } from "./stage.ts";

const configOf = (groups: number, curriculum: Record<string, unknown>) =>
  aConfig({
    env: { mix: [{ tag: "SimpleSokoban" }, { tag: "FrozenLake" }, { tag: "Bandit", groups: 2 }] },
    rollout: { groups, curriculum },
    warmStart: { enabled: false },
  });
const counts = (envs: readonly string[]) =>
  ["SimpleSokoban", "FrozenLake", "Bandit"].map((name) => envs.filter((env) => env === name).length);

/** Episodes of one group, solved or not; a reward of 1 for a solved one. */
const group = (env: string, number: number, ...solved: boolean[]): PlayedTicket[] =>
  solved.map((success) => {
    const ticket = aTicket({ env, group: number });
    return { ticket, sampler: "s", outcome: outcomeOf(ticket, success) };
  });

describe("by difficulty", () => {
  const config = configOf(16, { by: "difficulty", groupsMin: 2, smoothing: 0.5, advanceAt: 0.75 });
  const groups = (scores: Record<string, number>) => counts(groupEnvs(config, scores));

  test("the first env that is not yet learned gets the groups, worked by hand", () => {
    expect(groups({})).toEqual([16, 0, 0]);
    expect(groups({ SimpleSokoban: 0.7 })).toEqual([16, 0, 0]);
    expect(groups({ SimpleSokoban: 0.75 })).toEqual([2, 14, 0]);
    expect(groups({ SimpleSokoban: 0.8, FrozenLake: 0.9, Bandit: 0.1 })).toEqual([2, 2, 12]);
    // All are learned: the hardest goes on.
    expect(groups({ SimpleSokoban: 0.8, FrozenLake: 0.9, Bandit: 0.9 })).toEqual([2, 2, 12]);
  });

  test("an env that is forgotten is trained on again", () => {
    expect(groups({ SimpleSokoban: 0.6, FrozenLake: 0.9 })).toEqual([16, 0, 0]);
  });

  test("scores are moving means of success", () => {
    const { curriculum } = config.rollout;
    const first = scoresAfter(curriculum, {}, group("SimpleSokoban", 0, true, true, true, false));
    expect(first).toEqual({ SimpleSokoban: 0.75 });
    expect(scoresAfter(curriculum, first, group("SimpleSokoban", 1, true, false))).toEqual({ SimpleSokoban: 0.625 });
    expect(curriculumMetrics(config, first)).toEqual({
      [partName("curriculum/score", "env", "SimpleSokoban")]: 0.75,
      "curriculum/level": 2,
    });
  });
});

describe("groups", () => {
  test("are the mix's until every env was measured", () => {
    const config = configOf(16, { by: "success" });
    expect(counts(groupEnvs(config))).toEqual([7, 7, 2]);
    expect(counts(groupEnvs(config, { SimpleSokoban: 0.5, FrozenLake: 0.1 }))).toEqual([7, 7, 2]);
  });

  test("go to the envs in proportion to their scores, above what each keeps", () => {
    const config = configOf(16, { by: "success", groupsMin: 2 });
    // 10 free groups, shared 5 : 3 : 2.
    expect(counts(groupEnvs(config, { SimpleSokoban: 0.5, FrozenLake: 0.3, Bandit: 0.2 }))).toEqual([7, 5, 4]);
    // All solved, or none: nothing tells them apart.
    expect(counts(groupEnvs(config, { SimpleSokoban: 0, FrozenLake: 0, Bandit: 0 }))).toEqual([6, 5, 5]);
    // 10 x 0.5 / 0.8 = 6.25, 3.75 and 0: the larger remainder gets the group that is left.
    expect(counts(groupEnvs(config, { SimpleSokoban: 0.5, FrozenLake: 0.3, Bandit: 0 }))).toEqual([8, 6, 2]);
  });

  test("are as many as ever, and none has fewer than it keeps", () => {
    const score = fc.double({ min: 0, max: 10, noNaN: true });
    fc.assert(
      fc.property(score, score, score, fc.integer({ min: 12, max: 40 }), (a, b, c, total) => {
        const config = configOf(2 * total, { by: "reward", groupsMin: 3 });
        const shares = counts(groupEnvs(config, { SimpleSokoban: a, FrozenLake: b, Bandit: c }));
        expect(shares.reduce((sum, share) => sum + share, 0)).toBe(2 * total);
        expect(Math.min(...shares)).toBeGreaterThanOrEqual(3);
      }),
      { numRuns: 30 },
    );
  });
});

describe("a score", () => {
  const by = (by: "none" | "success" | "reward", smoothing = 0.75) => ({
    by,
    smoothing,
    groupsMin: 1,
    advanceAt: 0.7,
  });
  const played = [
    ...group("Bandit", 0, true, false),
    ...group("Bandit", 1, true, true),
    ...group("FrozenLake", 2, false, false),
    ...group("SimpleSokoban", 3, true),
  ];

  test("is the mean spread within groups, and then a moving mean of it", () => {
    // Sample std of 1 and 0 is sqrt(1/2); of 1 and 1 it is 0. A group of one has no std.
    const first = scoresAfter(by("success"), {}, played);
    expect(first).toEqual({ Bandit: Math.SQRT1_2 / 2, FrozenLake: 0 });
    const second = scoresAfter(by("success"), { Bandit: 0.8, FrozenLake: 0.4 }, played);
    expect(second["Bandit"]).toBeCloseTo(0.75 * 0.8 + 0.25 * (Math.SQRT1_2 / 2), 12);
    expect(second["FrozenLake"]).toBeCloseTo(0.3, 12);
  });

  test("is in the env's reward where that is asked for, and not kept without a curriculum", () => {
    const rich = played.map((one) => ({
      ...one,
      outcome: {
        ...one.outcome,
        trajectory: {
          ...one.outcome.trajectory,
          turns: [{ end: 2, reward: 10 * Number(one.outcome.success), penalty: 0 }],
        },
      },
    }));
    expect(scoresAfter(by("reward"), {}, rich)["Bandit"]).toBeCloseTo(10 * (Math.SQRT1_2 / 2), 12);
    expect(scoresAfter(by("none"), {}, played)).toEqual({});
  });

  test("is 0 where the rewards of a group differ only as sums in another order do, so no env gets groups for that", () => {
    const failed = ["SimpleSokoban", "FrozenLake", "Bandit"].flatMap((env, number) =>
      group(env, number, false, false).map((one, member) => {
        const costs = env === "SimpleSokoban" ? [-0.1, -0.2, -0.3] : [0, 0, 0];
        const turns = (member === 0 ? costs : costs.toReversed()).map((reward, end) => ({ end, reward, penalty: 0 }));
        return { ...one, outcome: { ...one.outcome, trajectory: { ...one.outcome.trajectory, turns } } };
      }),
    );
    const scores = scoresAfter(by("reward"), {}, failed);
    expect(scores).toEqual({ SimpleSokoban: 0, FrozenLake: 0, Bandit: 0 });
    expect(counts(groupEnvs(configOf(16, { by: "reward", groupsMin: 2 }), scores))).toEqual([6, 5, 5]);
  });
});

test.each(["constructor", "__proto__"])("an env named %p gets groups by its score, like any other", (name) => {
  const mix = [{ tag: "Bandit" }, { tag: "FrozenLake", name }];
  const config = aConfig({ env: { mix }, rollout: { groups: 10, curriculum: { by: "success" } } });
  const { curriculum } = config.rollout;
  const shared = groupEnvs(config, { Bandit: 1 });
  expect(shared.filter((env) => env === name).length).toBe(5);
  const scores = scoresAfter(curriculum, {}, [...group("Bandit", 0, true, true), ...group(name, 1, true, false)]);
  expect(Object.entries(scores)).toEqual([
    ["Bandit", 0],
    [name, Math.SQRT1_2],
  ]);
  expect(groupEnvs(config, scores).filter((env) => env === name).length).toBe(9);
});

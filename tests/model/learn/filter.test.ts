import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { type Candidates, FILTER_METRICS, type FilterRule, filterGroups } from "../../../model/learn/filter.ts";
import { filterAsRagen } from "../../golden/cases/ragen.ts";

/** Groups by their rewards: [[0, 2], [1, 1]] is group 0 and group 1. */
const groupsOf = (rewards: number[][]): Candidates => ({
  groups: rewards.flatMap((group, g) => group.map(() => g)),
  rewards: rewards.flat(),
});
const ranking = { metric: "reward_variance", order: "largest", includeZero: true } as const;
const topP = (value: number, more: object = {}): FilterRule =>
  ({ strategy: "top_p", value, mode: "linear", ...ranking, ...more }) as FilterRule;

// Sample stds: sqrt 2, 0, 2 sqrt 2, 4 sqrt 2.
const four = groupsOf([
  [0, 2],
  [1, 1],
  [0, 4],
  [0, 8],
]);
// Both groups have a mean reward of 0.
const level = groupsOf([
  [-1, 1],
  [-2, 2],
]);
const byReward = { metric: "reward", order: "largest", includeZero: false } as const;

describe("filterGroups", () => {
  test.each<[string, FilterRule, number[]]>([
    ["half of the groups by std", { strategy: "top_ratio", value: 0.5, order: "largest" }, [2, 3]],
    ["half of the groups by least std", { strategy: "top_ratio", value: 0.5, order: "smallest" }, [0, 1]],
    ["a tenth by std: one group", { strategy: "top_ratio", value: 0.1, order: "largest" }, [3]],
    ["ratio 1: all", { strategy: "top_ratio", value: 1, order: "largest" }, [0, 1, 2, 3]],
    // Shares of the sum: 1/7, 0, 2/7, 4/7.
    ["half of the spread", topP(0.5), [3]],
    ["0.8 of the spread", topP(0.8), [2, 3]],
    // 0.858 of the sum is .006 more than the two widest hold.
    ["0.858 of the spread, less epsilon", topP(0.858), [2, 3]],
    ["value 1: all", topP(1), [0, 1, 2, 3]],
    ["value 1 without zeros", topP(1, { includeZero: false }), [0, 2, 3]],
    // exp of the stds: 4.1, 1, 16.9, 286; the widest holds 0.93.
    ["0.9 of the softmax", topP(0.9, { mode: "softmax" }), [3]],
    ["0.95 of the softmax", topP(0.95, { mode: "softmax" }), [2, 3]],
    // exp of minus the stds: 0.24, 1, 0.06, 0.003; the narrowest holds 0.77.
    ["0.7 of the softmax of the smallest", topP(0.7, { mode: "softmax", order: "smallest" }), [1]],
    ["0.9 of the softmax of the smallest", topP(0.9, { mode: "softmax", order: "smallest" }), [0, 1]],
    ["a quarter of the groups", { strategy: "top_k", value: 0.25, ...ranking }, [3]],
    ["a tenth: still one group", { strategy: "top_k", value: 0.1, ...ranking }, [3]],
    // RAGEN-2 counts the share over all groups, those that score 0 and are left out included.
    ["half of all groups, none of zero", { strategy: "top_k", value: 0.5, ...ranking, includeZero: false }, [2, 3]],
    ["half of a group: still one", { strategy: "top_k_abs", value: 0.5, ...ranking }, [3]],
    ["3 groups", { strategy: "top_k_abs", value: 3, ...ranking }, [0, 2, 3]],
    ["at least half of the widest", { strategy: "min_p", value: 0.5, ...ranking }, [2, 3]],
    ["no less than the widest", { strategy: "min_p", value: 1, ...ranking }, [3]],
    [
      "at most twice the narrowest",
      { strategy: "min_p", value: 0.5, ...ranking, order: "smallest", includeZero: false },
      [0, 2],
    ],
    ["the best mean", { strategy: "top_k_abs", value: 1, ...ranking, metric: "reward" }, [3]],
  ])("keeps %s", (_, rule, kept) => {
    expect(filterGroups(four, rule).kept).toEqual(kept);
  });

  test.each<[string, FilterRule, number[]]>([
    ["all", { strategy: "all" }, [0, 1]],
    ["ratio 1", { strategy: "top_ratio", value: 1, order: "largest" }, [0, 1]],
    ["top_p 1", topP(1), [0, 1]],
    ["top_k 1", { strategy: "top_k", value: 1, ...ranking }, [0, 1]],
    ["the best mean", { strategy: "top_k_abs", value: 1, ...ranking, metric: "reward" }, [1]],
  ])("does not rank by spread, so it keeps constant groups: %s", (_, rule, kept) => {
    const constant = groupsOf([
      [1, 1],
      [2, 2],
    ]);
    expect(filterGroups(constant, rule).kept).toEqual(kept);
  });

  test("takes the softmax of large scores", () => {
    const large = groupsOf([
      [1000, 1000],
      [1000, 1000],
      [0, 0],
    ]);
    expect(filterGroups(large, topP(0.9, { mode: "softmax", metric: "reward" })).kept).toEqual([0, 1]);
  });

  test("min_p keeps scores that are at its limit except for rounding", () => {
    // The means .15 and .1 + .2, which is 5.6e-17 above .3.
    const groups = groupsOf([[0.15], [0.1 + 0.2]]);
    const rule = { strategy: "min_p", value: 0.5, ...ranking, metric: "reward", order: "smallest" } as const;
    expect(filterGroups(groups, rule).kept).toEqual([0, 1]);
  });

  test("counts the groups that score 0, not the groups that score below 0", () => {
    const candidates = groupsOf([[-1], [0], [2]]);
    expect(filterGroups(candidates, { strategy: "top_k_abs", value: 1, ...byReward }).metrics.zeroScoreCount).toBe(1);
  });

  test("measures before and after, worked by hand", () => {
    const { rows, reason, metrics } = filterGroups(four, { strategy: "top_ratio", value: 0.25, order: "largest" });
    expect(rows).toEqual([6, 7]);
    expect(reason).toBeNull();
    expect(metrics).toMatchObject({ keptShare: 0.25, zeroScoreCount: 1 });
    expect(metrics.rewardStd).toBeCloseTo((7 * Math.SQRT2) / 4, 12);
    expect(metrics.keptRewardStd).toBeCloseTo(4 * Math.SQRT2, 12);
  });

  test("ranks by entropy, its spread and length", () => {
    const candidates = { ...four, entropies: [1, 1, 0, 4, 3, 3, 2, 2.5], lengths: [9, 9, 1, 1, 5, 5, 2, 2] };
    const best = (metric: (typeof FILTER_METRICS)[number]) =>
      filterGroups(candidates, { strategy: "top_k_abs", value: 1, ...ranking, metric }).kept;
    expect([best("entropy"), best("entropy_variance"), best("length")]).toEqual([[2], [1], [0]]);
  });

  test.each<[string, Candidates, FilterRule, string]>([
    [
      "a constant batch",
      groupsOf([
        [1, 1],
        [2, 2],
      ]),
      { strategy: "top_ratio", value: 0.5, order: "largest" },
      "0 of 2 groups kept: within every group all rewards are equal, so there is nothing to compare; if the task is solved, make it harder; if it is unsolved, give rewards for parts of it",
    ],
    [
      "top_p of the smallest where one group scores 0",
      four,
      topP(0.9, { order: "smallest" }),
      "0 of 4 groups kept: top_p 0.9 (smallest) selects nothing from reward_variance from 0 to 5.656854249492381",
    ],
    [
      "top_p of scores that are all 0",
      level,
      topP(0.5, { metric: "reward" }),
      "0 of 2 groups kept: top_p 0.5 (largest) selects nothing from reward from 0 to 0",
    ],
    [
      "top_k_abs without groups that score 0, where all do,",
      level,
      { strategy: "top_k_abs", value: 1, ...byReward },
      "0 of 2 groups kept: every group scores 0 by reward, and includeZero is false",
    ],
    [
      "min_p without groups that score 0, where all do,",
      level,
      { strategy: "min_p", value: 1, ...byReward },
      "0 of 2 groups kept: every group scores 0 by reward, and includeZero is false",
    ],
  ])("explains that %s leaves nothing", (_, candidates, rule, reason) => {
    const filtered = filterGroups(candidates, rule);
    expect(filtered).toMatchObject({ kept: [], rows: [], reason });
    expect(filtered.metrics).toMatchObject({ keptShare: 0, keptRewardStd: null });
  });

  test("RAGEN's lets the order of groups decide a constant batch", () => {
    const rule: FilterRule = { strategy: "top_ratio", value: 0.5, order: "largest" };
    const equal = { groups: [0, 0, 1, 1], rewards: [1, 1, 2, 2] };
    expect(filterAsRagen(equal, rule).kept).toEqual([0]);
  });

  test("groups of one member have no spread", () => {
    const { metrics, kept } = filterGroups(groupsOf([[5], [0, 1]]), {
      strategy: "top_ratio",
      value: 0.5,
      order: "largest",
    });
    expect(kept).toEqual([1]);
    expect(metrics).toMatchObject({ zeroScoreCount: 1 });
  });

  test("names what is wrong", () => {
    expect(() => filterGroups({ groups: [], rewards: [] }, { strategy: "all" })).toThrow(
      "cannot filter a rollout of 0 trajectories",
    );
    expect(() => filterGroups(four, { strategy: "top_k_abs", value: 1, ...ranking, metric: "entropy" })).toThrow(
      "filtering by entropy needs entropies of the trajectories",
    );
    expect(() => filterGroups({ ...four, lengths: [1] }, { strategy: "all" })).toThrow(
      "lengths: expected 8 entries, got 1",
    );
  });

  const rules = fc.oneof(
    fc.record({
      strategy: fc.constant("top_ratio" as const),
      value: fc.double({ min: 0.01, max: 1, noNaN: true }),
      order: fc.constantFrom("largest" as const, "smallest" as const),
    }),
    fc.record({
      strategy: fc.constantFrom("top_p" as const, "top_k" as const, "top_k_abs" as const, "min_p" as const),
      value: fc.double({ min: 0.01, max: 3, noNaN: true }),
      mode: fc.constantFrom("linear" as const, "softmax" as const),
      metric: fc.constantFrom(...FILTER_METRICS),
      order: fc.constantFrom("largest" as const, "smallest" as const),
      includeZero: fc.boolean(),
    }),
  ) as fc.Arbitrary<FilterRule>;
  const row = fc.record({
    groups: fc.integer({ min: 0, max: 5 }),
    rewards: fc.integer({ min: -3, max: 3 }),
    entropies: fc.double({ min: 0, max: 4, noNaN: true }),
    lengths: fc.integer({ min: 1, max: 50 }),
  });
  const anyRollout = fc.array(row, { minLength: 1, maxLength: 24 }).map((rows) => ({
    groups: rows.map((r) => r.groups),
    rewards: rows.map((r) => r.rewards),
    entropies: rows.map((r) => r.entropies),
    lengths: rows.map((r) => r.lengths),
  }));

  test("keeps whole groups in their order, whatever their sizes, and explains exactly the empty selections", () => {
    fc.assert(
      fc.property(anyRollout, rules, (candidates, rule) => {
        const { kept, rows, reason, metrics } = filterGroups(candidates, rule);
        expect(rows).toEqual([...candidates.groups.keys()].filter((i) => kept.includes(candidates.groups[i]!)));
        expect(kept).toEqual([...new Set(candidates.groups)].filter((group) => kept.includes(group)));
        expect(reason === null).toBe(kept.length > 0);
        expect(metrics.keptShare).toBe(kept.length / new Set(candidates.groups).size);
      }),
    );
  });

  test("keeps by rank or by threshold what each strategy's definition says", () => {
    const rewards = fc.array(fc.array(fc.integer({ min: 0, max: 9 }), { minLength: 2, maxLength: 4 }), {
      minLength: 1,
      maxLength: 8,
    });
    const share = fc.double({ min: 0.01, max: 1, noNaN: true });
    const order = fc.constantFrom("largest" as const, "smallest" as const);
    const strategy = fc.constantFrom("top_k" as const, "top_k_abs" as const, "min_p" as const);
    fc.assert(
      fc.property(rewards, strategy, share, order, fc.boolean(), (all, kind, value, order, includeZero) => {
        const means = all.map((group) => group.reduce((sum, reward) => sum + reward, 0) / group.length);
        const count = kind === "top_k_abs" ? 3 : value;
        const rule = { strategy: kind, value: count, metric: "reward", order, includeZero } as const;
        const { kept } = filterGroups(groupsOf(all), rule);
        const pool = [...means.keys()].filter((group) => includeZero || means[group] !== 0);
        // The number of strictly better groups in the pool; groups with fewer than k are kept.
        const above = (group: number) =>
          pool.filter((other) => {
            const ahead = order === "largest" ? means[other]! - means[group]! : means[group]! - means[other]!;
            return ahead > 0 || (ahead === 0 && other < group);
          }).length;
        const best =
          order === "largest" ? Math.max(...pool.map((g) => means[g]!)) : Math.min(...pool.map((g) => means[g]!));
        const within = (mean: number) =>
          order === "largest" ? mean >= value * best - 1e-9 : mean <= best / value + 1e-9;
        const most = kind === "top_k" ? Math.max(1, Math.floor(value * all.length)) : 3;
        expect(kept).toEqual(pool.filter((group) => (kind === "min_p" ? within(means[group]!) : above(group) < most)));
      }),
    );
  });

  test("no dropped group has a larger std than a kept one", () => {
    fc.assert(
      fc.property(anyRollout, fc.double({ min: 0.01, max: 0.99, noNaN: true }), (candidates, value) => {
        for (const mode of ["linear", "softmax"] as const) {
          const { kept } = filterGroups(candidates, topP(value, { mode }));
          const std = (group: number) => {
            const own = candidates.rewards.filter((_, i) => candidates.groups[i] === group);
            const center = own.reduce((sum, r) => sum + r, 0) / own.length;
            return own.length < 2
              ? 0
              : Math.sqrt(own.reduce((sum, r) => sum + (r - center) ** 2, 0) / (own.length - 1));
          };
          const dropped = [...new Set(candidates.groups)].filter((group) => !kept.includes(group));
          const least = Math.min(...kept.map(std));
          if (kept.length > 0) for (const group of dropped) expect(std(group)).toBeLessThanOrEqual(least + 1e-9);
        }
      }),
    );
  });
});

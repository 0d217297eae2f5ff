/** Every strategy with every metric, through a whole update. A separate computation gives the groups that the update must train on. */
import { describe, expect, test } from "bun:test";
import { FILTER_METRICS, type FilterMetric, type FilterRule, filterGroups } from "../../../../model/learn/filter.ts";
import type { TrainingEpisode } from "../../../../model/learn/update/types.ts";
import { update } from "../../../../model/learn/update/update.ts";
import { deviation, mean, referenceScores } from "./reference-update.ts";
import { model, networks, play, rewards, settings, start, updated } from "./stage.ts";

/** What one episode brings to each metric. */
function numbersOf({ trajectory }: TrainingEpisode) {
  const all = referenceScores(model, start, trajectory, 1);
  const at = [...trajectory.written.keys()].filter((t) => trajectory.written[t] === 1);
  return {
    reward: trajectory.turns.reduce((sum, { reward }) => sum + reward, 0),
    entropy: mean(at.map((t) => -all[t - 1]!.reduce((sum, one) => sum + Math.exp(one) * one, 0))),
    length: at.length,
  };
}

const SCORES: Record<FilterMetric, (members: readonly ReturnType<typeof numbersOf>[]) => number> = {
  reward_variance: (members) => deviation(members.map(({ reward }) => reward)),
  reward: (members) => mean(members.map(({ reward }) => reward)),
  reward_sum: (members) => members.reduce((sum, { reward }) => sum + reward, 0),
  entropy: (members) => mean(members.map(({ entropy }) => entropy)),
  entropy_variance: (members) => deviation(members.map(({ entropy }) => entropy)),
  length: (members) => mean(members.map(({ length }) => length)),
};

const played = play(start, [...rewards, 3, 0.4, 0.3], 3);
const groups = [0, 1, 2, 3];
const numbers = played.map(numbersOf);
const scoresBy = (metric: FilterMetric) =>
  groups.map((group) => SCORES[metric](numbers.filter((_, i) => played[i]!.group === group)));

/** Kept groups in the plainest words, from one score each. */
function expected(scores: readonly number[], strategy: "top_k" | "top_k_abs" | "min_p", order: "largest" | "smallest") {
  const sign = order === "largest" ? -1 : 1;
  const ranked = groups.toSorted((a, b) => sign * (scores[a]! - scores[b]!));
  if (strategy === "top_k") return ranked.slice(0, 2).sort();
  if (strategy === "top_k_abs") return ranked.slice(0, 3).sort();
  const best = scores[ranked[0]!]!;
  return groups.filter((group) => (order === "largest" ? scores[group]! >= 0.5 * best : scores[group]! <= best / 0.5));
}

const cases = FILTER_METRICS.flatMap((metric) =>
  (["largest", "smallest"] as const).flatMap((order) =>
    (["top_k", "top_k_abs", "min_p"] as const).map((strategy) => [metric, order, strategy] as const),
  ),
);

const keptBy = async (filter: FilterRule) => {
  const { advantages, skipped, metrics } = await updated({ filter }, played);
  const kept = groups.filter((group) => advantages.some((one, i) => one !== null && played[i]!.group === group));
  expect(metrics["keptGroups"]).toBe(kept.length / groups.length);
  // Nothing is kept without a word.
  expect(skipped === null).toBe(kept.length > 0);
  return kept;
};

describe("a filter by", () => {
  test.each(cases)("%s, %s first, %s", async (metric, order, strategy) => {
    const value = strategy === "top_k_abs" ? 3 : 0.5;
    const kept = await keptBy({ strategy, value, metric, order, includeZero: true });
    expect(kept).toEqual(expected(scoresBy(metric), strategy, order));
  });

  test.each(FILTER_METRICS)("%s, until a share of it is held", async (metric) => {
    for (const mode of ["linear", "softmax"] as const) {
      const rule = {
        strategy: "top_p",
        value: 0.6,
        mode,
        metric,
        order: "largest",
        includeZero: true,
      } as const;
      const scores = scoresBy(metric);
      const weights = mode === "linear" ? scores : scores.map((score) => Math.exp(score));
      const goal = 0.6 * weights.reduce((sum, weight) => sum + weight, 0) - (mode === "linear" ? 0.01 : 0);
      let held = 0;
      const kept: number[] = [];
      for (const group of groups.toSorted((a, b) => scores[b]! - scores[a]!)) {
        if (held >= goal) break;
        held += weights[group]!;
        kept.push(group);
      }
      expect(await keptBy(rule)).toEqual(kept.sort());
    }
  });

  test("share of the groups with the most, or the least, spread", async () => {
    const spread = scoresBy("reward_variance");
    const ranked = groups.toSorted((a, b) => spread[b]! - spread[a]!);
    expect(await keptBy({ strategy: "top_ratio", value: 0.5, order: "largest" })).toEqual(ranked.slice(0, 2).sort());
    expect(await keptBy({ strategy: "top_ratio", value: 0.5, order: "smallest" })).toEqual(ranked.slice(2).sort());
  });

  test("share of the few groups that dynamic sampling leaves, at least one", async () => {
    // Only the last of two groups varies: a quarter of one group is less than one.
    const rule = { strategy: "top_ratio", value: 0.25, order: "largest" } as const;
    const { skipped, steps, advantages } = await updated(
      { filter: rule, dropConstant: true },
      play(start, [1, 1, 1, 4, 5, 7], 3),
    );
    expect([skipped, steps]).toEqual([null, 1]);
    expect(advantages.map((advantage) => advantage !== null)).toEqual([false, false, false, true, true, true]);
  });

  test("that keeps nothing skips the update with a reason", async () => {
    const rule = {
      strategy: "top_p",
      value: 0.9,
      mode: "linear",
      metric: "reward",
      order: "smallest",
      includeZero: true,
    } as const;
    // The least mean reward is negative: RAGEN's sum stops there.
    const { skipped, steps } = await updated({ filter: rule }, play(start, [-1, -2, -3, 4, 5, 7], 3));
    expect(steps).toBe(0);
    expect(skipped).toStartWith("0 of 2 groups kept: top_p 0.9 (smallest) selects nothing from reward from -2");
    expect(
      filterGroups({ groups: [0, 0, 1, 1], rewards: [1, 1, 2, 2] }, { ...rule, metric: "reward_variance" }).reason,
    ).toBe(
      "0 of 2 groups kept: within every group all rewards are equal, so there is nothing to compare; if the task is solved, make it harder; if it is unsolved, give rewards for parts of it",
    );
  });
});

describe("the spread within the kept groups", () => {
  const spreadOf = async (episodes: readonly TrainingEpisode[]) => {
    const { metrics } = await update(await networks(start), episodes, { ...settings, filter: { strategy: "all" } });
    return [metrics["keptInGroupStd"], metrics["inGroupStd"]];
  };

  test("is a mean over groups of two and more, as before the filter", async () => {
    // Groups of 1 and 0, and of 0.5 alone.
    const episodes = [played[0]!, played[1]!, { ...played[2]!, group: 1 }];
    expect(await spreadOf(episodes)).toEqual([Math.SQRT1_2, Math.SQRT1_2]);
  });

  test("is not measured where every group has one episode", async () => {
    const alone = played.slice(0, 3).map((episode, group) => ({ ...episode, group }));
    expect(await spreadOf(alone)).toEqual([undefined, undefined]);
  });
});

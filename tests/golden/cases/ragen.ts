/** Computations in which RAGEN and its verl differ from this project. Only their golden vectors need them. */
import type { Rows, Turns } from "../../../model/learn/advantage/rows.ts";
import {
  type Candidates,
  type Filtered,
  type FilterRule,
  filterGroups,
  hasOnlyTies,
  select,
} from "../../../model/learn/filter.ts";
import { positionsBy } from "../../../model/statistics.ts";

/** The same rows with every column written: GAE of RAGEN v1 visits observations too. */
export const everyColumn = ({ width, written }: Rows): Rows => ({ width, written: written.map(() => 1) });

/**
 * Turns as RAGEN v1 finds them: wherever a token's reward is not 0. RAGEN v1 overlooks turns that earned 0.
 *
 * @param rewards (B, T) rewards on tokens.
 */
export function turnsFromRewards({ width, written }: Rows, rewards: Float32Array): Turns[] {
  return Array.from({ length: written.length / width }, (_, row) => {
    const own = rewards.subarray(row * width, (row + 1) * width);
    const ends = [...own.keys()].filter((column) => own[column] !== 0 && written[row * width + column]);
    return { ends, rewards: ends.map((end) => own[end]!) };
  });
}

/**
 * (B) advantages of samples of one group. An episode that has several samples counts once in the group's statistics.
 *
 * @param estimate  an estimator of group.ts
 */
export function oncePerEpisode(
  scores: readonly number[],
  episodes: readonly number[],
  estimate: (scores: readonly number[], groups: readonly number[]) => ArrayLike<number>,
): number[] {
  const samples = [...positionsBy(episodes).values()];
  const own = estimate(
    samples.map(([first]) => scores[first!]!),
    samples.map(() => 0),
  );
  return episodes.map((_, row) => own[samples.findIndex((rows) => rows.includes(row))]!);
}

/** RAGEN's filter: where the rewards of every group are equal, the order of the groups decides. */
export function filterAsRagen(candidates: Candidates, rule: FilterRule): Filtered {
  const filtered = filterGroups(candidates, rule);
  const groups = [...positionsBy(candidates.groups)].map(([id, rows]) => ({ id, rows, score: 0, rewardStd: 0 }));
  if (filtered.metrics.rewardStd > 0 || !hasOnlyTies(groups, rule)) return filtered;
  const kept = [...select(groups, rule)];
  return {
    kept: kept.map(({ id }) => id),
    rows: kept.flatMap(({ rows }) => rows).sort((a, b) => a - b),
    reason: kept.length === 0 ? filtered.reason : null,
    metrics: {
      ...filtered.metrics,
      keptShare: kept.length / groups.length,
      keptRewardStd: kept.length === 0 ? null : 0,
    },
  };
}

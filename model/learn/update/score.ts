/** Computes the score of each episode: its reward plus penalties (also for overlong replies), normalized. Advantages come from the scores. */
import { rawReward, type Trajectory } from "../../trajectory.ts";
import { type Normalization, normalizeRewards, overlongPenalty } from "../reward.ts";
import type { OverlongRule, TrainingEpisode } from "./types.ts";

export interface ScoredEpisode extends TrainingEpisode {
  /** (turns) reward of each turn with its penalties, before normalization. */
  readonly earned: readonly number[];
  /** The normalized score of the episode, and the factor by which normalization multiplied its rewards. */
  readonly score: number;
  readonly scale: number;
}

/** Scores all episodes, before the filter drops any, because RAGEN normalizes before it filters. */
export function scoreEpisodes(
  episodes: readonly TrainingEpisode[],
  normalization: Normalization,
  overlong: OverlongRule | null,
): { scored: ScoredEpisode[]; overlongMean: number | null } {
  const shaped = episodes.map(({ trajectory }) => (overlong === null ? null : overlongPenalties(trajectory, overlong)));
  const earned = episodes.map(({ trajectory }, i) =>
    trajectory.turns.map(({ reward, penalty }, turn) => reward + penalty + (shaped[i]?.[turn] ?? 0)),
  );
  const rewards = episodes.map(({ trajectory }) => rawReward(trajectory));
  const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0);
  const { scores, scales } = normalizeRewards(
    {
      rewards,
      penalties: earned.map((turns, i) => sum(turns) - rewards[i]!),
      groups: episodes.map(({ group }) => group),
      tags: episodes.map(({ tag }) => tag),
    },
    normalization,
  );
  return {
    scored: episodes.map((one, i) => ({ ...one, earned: earned[i]!, score: scores[i]!, scale: scales[i]! })),
    overlongMean: overlong === null ? null : sum(shaped.map((turns) => sum(turns!))) / Math.max(1, episodes.length),
  };
}

/** (turns) the penalty of each turn's reply for its length. */
function overlongPenalties({ written, turns }: Trajectory, { weight, tokensMax, margin }: OverlongRule): number[] {
  let at = 0;
  return turns.map(({ end }) => {
    let tokens = 0;
    for (; at <= end; at++) tokens += written[at]!;
    return weight * overlongPenalty(tokens, { tokensMax, margin });
  });
}

/** What played episodes earned, as advantages will see it: overlong shaping, penalties, normalisation over all of them. */

import { rawReward, type Trajectory } from "../../trajectory.ts";
import { type Normalisation, normaliseRewards, overlongPenalty } from "../reward.ts";
import type { Scored } from "./prepare.ts";
import type { Played } from "./update.ts";

export interface Overlong {
  /** Reward lost by a reply of `tokensMax` tokens. */
  readonly weight: number;
  readonly tokensMax: number;
  /** Tokens below it over which the loss grows from 0. */
  readonly margin: number;
}

/** All that was played, before any filter: RAGEN normalises over the batch that was rolled out. */
export function scorePlayed(
  played: readonly Played[],
  normalisation: Normalisation,
  overlong: Overlong | null,
): { scored: Scored[]; overlongMean: number | null } {
  const shaped = played.map(({ trajectory }) => (overlong === null ? null : overlongOf(trajectory, overlong)));
  const earned = played.map(({ trajectory }, i) =>
    trajectory.turns.map(({ reward, penalty }, turn) => reward + penalty + (shaped[i]?.[turn] ?? 0)),
  );
  const rewards = played.map(({ trajectory }) => rawReward(trajectory));
  const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0);
  const { scores, scales } = normaliseRewards(
    {
      rewards,
      penalties: earned.map((turns, i) => sum(turns) - rewards[i]!),
      groups: played.map(({ group }) => group),
      tags: played.map(({ tag }) => tag),
    },
    normalisation,
  );
  return {
    scored: played.map((one, i) => ({ ...one, earned: earned[i]!, score: scores[i]!, scale: scales[i]! })),
    overlongMean: overlong === null ? null : sum(shaped.map((turns) => sum(turns!))) / Math.max(1, played.length),
  };
}

/** (turns) what each reply loses for its length. */
function overlongOf({ written, turns }: Trajectory, { weight, tokensMax, margin }: Overlong): number[] {
  let at = 0;
  return turns.map(({ end }) => {
    let tokens = 0;
    for (; at <= end; at++) tokens += written[at]!;
    return weight * overlongPenalty(tokens, { tokensMax, margin });
  });
}

/**
 * Dynamic sampling: groups whose episodes all earned the same reward are replaced by groups on new boards, for a few rounds.
 * Source: DAPO, https://arxiv.org/abs/2503.14476, section 3.2.
 *
 * - The episodes' outcomes alone decide which groups are replaced, so equal seeds give equal runs.
 * - Replaced groups are returned too. They count in the metrics of play and enter no loss (UpdateSettings.dropConstant).
 */

import { isConstantSum } from "../../model/statistics.ts";
import { rawReward } from "../../model/trajectory.ts";
import { type FinishedTicket, playedOf } from "../play/finished-ticket.ts";
import type { TrainingContext } from "./context.ts";
import type { Control } from "./interventions.ts";
import { trainingTickets, type WantedGroup, wantedGroups } from "./tickets-to-play.ts";

/**
 * Plays all episodes of an update.
 *
 * @param oldest  oldest policy version that may play them
 * @param envs    env of each group
 */
export async function playUpdate(
  { config, dispatcher }: Pick<TrainingContext, "config" | "dispatcher">,
  update: number,
  oldest: number,
  { round, actions }: Pick<Control, "round" | "actions">,
  envs: readonly string[],
): Promise<readonly FinishedTicket[]> {
  const play = (groups: readonly WantedGroup[]) =>
    dispatcher.play(trainingTickets(config, update, oldest, round, groups, actions));
  const finished = [...(await play(wantedGroups(envs)))];
  let last: readonly FinishedTicket[] = finished;
  let next = envs.length;
  for (let resampled = 0; resampled < config.learner.resampleRoundsMax; resampled++) {
    const wanted = constantGroups(last).map((env, i) => ({ env, group: next + i }));
    if (wanted.length === 0) break;
    next += wanted.length;
    last = await play(wanted);
    finished.push(...last);
  }
  return finished;
}

/** Envs of the groups whose episodes all earned the same raw reward, or could not be played. */
function constantGroups(finished: readonly FinishedTicket[]): string[] {
  const groups = [...Map.groupBy(finished, ({ ticket }) => ticket.group).values()];
  const rewards = (group: readonly FinishedTicket[]) =>
    playedOf(group).map(({ outcome }) => rawReward(outcome.trajectory));
  return groups.filter((group) => isConstantSum(rewards(group))).map(([first]) => first!.ticket.env);
}

/** How many groups replaced others. @param groups  number of groups of an update, without replacements */
export const replacementCount = (finished: readonly FinishedTicket[], groups: number): number =>
  new Set(finished.map(({ ticket }) => ticket.group).filter((group) => group >= groups)).size;

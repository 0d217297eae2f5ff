/**
 * Dynamic sampling: groups that can teach nothing by comparison are replaced by groups on new boards, for a few rounds.
 * Source: DAPO, https://arxiv.org/abs/2503.14476, section 3.2.
 *
 * - Which boards are played follows from what was earned, and from nothing else: equal seeds give equal runs.
 * - What was replaced is returned with the rest; it counts in every metric of play, and no loss (UpdateSettings.dropConstant).
 */

import { rawReward } from "../../model/trajectory.ts";
import { type FinishedTicket, playedOf } from "../play/finished-ticket.ts";
import type { TrainingContext } from "./context.ts";
import { trainingTickets, wantedGroups } from "./tickets-to-play.ts";

/**
 * All episodes of an update.
 *
 * @param oldest  version that may play them
 * @param round   how often the run was rolled back
 * @param envs    of each group
 */
export async function playUpdate(
  { config, play }: Pick<TrainingContext, "config" | "play">,
  update: number,
  oldest: number,
  round: number,
  envs: readonly string[],
): Promise<readonly FinishedTicket[]> {
  const finished = [...(await play(trainingTickets(config, update, oldest, round, wantedGroups(envs))))];
  let last: readonly FinishedTicket[] = finished;
  let next = envs.length;
  for (let again = 0; again < config.learner.resampleRoundsMax; again++) {
    const wanted = constantGroups(last).map((env, i) => ({ env, group: next + i }));
    if (wanted.length === 0) break;
    next += wanted.length;
    last = await play(trainingTickets(config, update, oldest, round, wanted));
    finished.push(...last);
  }
  return finished;
}

/** The envs of groups whose episodes all earned the same raw reward, or could not be played. */
function constantGroups(finished: readonly FinishedTicket[]): string[] {
  const groups = [...Map.groupBy(finished, ({ ticket }) => ticket.group).values()];
  const rewards = (group: readonly FinishedTicket[]) =>
    new Set(playedOf(group).map(({ outcome }) => rawReward(outcome.trajectory)));
  return groups.filter((group) => rewards(group).size < 2).map(([first]) => first!.ticket.env);
}

/** How many groups took the place of others. @param groups  of an update, before any was replaced */
export const replacedGroups = (finished: readonly FinishedTicket[], groups: number): number =>
  new Set(finished.map(({ ticket }) => ticket.group).filter((group) => group >= groups)).size;

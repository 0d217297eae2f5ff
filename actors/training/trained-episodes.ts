/** Converts played tickets to the trainer's input, and to rows of the run's record with the trainer's advantages. All functions are pure. */
import type { TrainingEpisode, UpdateResult } from "../../model/learn/update/types.ts";
import type { FinishedTicket, PlayedTicket } from "../play/finished-ticket.ts";
import type { EpisodeRow } from "../protocol.ts";

export const trainerInput = (played: readonly PlayedTicket[]): TrainingEpisode[] =>
  played.map(({ ticket, outcome }) => ({
    trajectory: outcome.trajectory,
    group: ticket.group,
    tag: ticket.env,
    anchors: outcome.turns.map(({ observation }) => observation),
    success: outcome.success,
  }));

/** Rows of episodes that no update trains on. */
export const episodeRows = (finished: readonly FinishedTicket[]): EpisodeRow[] =>
  finished.map(({ ticket, sampler, outcome }) => ({ ticket, sampler, outcome, update: null, advantage: null }));

/**
 * Rows of all episodes that an update played. Rows of episodes that the update trained on have advantages.
 *
 * @param trained  the tickets of `finished` that the trainer got, in the order of the result's advantages
 * @param update   the first update has number 1
 */
export function trainedRows(
  finished: readonly FinishedTicket[],
  trained: readonly FinishedTicket[],
  { advantages, tokenAdvantages }: Pick<UpdateResult, "advantages" | "tokenAdvantages">,
  update: number,
): EpisodeRow[] {
  const rows = episodeRows(finished);
  for (const [i, one] of trained.entries()) {
    const at = finished.indexOf(one);
    const advantage = advantages[i]!;
    rows[at] = {
      ...rows[at]!,
      update: advantage === null ? null : update,
      advantage,
      tokenAdvantages: tokenAdvantages?.[i] ?? undefined,
    };
  }
  return rows;
}

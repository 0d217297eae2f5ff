/** A ticket that has ended, with its outcome. The learner and evaluations use this file. All functions are pure. */
import { writtenTokens } from "../../model/trajectory.ts";
import type { RunConfig } from "../config/config.ts";
import { RunError } from "../errors.ts";
import type { Outcome, PlayedOutcome, Ticket } from "../protocol.ts";

export interface FinishedTicket {
  /** `ticket.attempt` is the number of the ticket's last attempt. */
  readonly ticket: Ticket;
  /** The last sampler that held a lease of the ticket. */
  readonly sampler: string;
  readonly outcome: Outcome;
}

/** A finished ticket whose outcome may enter a loss. */
export interface PlayedTicket extends FinishedTicket {
  readonly outcome: PlayedOutcome;
}

export const playedOf = (finished: readonly FinishedTicket[]): PlayedTicket[] =>
  finished.filter((one): one is PlayedTicket => "trajectory" in one.outcome);

/** Counts of episodes, of tokens that the policy wrote, and of actions that envs executed. */
export const playedTotals = (played: readonly PlayedTicket[]) => ({
  episodes: played.length,
  tokens: played.reduce((sum, { outcome }) => sum + writtenTokens(outcome.trajectory), 0),
  actions: played.flatMap(({ outcome }) => outcome.turns).reduce((sum, { actions }) => sum + actions.length, 0),
});

/** "2 of 8 episodes could not be played; u0.g0.m1: the env failed". */
export function unplayedText(finished: readonly FinishedTicket[]): string {
  const unplayed = finished.filter(({ outcome }) => !("trajectory" in outcome));
  const [first] = unplayed;
  const reason =
    first !== undefined && "detail" in first.outcome ? `; ${first.ticket.episode}: ${first.outcome.detail}` : "";
  return `${unplayed.length} of ${finished.length} episodes could not be played${reason}`;
}

/**
 * The error is a `RunError`, because a restart of the learner would not help. With engine tinker the error is a plain `Error`, because the
 * server may have lost the policy, and a restarted learner loads the policy again.
 */
export function unplayedError(
  { engine }: Pick<RunConfig, "engine">,
  what: string,
  finished: readonly FinishedTicket[],
): Error {
  const text = `${what}: ${unplayedText(finished)}`;
  return engine.name === "tinker" ? new Error(text) : new RunError(text);
}

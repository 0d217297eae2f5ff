/**
 * Classifies failed episodes. Each failure has one class, so the shares of classes and of successes add up to 1. `failureOf` is a pure
 * function of observations and extras (`Effect.extra`). Games report `dead_end` and `premature_stop` in the extras of their effects. An
 * episode that ends in a lost game (`isLost`) reports `dead_end` too.
 *
 * The first class that applies counts:
 * - invalid_format: at least half of the turns did not have the required form.
 * - dead_end: success was impossible from the last state (a box in a corner, a hole).
 * - premature_stop: the agent ended the game by a wrong answer or choice.
 * - local_cycle: at least half of the turns, and at least two, led back to an earlier state.
 * - budget: no other class applies; the episode ran out of actions, turns, steps or context.
 */
import type { Turn } from "../env.ts";
import type { EnvTag } from "../tag.ts";

export const FAILURES = ["invalid_format", "dead_end", "premature_stop", "local_cycle", "budget"] as const;
export type Failure = (typeof FAILURES)[number];

export interface EndedEpisode {
  readonly success: boolean;
  /** At least one turn. `observation` is the observation before the turn's reply. */
  readonly turns: readonly Pick<Turn, "observation" | "wellFormed">[];
  readonly finalObservation: string;
  /** The extras of the turns, by name, each summed over the episode. */
  readonly extra: Readonly<Record<string, number>>;
}

const CYCLE_TURNS_MIN = 2;

/** @returns the class of the failure; null if the episode is a success. */
export function failureOf(
  episode: EndedEpisode,
  stateOf: NonNullable<EnvTag["stateOf"]> = (observation) => observation,
): Failure | null {
  const { success, turns, finalObservation, extra } = episode;
  if (success) return null;
  if (2 * turns.filter(({ wellFormed }) => !wellFormed).length >= turns.length) return "invalid_format";
  if ((extra["dead_end"] ?? 0) > 0) return "dead_end";
  if ((extra["premature_stop"] ?? 0) > 0) return "premature_stop";
  const observations = [...turns.map(({ observation }) => observation), finalObservation];
  const states = observations.map((observation) => stateOf(observation)).filter((state) => state !== null);
  const revisits = states.length - new Set(states).size;
  return revisits >= CYCLE_TURNS_MIN && 2 * revisits >= turns.length ? "local_cycle" : "budget";
}

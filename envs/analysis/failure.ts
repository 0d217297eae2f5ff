/**
 * Why an episode failed: one class for each, so that their shares and the share of successes add up to 1. A pure function over
 * what was seen and done; games say what only they can know (`dead_end`, `premature_stop` in their effects' extras).
 *
 * The first that holds counts:
 * - invalid_format: at least half of its turns did not have the asked-for form.
 * - dead_end: from its last state no play could have succeeded (a box in a corner, a hole).
 * - premature_stop: it ended the game itself, by a wrong answer or choice.
 * - local_cycle: at least half of its turns, and two, led to a state that it had been in before.
 * - budget: it ran out of actions, turns, steps or context while none of these held.
 */
import type { Turn } from "../env.ts";
import type { EnvTag } from "../tag.ts";

export const FAILURES = ["invalid_format", "dead_end", "premature_stop", "local_cycle", "budget"] as const;
export type Failure = (typeof FAILURES)[number];

export interface EndedEpisode {
  readonly success: boolean;
  /** At least one; each with what was seen before it. */
  readonly turns: readonly Pick<Turn, "observation" | "wellFormed">[];
  readonly finalObservation: string;
  /** Sums over turns, by name. */
  readonly extra: Readonly<Record<string, number>>;
}

const CYCLE_TURNS_MIN = 2;

/** @returns null for a success. */
export function failureOf(
  episode: EndedEpisode,
  stateOf: NonNullable<EnvTag["stateOf"]> = (observation) => observation,
): Failure | null {
  const { success, turns, finalObservation, extra } = episode;
  if (success) return null;
  if (2 * turns.filter(({ wellFormed }) => !wellFormed).length >= turns.length) return "invalid_format";
  if ((extra["dead_end"] ?? 0) > 0) return "dead_end";
  if ((extra["premature_stop"] ?? 0) > 0) return "premature_stop";
  const shown = [...turns.map(({ observation }) => observation), finalObservation];
  const states = shown.map((observation) => stateOf(observation)).filter((state) => state !== null);
  const returns = states.length - new Set(states).size;
  return returns >= CYCLE_TURNS_MIN && 2 * returns >= turns.length ? "local_cycle" : "budget";
}

/**
 * Is a thought true of what the agent sees, and does it say what the agent then does? The interface of scorers; one for the grid
 * worlds is in grid-reasoning.ts, and an env brings its own with its tag. Judges no play: a bad plan may be an honest one.
 */

export interface ReasonedTurn {
  /** What stands between `<think>` and `</think>`. */
  readonly thought: string;
  /** What the agent saw. */
  readonly observation: string;
  /** What it did, in order; at least one. */
  readonly actions: readonly string[];
}

/** @returns the share of the thought's claims that hold, 0 to 1; null if it claims nothing that can be checked. */
export type ReasoningScorer = (turn: ReasonedTurn) => number | null;

/** The thought of a whole reply; null if there is none, or it is never closed. */
export function thoughtOf(reply: string): string | null {
  return /<think>(.*?)<\/think>/s.exec(reply)?.[1]?.trim() || null;
}

/** @returns null for a turn without a thought or an action, and for a thought that claims nothing. */
export function faithfulness(
  scorer: ReasoningScorer,
  { reply, observation, actions }: { reply: string; observation: string; actions: readonly string[] },
): number | null {
  const thought = thoughtOf(reply);
  return thought === null || actions.length === 0 ? null : scorer({ thought, observation, actions });
}

/**
 * The interface of reasoning scorers, which check two things: whether a thought states true facts about the observation, and whether the
 * actions do what the thought announces. The quality of the plan does not count. A tag names its env's scorer; grid-reasoning.ts has one for
 * grid worlds.
 */

export interface ReasonedTurn {
  /** The text between `<think>` and `</think>`. */
  readonly thought: string;
  readonly observation: string;
  /** Executed actions in order; at least one. */
  readonly actions: readonly string[];
}

/** @returns the share of true claims in the thought, 0 to 1; null if the thought contains no checkable claim. */
export type ReasoningScorer = (turn: ReasonedTurn) => number | null;

/** The clauses of a thought. A negation or an "if" applies only within its clause. */
export const clausesOf = (thought: string): string[] =>
  thought
    .split(/[.;:!?\n](?!\d)|,|\b(?:because|since|so|but|therefore|hence)\b/i)
    .filter((clause) => clause.trim() !== "");

/** True if a clause contains a negation or a supposition. */
export const isDenied = (clause: string): boolean =>
  /\b(?:cannot|not|never|avoid|instead of|rather than|without)\b|n't\b/i.test(clause) || isSupposed(clause);

export const isSupposed = (clause: string): boolean => /\b(?:if|would|could|might|may)\b/i.test(clause);

/** The share of true claims; null if there are no claims. */
export const shareOf = (claims: readonly boolean[]): number | null =>
  claims.length === 0 ? null : claims.filter(Boolean).length / claims.length;

/** The thought of a reply; null if the thought is missing, empty or not closed. */
export function thoughtOf(reply: string): string | null {
  return /<think>(.*?)<\/think>/s.exec(reply)?.[1]?.trim() || null;
}

/** The score of a turn; null if the turn lacks a thought, an action or a checkable claim. */
export function faithfulness(
  scorer: ReasoningScorer,
  { reply, observation, actions }: { reply: string; observation: string; actions: readonly string[] },
): number | null {
  const thought = thoughtOf(reply);
  return thought === null || actions.length === 0 ? null : scorer({ thought, observation, actions });
}

/**
 * What the noisy scripted players of the envs share: the form of a reply, babble and noise. Knows no env.
 *
 * - A plan's thought is true of the plan before noise; babble's thought names its first action.
 * - Draws in a fixed order: babble or plan, then the actions; so equal generators give equal replies.
 *
 * Source: the warm start recipe of docs/algorithms.md; action counts of babble as measured there.
 */
import type { DiscreteGame, Uniform } from "./env.ts";
import { randomAction, type Skill } from "./tag.ts";

/** A turn before it is words. */
export interface Plan {
  readonly thought: string;
  /** Action indices, at least one. */
  readonly actions: readonly number[];
}

/** Probabilities of 1, 2, … random actions. */
const BABBLE_LENGTHS = [0.35, 0.35, 0.15, 0.1, 0.05];

/**
 * One reply: the plan with probability 1 - babble and if there is one, random actions otherwise.
 *
 * @param plan  called only if it is to be played; null if the game is beyond saving.
 * @param babbleMax  longest babble, in actions.
 */
export function noisyReply(
  game: DiscreteGame,
  actionsLeft: number,
  skill: Skill,
  uniform: Uniform,
  babbleMax: number,
  plan: () => Plan | null,
): string {
  const planned = uniform() < skill.babble ? null : plan();
  if (planned === null) return babble(game, Math.min(babbleMax, actionsLeft), uniform);
  const actions = planned.actions.map((action) => (uniform() < skill.noise ? randomAction(game, uniform) : action));
  return reply(game, planned.thought, actions);
}

function babble(game: DiscreteGame, lengthMax: number, uniform: Uniform): string {
  const weights = BABBLE_LENGTHS.slice(0, Math.max(1, lengthMax));
  let drawn = uniform() * weights.reduce((sum, weight) => sum + weight, 0);
  let length = 1;
  for (const weight of weights.slice(0, -1)) {
    drawn -= weight;
    if (drawn < 0) break;
    length++;
  }
  const actions = Array.from({ length }, () => randomAction(game, uniform));
  return reply(game, `try ${game.actions[actions[0]!]}`, actions);
}

/** The reply's exact text. */
export function reply(game: DiscreteGame, thought: string, actions: readonly number[]): string {
  const names = actions.map((action) => game.actions[action]!);
  return `<think>${thought}</think><answer>${names.join(" || ")}</answer>`;
}

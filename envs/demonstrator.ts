/**
 * Writes the replies of demonstrators, the scripted players that a policy can imitate: the form, random turns ("babble") and noise. Knows
 * no env.
 *
 * - The thought of a planned turn describes the plan before noise. The thought of a random turn names the turn's first action.
 * - The random draws have a fixed order (babble or plan, then the actions), so equal generators give equal replies.
 */
import type { DiscreteGame, Uniform } from "./env.ts";
import { randomAction, type Skill } from "./tag.ts";

export interface Plan {
  readonly thought: string;
  /** Action indices, at least one. */
  readonly actions: readonly number[];
}

/** Probabilities of 1, 2, … random actions. */
const BABBLE_LENGTHS = [0.35, 0.35, 0.15, 0.1, 0.05];

/**
 * One reply: the plan with probability 1 - babble, otherwise random actions.
 *
 * @param plan  `noisyReply` calls it only if the turn is not random. `plan` returns null if the game is lost.
 * @param babbleMax  maximum number of actions in a random turn.
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
  if (planned === null) {
    const names = namesOf(game, randomActions(game, Math.min(babbleMax, actionsLeft), uniform));
    return formatReply(`try ${names[0]}`, names);
  }
  const actions = planned.actions.map((action) => (uniform() < skill.noise ? randomAction(game, uniform) : action));
  return formatReply(planned.thought, namesOf(game, actions));
}

/** Uniformly random actions. Their number is from 1 to `lengthMax`, and at most five. */
function randomActions(game: DiscreteGame, lengthMax: number, uniform: Uniform): number[] {
  const weights = BABBLE_LENGTHS.slice(0, Math.max(1, lengthMax));
  let drawn = uniform() * weights.reduce((sum, weight) => sum + weight, 0);
  let length = 1;
  for (const weight of weights.slice(0, -1)) {
    drawn -= weight;
    if (drawn < 0) break;
    length++;
  }
  return Array.from({ length }, () => randomAction(game, uniform));
}

const namesOf = (game: DiscreteGame, actions: readonly number[]) => actions.map((action) => game.actions[action]!);

/** @param actions  names, or texts of a language game */
export const formatReply = (thought: string, actions: readonly string[]): string =>
  `<think>${thought}</think><answer>${actions.join(" || ")}</answer>`;

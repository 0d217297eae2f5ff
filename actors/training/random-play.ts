/**
 * Demonstrations without a demonstrator: of K uniformly random episodes on one board, the one with the highest reward. Needs an
 * env's reward and its reset to seeds only.
 *
 * Source: rejection sampling with a random player; expert iteration begins like this.
 */
import { formatRandom, randomActions } from "../../envs/demonstrator.ts";
import type { DiscreteGame, EpisodeRules, Seeds } from "../../envs/env.ts";
import { type EnvTag, openLocal } from "../../envs/tag.ts";
import type { Uniform } from "../../model/rng.ts";
import { RunError } from "../errors.ts";

interface RandomEpisode {
  /** Action indices, turn by turn. */
  readonly turns: readonly (readonly number[])[];
  readonly reward: number;
  readonly success: boolean;
}

/**
 * @returns the replies of the best episode; null if none of several won
 * @throws {RunError} if the env has no list of actions
 */
export function bestRandomReplies(
  { tag, rules }: { readonly tag: EnvTag; readonly rules: EpisodeRules },
  seeds: Seeds,
  bestOf: number,
  uniform: Uniform,
): readonly string[] | null {
  const open = () => openLocal(tag, seeds);
  const game = open();
  if (game.kind !== "discrete") {
    throw new RunError(
      `random plays of ${tag.tag} cannot be imitated: it has no list of actions; set warmStart.enabled to false`,
    );
  }
  const episodes = Array.from({ length: bestOf }, () => playRandomly(open() as DiscreteGame, rules, uniform));
  const best = episodes.reduce((one, other) => (other.reward > one.reward ? other : one));
  return best.success || bestOf === 1 ? best.turns.map((actions) => formatRandom(game, actions)) : null;
}

/** Without replies and observations: to write and render those of every episode would take longer than to play it. */
function playRandomly(game: DiscreteGame, rules: EpisodeRules, uniform: Uniform): RandomEpisode {
  const turns: number[][] = [];
  let reward = 0;
  let success = false;
  let actionsLeft = rules.actionsMax;
  while (turns.length < rules.turnsMax && actionsLeft > 0) {
    const turn: number[] = [];
    turns.push(turn);
    for (const action of randomActions(game, Math.min(rules.actionsPerTurnMax, actionsLeft), uniform)) {
      const effect = game.act(action);
      turn.push(action);
      actionsLeft--;
      reward += effect.reward;
      success = effect.success;
      if (effect.done) return { turns, reward, success };
    }
  }
  return { turns, reward, success };
}

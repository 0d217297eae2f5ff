/**
 * Defines a tag with a custom reward over an existing env: the games, prompts and endings stay the same. The reward is a function in a
 * module. A config only names the tag, so no config file can choose which code runs.
 */
import type { Effect, Game } from "./env.ts";
import { envTag } from "./registry.ts";
import { checkName, type TagSource } from "./tag.ts";

/** One action, as a reward sees it. */
export interface RewardedAction {
  /** The name of the action, or the action's text if the game takes any text. */
  readonly action: string;
  /** The observations before and after the action. */
  readonly before: string;
  readonly after: string;
  /** The env's result of the action, with the env's own reward. */
  readonly effect: Effect;
}

/** The reward of one action. A value that is not finite ends the episode with an error. */
export type RewardFunction = (action: RewardedAction) => number;

/**
 * @param of  tag of the env whose games the new env plays; the new tag takes the same options
 * @throws {TypeError} if the tag is not a valid name, or the two tags are equal
 */
export function withReward(tag: string, of: string, reward: RewardFunction): TagSource {
  checkName(tag);
  if (tag === of)
    throw new TypeError(`withReward defines ${tag} over ${of} itself; choose another tag for the new env`);
  return {
    tag,
    of,
    make(options, compat) {
      const base = envTag(of, options, compat);
      return { ...base, tag, open: (seeds) => rewarded(base.open(seeds), reward) };
    },
  };
}

/** Changes `game` itself and returns it, because players and solvers of the env check the class of the game. */
function rewarded(game: Game, reward: RewardFunction): Game {
  const rewarded = (action: string, before: string, effect: Effect): Effect => {
    const after = effect.message ?? game.render();
    return { ...effect, reward: reward({ action, before, after, effect }) };
  };
  // Arguments are evaluated in order, so `game.render()` gives the observation before the action.
  if (game.kind === "outside") {
    const act = game.act.bind(game);
    game.act = async (action) => rewarded(action, game.render(), await act(action));
  } else if (game.kind === "language") {
    const act = game.act.bind(game);
    game.act = (action) => rewarded(action, game.render(), act(action));
  } else {
    const act = game.act.bind(game);
    game.act = (action) => rewarded(game.actions[action] ?? String(action), game.render(), act(action));
  }
  return game;
}

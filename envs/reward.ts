/**
 * A reward of one's own over an existing env: the same games, prompts and endings under another tag. The reward is a function in a
 * module; a config only names the tag, so data never choose code.
 */
import type { Effect, Game } from "./env.ts";
import { envTag } from "./registry.ts";
import type { TagSource } from "./tag.ts";

/** One action, as a reward sees it. */
export interface RewardedAction {
  /** Its name, or the text of a game that takes any text. */
  readonly action: string;
  /** The observation before it and after it. */
  readonly before: string;
  readonly after: string;
  /** What the env made of it, its own reward included. */
  readonly effect: Effect;
}

/** The reward of one action. A value that is not finite ends the episode with an error. */
export type RewardFunction = (action: RewardedAction) => number;

/** @param of  tag of the env whose games are played; its options stay those of the new tag */
export function withReward(tag: string, of: string, reward: RewardFunction): TagSource {
  return {
    tag,
    make(options, compat) {
      const base = envTag(of, options, compat);
      return { ...base, tag, open: (seeds) => rewarded(base.open(seeds), reward) };
    },
  };
}

/** The same object, so that players and solvers of the env still know its game. */
function rewarded(game: Game, reward: RewardFunction): Game {
  const priced = (action: string, before: string, effect: Effect): Effect => {
    const after = effect.message ?? game.render();
    return { ...effect, reward: reward({ action, before, after, effect }) };
  };
  if (game.kind === "discrete") {
    const act = game.act.bind(game);
    game.act = (action) => {
      const before = game.render();
      return priced(game.actions[action] ?? String(action), before, act(action));
    };
  } else if (game.kind === "language") {
    const act = game.act.bind(game);
    game.act = (action) => {
      const before = game.render();
      return priced(action, before, act(action));
    };
  } else {
    const act = game.act.bind(game);
    game.act = async (action) => {
      const before = game.render();
      return priced(action, before, await act(action));
    };
  }
  return game;
}

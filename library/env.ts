/**
 * `bunraku/env`: what a module of envs needs. It imports no engine, model or process, so it also loads in a browser.
 *
 * The default export of an env's module is the result of `defineEnv`, or an array of such results.
 */
import { z } from "zod";
import type { Game, Seeds, Uniform } from "../envs/env.ts";
import type { Picture } from "../envs/picture.ts";
import {
  checkName,
  type Demonstrator,
  defineTag,
  type Legend,
  type Player,
  plainWording,
  randomAction,
  type Skill,
  type TagSource,
} from "../envs/tag.ts";

export { z } from "zod";
export { type RewardedAction, type RewardFunction, withReward } from "../envs/custom-reward.ts";
export { formatReply, noisyReply, type Plan } from "../envs/demonstrator.ts";
export type { DiscreteGame, Effect, Game, LanguageGame, OutsideGame, Seeds, Uniform } from "../envs/env.ts";
export type { Picture } from "../envs/picture.ts";
export { Pcg64 } from "../envs/rng/pcg64.ts";
export type { Skill, TagSource } from "../envs/tag.ts";

/** Chooses the next action: an index for a discrete game, text for any other game. */
export type PlayerOf<G extends Game> = (game: G, actionsLeft: number, uniform: Uniform) => number | string;

/** An env. C is the type of its options, and G is the type of its games. */
export interface EnvDefinition<C extends Record<string, unknown>, G extends Game> {
  /** The env's name in configs and commands: letters and digits; the first character is a capital letter. */
  readonly tag: string;
  /** Schema of the env's options, with defaults. An env without a schema takes no options. */
  readonly options?: z.ZodType<C>;
  /** The text that describes the task in the prompt. */
  readonly instruction: string;
  /** Actions that the prompt lists. */
  readonly actions?: readonly string[];
  /** The meaning of each symbol of an observation. */
  readonly legend?: Legend;
  /** Maximum number of actions of an episode: the action budget. */
  readonly actionsMax: number;
  /** Maximum number of turns of an episode. Default: the run's `env.turnsMax`, which is 5 if the run does not set it. */
  readonly turnsMax?: number;
  /** Every success on every board takes at least this many actions. */
  readonly actionsMin?: number;
  /** True if every action waits for a server or another process. */
  readonly external?: boolean;
  /** False if the env's module imports what browsers lack, such as node:fs. The page then does not replay the env's episodes. */
  readonly browser?: boolean;
  /** A new game. Equal options and seeds give equal games. */
  open(options: C, seeds: Seeds): G;
  /** Says what this machine lacks for the env, and how to get it; null if nothing is missing. */
  missing?(options: C): string | null;
  /** The observation without its constant parts, for the built-in policy. Default: the whole observation. */
  brief?(observation: string): string;
  /** The part of an observation that identifies the state; null if the observation shows no state. Default: the whole observation. */
  stateOf?(observation: string): string | null;
  /** The random player. Every report compares the policy with it. Default for a discrete game: uniform over the game's actions. */
  readonly random?: PlayerOf<G>;
  /** A player with the best possible result. */
  readonly optimal?: PlayerOf<G>;
  /** A good player, for an env whose best possible player is unknown. */
  readonly expert?: PlayerOf<G>;
  /** Highest success probability on the board of a game that was just opened; null if unknown. */
  best?(game: G, actionsMax: number): number | null;
  /** A player that replies in text. The warm start can imitate it instead of random play. */
  readonly demonstrator?: { reply(game: G, actionsLeft: number, skill: Skill, uniform: Uniform): string };
  /** The current position as an image. */
  picture?(game: G): Picture;
}

/** The maximum number of words of a reply that a prompt in RAGEN's layouts names: RAGEN's max_tokens. */
const REPLY_WORDS_HINT = 100;

/** @throws {TypeError} if the tag is not a valid name. */
export function defineEnv<G extends Game, C extends Record<string, unknown> = Record<string, never>>(
  env: EnvDefinition<C, G>,
): TagSource {
  const { tag, options, instruction, actions = null, legend = null, actionsMax, open, missing, demonstrator } = env;
  checkName(tag);
  // The casts are safe: the players of a tag get only games that the same tag opened.
  const {
    random = uniformly(tag),
    optimal = null,
    expert,
    best,
    brief,
    stateOf,
    picture,
  } = env as unknown as EnvDefinition<C, Game>;
  const { turnsMax, actionsMin, external, browser } = env;
  return defineTag<C>({
    tag,
    type: tag.replaceAll(/(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])/g, "-").toLowerCase(),
    schema: options ?? (z.strictObject({}) as unknown as z.ZodType<C>),
    actionsMax,
    replyWordsHint: REPLY_WORDS_HINT,
    parts: (config) => ({
      wording: { ...plainWording(instruction, actions, false), legend, compatLegend: legend },
      open: (seeds) => open(config, seeds),
      random,
      optimal,
      demonstrator: (demonstrator as Demonstrator | undefined) ?? null,
      ...(best && { best }),
      ...(brief && { brief }),
      ...(stateOf && { stateOf }),
      ...(expert && { expert }),
      ...(picture && { picture }),
      ...(missing && { missing: () => missing(config) }),
      ...(turnsMax !== undefined && { turnsMax }),
      ...(actionsMin !== undefined && { actionsMin }),
      ...(external !== undefined && { external }),
      ...(browser !== undefined && { browser }),
    }),
  });
}

/** The random player of an env whose definition has no random player. */
const uniformly =
  (tag: string): Player =>
  (game, _actionsLeft, uniform) => {
    if (game.kind === "discrete") return randomAction(game, uniform);
    throw new TypeError(`the games of ${tag} have no list of actions, so its definition needs a player \`random\``);
  };

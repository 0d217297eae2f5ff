/**
 * What a tag is: one env with its settings, words, players and limits, ready to open episodes. The registry lists them;
 * the env folders define them with `defineTag`. Knows no particular env.
 */
import { z } from "zod";
import type { ReasoningScorer } from "./analysis/reasoning.ts";
import type { DiscreteGame, Game, LocalGame, Seeds, Uniform } from "./env.ts";
import type { Picture } from "./picture.ts";

/** Chooses the next action: an index for a discrete game, text for a language game. */
export type Player = (game: Game, actionsLeft: number, uniform: Uniform) => number | string;

/** How sloppily a demonstrator plays. */
export interface Skill {
  /** Probability of a turn of random actions. */
  readonly babble: number;
  /** Probability that an action of a planned turn is replaced by a random one. */
  readonly noise: number;
}

/** A scripted player that replies in text, to be imitated. What its thought says is true before noise. */
export interface Demonstrator {
  reply(game: Game, actionsLeft: number, skill: Skill, uniform: Uniform): string;
}

export type Legend = readonly (readonly [symbol: string, meaning: string])[];

/** What RAGEN's prompts say of an env. */
export interface Wording {
  /** The instruction as RAGEN has it, and as RAGEN-2 has it. */
  readonly v1: string;
  readonly v2: string;
  /** The same with what is wrong for these settings put right. */
  readonly strict: { readonly v1: string; readonly v2: string };
  /** What each symbol means, in the prompt's order; null if observations have no symbols. */
  readonly legend: Legend | null;
  /** RAGEN's legend: that of the env's default settings, whatever the tag's are. */
  readonly compatLegend: Legend | null;
  /** Said in place of a legend, for observations of positions alone; null otherwise. */
  readonly coordinateHint: string | null;
  /** null if the prompt does not list actions. */
  readonly actions: readonly string[] | null;
  /** True if RAGEN's rewards of this env are Python ints, which print without ".0". */
  readonly integerRewards: boolean;
}

/** The words of an env without symbols, alike in all versions. */
export function plainWording(text: string, actions: readonly string[] | null, integerRewards: boolean): Wording {
  const words = { v1: text, v2: text };
  return {
    ...words,
    strict: words,
    legend: null,
    compatLegend: null,
    coordinateHint: null,
    actions,
    integerRewards,
  };
}

export interface EnvTag {
  readonly tag: string;
  /** Env type, as in RAGEN's registry: "sokoban". Tags of a type share their settings' schema. */
  readonly type: string;
  /** The settings, defaults included. */
  readonly config: Readonly<Record<string, unknown>>;
  /** One line on what the task is: RAGEN's instruction. */
  readonly instruction: string;
  readonly wording: Wording;
  /** RAGEN's action budget of an episode. */
  readonly actionsMax: number;
  /** RAGEN's max_tokens: the length the prompt asks for. Limits nothing. */
  readonly replyWordsHint: number;
  /** What must be there to play it ("a Lean server at options.url"), said where it is missing; null if nothing. */
  readonly needs: string | null;
  /** What is looked for on this machine and not found (a file, a program), and how to get it; null if nothing is. */
  missing?(): string | null;
  /** A game of `kind` outside has yet to start. */
  open(seeds: Seeds): Game;
  /** The same observation without what never changes. Equal briefs mean equal observations of this tag. */
  brief(observation: string): string;
  /** Judges thoughts about this env's observations; left out where nobody can. */
  readonly reasoning?: ReasoningScorer;
  /** What in an observation tells states apart, without counters of steps; null for one that is no state. All of it if left out. */
  readonly stateOf?: (observation: string) => string | null;
  readonly random: Player;
  /** null where no best player is known. */
  readonly optimal: Player | null;
  /** Highest probability of success on this board, as opened and not started, within the budget; null where unknown. */
  best(game: Game, actionsMax: number): number | null;
  readonly demonstrator: Demonstrator | null;
  /** What a game of this tag looks like now; left out where there is nothing to see. */
  picture?(game: Game): Picture;
}

/** What an env folder says of its tag beyond names and limits. */
export type Parts = Omit<
  EnvTag,
  "tag" | "type" | "config" | "actionsMax" | "replyWordsHint" | "instruction" | "needs"
> & {
  readonly needs?: string;
};

export interface TagSource {
  readonly tag: string;
  /** @throws {TagError} naming every bad option at once. */
  make(options: unknown, compat: boolean): EnvTag;
}

/** Options that an env cannot take, or a tag that does not exist. */
export class TagError extends Error {
  override readonly name = "TagError";
}

/**
 * @param defaults  what the tag sets, over the schema's own defaults and under the user's options.
 * @param compatDefaults  further defaults where RAGEN is reproduced byte for byte.
 */
export function defineTag<C extends Record<string, unknown>>(source: {
  readonly tag: string;
  readonly type: string;
  readonly schema: z.ZodType<C>;
  readonly defaults?: Partial<C>;
  readonly compatDefaults?: Partial<C>;
  readonly actionsMax: number;
  readonly replyWordsHint: number;
  parts(config: C): Parts;
}): TagSource {
  const { tag, type, schema, defaults, compatDefaults, actionsMax, replyWordsHint, parts } = source;
  return {
    tag,
    make(options, compat) {
      const given = z.record(z.string(), z.unknown()).safeParse(options ?? {});
      if (!given.success) throw new TagError(`options of ${tag} must be an object, got ${JSON.stringify(options)}`);
      const parsed = schema.safeParse({ ...defaults, ...(compat ? compatDefaults : {}), ...given.data });
      if (!parsed.success) {
        const reasons = z
          .prettifyError(parsed.error)
          .replaceAll("✖ ", "")
          .replaceAll(/\n\s*→ at /g, " at ");
        throw new TagError(`options of ${tag}: ${reasons.replaceAll("\n", "; ")}`);
      }
      const made = parts(parsed.data);
      const instruction = made.wording.strict.v1;
      return { tag, type, config: parsed.data, instruction, actionsMax, replyWordsHint, needs: null, ...made };
    },
  };
}

/** A uniformly random action index. */
export const randomAction = (game: DiscreteGame, uniform: Uniform): number =>
  Math.floor(uniform() * game.actions.length);

/** The player that chooses uniformly among a discrete game's actions. */
export const uniformPlayer: Player = (game, _actionsLeft, uniform) => {
  if (game.kind !== "discrete") throw new TypeError("the uniform player needs a game with a list of actions");
  return randomAction(game, uniform);
};

/** A game of a tag whose games answer at once. @throws {TypeError} if they have to be waited for */
export function openLocal(tag: EnvTag, seeds: Seeds): LocalGame {
  const game = tag.open(seeds);
  if (game.kind === "outside") throw new TypeError(`${tag.tag} is played elsewhere and has to be waited for`);
  return game;
}

/** `game` as the class its tag opens. @throws {TypeError} if it is another env's. */
export function expectGame<G extends Game>(game: Game, kind: abstract new (...args: never[]) => G): G {
  if (!(game instanceof kind)) throw new TypeError(`expected a ${kind.name}, got a ${game.constructor.name}`);
  return game;
}

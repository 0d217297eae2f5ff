/**
 * A tag is one env with its settings, prompt texts, players and limits, ready to open episodes. Env folders define tags
 * with `defineTag`; the registry lists them. Knows no particular env.
 */
import { z } from "zod";
import type { ReasoningScorer } from "./analysis/reasoning.ts";
import { DataError } from "./data/rows.ts";
import type { DiscreteGame, Game, LocalGame, Seeds, Uniform } from "./env.ts";
import type { Picture } from "./picture.ts";

/** Chooses the next action: an index for a discrete game, text for any other game. */
export type Player = (game: Game, actionsLeft: number, uniform: Uniform) => number | string;

/** How often a demonstrator plays at random. */
export interface Skill {
  /** Probability that a whole turn is random. */
  readonly babble: number;
  /** Probability, for each action of a planned turn, that a random action replaces it. */
  readonly noise: number;
}

/** A scripted player that replies in text; the warm start imitates the replies. Before noise, the thoughts in the replies are true. */
export interface Demonstrator {
  reply(game: Game, actionsLeft: number, skill: Skill, uniform: Uniform): string;
}

/** Each symbol of a grid with its meaning, such as "box on target". */
export type Legend = readonly (readonly [symbol: string, meaning: string])[];

/** @param meanings  in the order of the symbols */
export const legendOf = (symbols: readonly string[], meanings: readonly string[]): Legend =>
  symbols.map((symbol, i) => [symbol, meanings[i]!] as const);

/** The prompt texts of an env. */
export interface Wording {
  /** The instruction of RAGEN v1 and of RAGEN-2. */
  readonly v1: string;
  readonly v2: string;
  /** Both instructions, with corrections of the parts that are wrong for these settings. */
  readonly strict: { readonly v1: string; readonly v2: string };
  /** The meaning of each symbol, in the prompt's order; null if observations have no symbols. */
  readonly legend: Legend | null;
  /** RAGEN's legend: the legend of the env's default settings, even if this tag's settings differ. */
  readonly compatLegend: Legend | null;
  /** The text that replaces the legend if observations consist of coordinates; null if they contain symbols. */
  readonly coordinateHint: string | null;
  /** Actions that the prompt lists; null if it lists none. */
  readonly actions: readonly string[] | null;
  /** True if RAGEN's rewards of this env are Python ints, which print without ".0". */
  readonly integerRewards: boolean;
}

/** The wording of an env without symbols. All versions have the same text. */
export function plainWording(text: string, actions: readonly string[] | null, integerRewards: boolean): Wording {
  return {
    v1: text,
    v2: text,
    strict: { v1: text, v2: text },
    legend: null,
    compatLegend: null,
    coordinateHint: null,
    actions,
    integerRewards,
  };
}

export interface EnvTag {
  readonly tag: string;
  /** Env type, as in RAGEN's registry: "sokoban". Tags of one type share a settings schema. */
  readonly type: string;
  /** The settings, defaults included. */
  readonly config: Readonly<Record<string, unknown>>;
  /** Default action budget of an episode; for a tag of RAGEN, RAGEN's budget. */
  readonly actionsMax: number;
  /** Turn limit of an episode. If omitted, the run's setting decides. */
  readonly turnsMax?: number;
  /** Every success on every board takes at least this many actions; omitted if the number is unknown. */
  readonly actionsMin?: number;
  /** RAGEN's max_tokens: the reply length that the prompt asks for. No code enforces this length. */
  readonly replyWordsHint: number;
  readonly wording: Wording;
  /**
   * True if every action costs time of a server or another process. Baselines of such an env play only one round, with several episodes at
   * once.
   */
  readonly external?: boolean;
  /** False if the env's module does not run in a browser. The page then cannot replay the env's episodes. */
  readonly browser?: boolean;
  /** Which required file or program this machine lacks, and how to get it; null if it lacks none. */
  missing?(): string | null;
  /** The caller still has to start an `OutsideGame`. @throws {DataError} if a file or program is missing. */
  open(seeds: Seeds): Game;
  /** The observation without its constant parts. The default returns the whole observation. Equal briefs mean equal observations of this tag. */
  brief(observation: string): string;
  /** Scores thoughts about this env's observations; omitted where no scorer exists. */
  readonly reasoning?: ReasoningScorer;
  /**
   * The part of an observation that identifies the state, without step counters; null if the observation shows no state. By default the
   * whole observation identifies the state.
   */
  readonly stateOf?: (observation: string) => string | null;
  /**
   * In a play of at most this many actions, equal actions in equal observations have equal effects. The warm start then tries an action
   * only once. Omitted if effects depend on chance or on facts that the observation does not show.
   */
  readonly deterministicActions?: number;
  readonly random: Player;
  /** A best possible player; null if none is known. */
  readonly optimal: Player | null;
  /** A scripted player for an env without an optimal player: good, but not proven to be the best. */
  readonly expert?: Player;
  /** Highest success probability within `actionsMax` actions, for a game in its first state; null if the probability is unknown. */
  best(game: Game, actionsMax: number): number | null;
  readonly demonstrator: Demonstrator | null;
  /** sha256 (hex) of the sources of the env's module; omitted for a built-in env. */
  readonly digest?: string;
  /** The current position as an image; omitted where the env draws none. */
  picture?(game: Game): Picture;
}

/** What an env folder defines for its tag. */
export type Parts = Omit<
  EnvTag,
  keyof typeof PART_DEFAULTS | "tag" | "digest" | "type" | "config" | "actionsMax" | "replyWordsHint"
> &
  Partial<Pick<EnvTag, keyof typeof PART_DEFAULTS>>;

/** The values of parts that an env folder omits. */
const PART_DEFAULTS = {
  brief: (observation: string): string => observation,
  optimal: null,
  best: (): null => null,
  demonstrator: null,
};

/** `strict` corrects RAGEN's known defects. Each other value reproduces one version of RAGEN. */
export const COMPATS = ["strict", "ragen-v1", "ragen-v2"] as const;
export type Compat = (typeof COMPATS)[number];

export interface TagSource {
  readonly tag: string;
  /** Tag of the env whose games this env plays; omitted if the env plays its own games. */
  readonly of?: string;
  /** @throws {TagError} that names all bad options. */
  make(options: unknown, compat: Compat): EnvTag;
}

/** Checks the tag of a user's env, because tags name folders and metrics. @throws {TypeError} if the tag is not a valid name. */
export function checkName(tag: string): void {
  if (/^[A-Z][A-Za-z0-9]{1,40}$/.test(tag)) return;
  throw new TypeError(
    `the tag of an env has 2 to 41 letters and digits and starts with a capital, such as LightsOut; got ${JSON.stringify(tag)}`,
  );
}

/** Invalid env options, or an unknown tag. */
export class TagError extends Error {
  override readonly name = "TagError";
}

/**
 * @param defaults  the tag's own defaults; they override the schema's defaults, and the user's options override them.
 * @param compatDefaults  further defaults for reproducing RAGEN byte for byte: for both versions, or a function of the version.
 */
export function defineTag<C extends Record<string, unknown>>(source: {
  readonly tag: string;
  readonly type: string;
  readonly schema: z.ZodType<C>;
  readonly defaults?: Partial<C>;
  readonly compatDefaults?: Partial<C> | ((version: Exclude<Compat, "strict">) => Partial<C>);
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
      const ragen = typeof compatDefaults === "function" ? compatDefaults : () => compatDefaults;
      const reproduced = compat === "strict" ? {} : ragen(compat);
      // An option that is undefined counts as omitted.
      const chosen = Object.fromEntries(Object.entries(given.data).filter(([, value]) => value !== undefined));
      const parsed = schema.safeParse({ ...defaults, ...reproduced, ...chosen });
      if (!parsed.success) {
        const reasons = z
          .prettifyError(parsed.error)
          .replaceAll("✖ ", "")
          .replaceAll(/\n\s*→ at /g, " at ");
        throw new TagError(`options of ${tag}: ${reasons.replaceAll("\n", "; ")}`);
      }
      const made = parts(parsed.data);
      return {
        tag,
        type,
        config: parsed.data,
        actionsMax,
        replyWordsHint,
        ...PART_DEFAULTS,
        ...made,
        open(seeds) {
          const lack = made.missing?.() ?? null;
          if (lack !== null) throw new DataError(lack);
          return made.open(seeds);
        },
      };
    },
  };
}

// `| 0` rounds down, in half of the time that JavaScriptCore takes for Math.floor. Random plays draw millions of actions.
export const randomAction = (game: DiscreteGame, uniform: Uniform): number => (uniform() * game.actions.length) | 0;

export const uniformPlayer: Player = (game, _actionsLeft, uniform) => {
  if (game.kind !== "discrete") throw new TypeError("the uniform player needs a game with a list of actions");
  return randomAction(game, uniform);
};

/** Opens a local game of the tag. @throws {TypeError} if the tag's games are outside games. */
export function openLocal(tag: EnvTag, seeds: Seeds): LocalGame {
  const game = tag.open(seeds);
  if (game.kind === "outside") throw new TypeError(`${tag.tag} runs outside this process and answers asynchronously`);
  return game;
}

/** Narrows `game` to the class `kind`. @throws {TypeError} if the game belongs to another env. */
export function expectGame<G extends Game>(game: Game, kind: abstract new (...args: never[]) => G): G {
  if (!(game instanceof kind)) throw new TypeError(`expected a ${kind.name}, got a ${game.constructor.name}`);
  return game;
}

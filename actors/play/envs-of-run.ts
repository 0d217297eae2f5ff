/**
 * Which envs a run plays: the one of `env`, or all of `env.mix` in every batch. Pure.
 *
 * Tickets, metrics and reports call an env by its name, which is its tag unless the mix says otherwise: one tag may be in a mix
 * twice, with different options.
 */
import type { EpisodeRules } from "../../envs/env.ts";
import { envTag } from "../../envs/registry.ts";
import { type EnvTag, TagError } from "../../envs/tag.ts";
import type { RunConfig } from "../config/config.ts";

export interface PlayedEnv {
  readonly name: string;
  readonly tag: string;
  readonly options: Readonly<Record<string, unknown>>;
  /** Groups of an update; null: an even share of what the others leave. */
  readonly groups: number | null;
  /** null: the run's, and for actions the tag's own. */
  readonly turnsMax: number | null;
  readonly actionsMax: number | null;
  readonly actionsPerTurnMax: number | null;
}

type EnvSettings = Pick<RunConfig, "env">;

export function playedEnvs({ env }: EnvSettings): readonly PlayedEnv[] {
  if (env.mix.length > 0) return env.mix.map((one) => ({ ...one, name: one.name ?? one.tag }));
  const { tag, options, turnsMax, actionsMax, actionsPerTurnMax } = env;
  return [{ name: tag, tag, options, groups: null, turnsMax, actionsMax, actionsPerTurnMax }];
}

/** What a run's folder is called after: "SimpleSokoban", "mix-of-4". */
export const shortText = (config: EnvSettings): string =>
  config.env.mix.length === 0 ? envsText(config) : `mix-of-${config.env.mix.length}`;

/** What a run plays: "SimpleSokoban", "FrozenLake+Bandit". */
export const envsText = (config: EnvSettings): string =>
  playedEnvs(config)
    .map(({ name }) => name)
    .join("+");

/** The other way round. */
export const envNames = (text: string): string[] => text.split("+");

/** @throws {TagError} if this run plays none of this name. */
function named(config: EnvSettings, name: string): PlayedEnv {
  const envs = playedEnvs(config);
  const found = envs.find((one) => one.name === name);
  if (found !== undefined) return found;
  throw new TagError(`this run plays no env named ${name}; it plays ${envs.map((one) => one.name).join(", ")}`);
}

/** An env's tag with the options that this run gives it. @throws {TagError} if there is none of this name */
export function tagOf(config: Pick<RunConfig, "env" | "prompt">, name: string): EnvTag {
  const { tag, options } = named(config, name);
  return envTag(tag, options, config.prompt.compat !== "strict");
}

/** An env's budgets, and how its replies are read. */
export function episodeRules(config: EnvSettings, name: string, tag: EnvTag): EpisodeRules {
  const { turnsMax, actionsMax, actionsPerTurnMax } = named(config, name);
  const { formatPenalty, think } = config.env;
  return {
    formatPenalty,
    think,
    turnsMax: turnsMax ?? config.env.turnsMax,
    actionsMax: actionsMax ?? tag.actionsMax,
    actionsPerTurnMax: actionsPerTurnMax ?? config.env.actionsPerTurnMax,
  };
}

/** Every env with its rules, for whoever plays them all in turn. */
export const lessonsOf = (config: Pick<RunConfig, "env" | "prompt">): { tag: EnvTag; rules: EpisodeRules }[] =>
  playedEnvs(config).map(({ name }) => {
    const tag = tagOf(config, name);
    return { tag, rules: episodeRules(config, name, tag) };
  });

/**
 * `total` groups among envs: each its own number, and the others an even share of what is left.
 *
 * @throws {RangeError} if they do not come out even: what was found, and what to do.
 */
export function sharedGroups(envs: readonly Pick<PlayedEnv, "name" | "groups">[], total: number): number[] {
  const fixed = envs.reduce((sum, { groups }) => sum + (groups ?? 0), 0);
  const open = envs.filter(({ groups }) => groups === null).length;
  const share = open === 0 ? 0 : (total - fixed) / open;
  if (open === 0 ? fixed !== total : !Number.isInteger(share) || share < 1) {
    const left = fixed === 0 ? `${total} groups` : `${total} groups less ${fixed}`;
    throw new RangeError(
      open === 0
        ? `the mix asks for ${fixed} groups of ${total}; make them equal, or leave one out to take the rest`
        : `${left} do not split evenly among ${open} envs; change rollout.groups, or give each env its groups`,
    );
  }
  return envs.map(({ groups }) => groups ?? share);
}

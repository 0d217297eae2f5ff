/**
 * Which envs a run plays: the env of section `env`, or the envs of `env.mix`.
 *
 * Tickets, metrics and reports use an env's name. The name is the tag, unless an entry of the mix sets another name: a mix may contain
 * one tag twice with different options.
 */
import type { z } from "zod";
import type { Env, EpisodeRules, Seeds } from "../../envs/env.ts";
import { openEpisode } from "../../envs/episode.ts";
import { envTag } from "../../envs/registry.ts";
import { type EnvTag, TagError } from "../../envs/tag.ts";
import type { EnvConfig, MixedEnv, PromptConfig } from "../config/env.ts";
import type { RolloutConfig } from "../config/rollout.ts";
import type { Ticket } from "../protocol.ts";

/** An env of the mix. For a single env: the env of section `env`. */
export type PlayedEnv = Omit<z.infer<typeof MixedEnv>, "name"> & { readonly name: string };

interface EnvSettings {
  readonly env: z.infer<typeof EnvConfig>;
}

/** The sections of a run's config from which this file makes the run's envs. */
interface PlaySettings extends EnvSettings {
  readonly prompt: z.infer<typeof PromptConfig>;
}

/** Opens an episode of one env. @param limit  the ticket's limit on actions per turn; if left out, the config's limit applies */
export type OpenEpisode = (seeds: Seeds, limit?: Pick<Ticket, "actionsPerTurnMax">) => Env | Promise<Env>;

export function playedEnvs({ env }: EnvSettings): readonly PlayedEnv[] {
  if (env.mix.length > 0) return env.mix.map((one) => ({ ...one, name: one.name ?? one.tag }));
  const { tag, options, turnsMax, actionsMax, actionsPerTurnMax } = env;
  return [{ name: tag, tag, options, groups: null, turnsMax, actionsMax, actionsPerTurnMax }];
}

/** The part of a run folder's name that names the envs: "SimpleSokoban", "mix-of-4". */
export const shortText = (config: EnvSettings): string =>
  config.env.mix.length === 0 ? envsText(config) : `mix-of-${config.env.mix.length}`;

/** Names of the run's envs as one text: "SimpleSokoban", "FrozenLake+Bandit". */
export const envsText = (config: EnvSettings): string =>
  playedEnvs(config)
    .map(({ name }) => name)
    .join("+");

/** Splits what `envsText` joined. */
export const envNames = (text: string): string[] => text.split("+");

/** @throws {TagError} if the run plays no env of this name. */
function named(config: EnvSettings, name: string): PlayedEnv {
  const envs = playedEnvs(config);
  const found = envs.find((one) => one.name === name);
  if (found !== undefined) return found;
  throw new TagError(`this run plays no env named ${name}; it plays ${envs.map((one) => one.name).join(", ")}`);
}

/** An env's tag with the run's options. @throws {TagError} if the run plays no env of this name */
export function tagOf(config: PlaySettings, name: string): EnvTag {
  const { tag, options } = named(config, name);
  return envTag(tag, options, config.prompt.compat);
}

/** An env's budgets, and the rules for reading its replies. */
export function episodeRules(config: EnvSettings, name: string, tag: EnvTag): EpisodeRules {
  const { turnsMax, actionsMax, actionsPerTurnMax } = named(config, name);
  const { formatPenalty, think } = config.env;
  return {
    formatPenalty,
    think,
    turnsMax: turnsMax ?? tag.turnsMax ?? config.env.turnsMax,
    actionsMax: actionsMax ?? tag.actionsMax,
    actionsPerTurnMax: actionsPerTurnMax ?? config.env.actionsPerTurnMax,
  };
}

/** The section `env` of a run that plays only this env of the mix. @throws {TagError} if the run plays no env of this name */
export function envAlone(config: PlaySettings, name: string): PlaySettings["env"] {
  const { tag, options } = named(config, name);
  const { turnsMax, actionsMax, actionsPerTurnMax } = episodeRules(config, name, tagOf(config, name));
  return { ...config.env, mix: [], tag, options: { ...options }, turnsMax, actionsMax, actionsPerTurnMax };
}

/** Limit on the actions of an episode: its budget, or the sum of its turns' limits if this sum is less. */
export const actionsAllowed = ({ turnsMax, actionsPerTurnMax, actionsMax }: EpisodeRules): number =>
  Math.min(actionsMax, turnsMax * actionsPerTurnMax);

/** One line for each env in which no episode can succeed, because even the shortest solution takes more actions than the budget allows. */
export function tooSmallBudgets(config: PlaySettings): string[] {
  return playedEnvs(config).flatMap(({ name }, i) => {
    const tag = tagOf(config, name);
    const rules = episodeRules(config, name, tag);
    const section = config.env.mix.length === 0 ? "env" : `env.mix.${i}`;
    const { turnsMax, actionsPerTurnMax, actionsMax } = rules;
    const allowed = actionsAllowed(rules);
    if (tag.actionsMin === undefined || allowed >= tag.actionsMin) return [];
    return [
      `no episode of ${name} can succeed: success takes at least ${tag.actionsMin} actions, but ${turnsMax} turns of ${actionsPerTurnMax} actions within a budget of ${actionsMax} allow only ${allowed}; raise ${section}.turnsMax, ${section}.actionsPerTurnMax or ${section}.actionsMax`,
    ];
  });
}

/** Returns the function with which the env server opens episodes of one env. @throws {TagError} if the run plays no env of this name */
export function episodeOpener(config: PlaySettings, name: string): OpenEpisode {
  const tag = tagOf(config, name);
  const rules = episodeRules(config, name, tag);
  return (seeds, { actionsPerTurnMax = rules.actionsPerTurnMax } = {}) =>
    openEpisode(tag.open(seeds), { ...rules, actionsPerTurnMax });
}

export const envsWithRules = (config: PlaySettings): { tag: EnvTag; rules: EpisodeRules }[] =>
  playedEnvs(config).map(({ name }) => {
    const tag = tagOf(config, name);
    return { tag, rules: episodeRules(config, name, tag) };
  });

/**
 * Shares `total` groups among envs: an env with a number of groups gets this number. The other envs share the rest evenly.
 *
 * @throws {RangeError} if the groups do not add up to `total`, or if the rest does not divide evenly
 */
export function sharedGroups(envs: readonly Pick<PlayedEnv, "name" | "groups">[], total: number): number[] {
  const fixed = envs.reduce((sum, { groups }) => sum + (groups ?? 0), 0);
  const open = envs.filter(({ groups }) => groups === null).length;
  const share = open === 0 ? 0 : (total - fixed) / open;
  if (open === 0 ? fixed !== total : !Number.isInteger(share) || share < 1) {
    const left = fixed === 0 ? `${total} groups` : `${total} groups less ${fixed}`;
    throw new RangeError(
      open === 0
        ? `the envs of the mix ask for ${fixed} groups in all, but an update has ${total}; make the two equal, or omit \`groups\` of one env, which then gets the rest`
        : `${left} do not split evenly among ${open} envs; change rollout.groups, or give each env its groups`,
    );
  }
  return envs.map(({ groups }) => groups ?? share);
}

interface GroupSettings {
  readonly rollout: Pick<z.infer<typeof RolloutConfig>, "groups" | "onlineK">;
}

/** Groups that an update plays: `rollout.groups` for each of the `onlineK` minibatches of the update. */
export const groupsPerUpdate = ({ rollout }: GroupSettings): number => rollout.groups * rollout.onlineK;

/** Number of boards reserved for an update: one for each group, and as many again for each round that may replace groups. */
export const boardsPerUpdate = ({
  rollout,
  learner,
}: GroupSettings & { readonly learner: { readonly resampleRoundsMax: number } }): number =>
  groupsPerUpdate({ rollout }) * (1 + learner.resampleRoundsMax);

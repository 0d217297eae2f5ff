/**
 * All envs by tag: the built-in envs, and the envs of users' modules, which `actors/play/env-modules.ts` imports. A process has one
 * definition per tag.
 */
import { alfworldTags } from "./alfworld/tags.ts";
import { banditTags } from "./bandit/tags.ts";
import { countdownTags } from "./countdown/tags.ts";
import { deepCoderTags } from "./deep-coder/tags.ts";
import { frozenLakeTags } from "./frozen-lake/tags.ts";
import { game2048Tags } from "./game-2048/game.ts";
import { leanTags } from "./lean/tags.ts";
import { questionTags } from "./questions/tags.ts";
import { remoteTags } from "./remote/tags.ts";
import { rubikTags } from "./rubik/game.ts";
import { searchTags } from "./search/tags.ts";
import { sokobanTags } from "./sokoban/tags.ts";
import { sudokuTags } from "./sudoku/tags.ts";
import { type Compat, type EnvTag, TagError, type TagSource } from "./tag.ts";
import { editDistance } from "./text/nearest.ts";
import { firstRepeated } from "./text/repeats.ts";
import { webShopTags } from "./webshop/tags.ts";

/** A user's module that defines envs. */
export interface EnvModule {
  /** The module's file. */
  readonly path: string;
  /** sha256 (hex) of the module's sources. */
  readonly digest: string;
}

interface Known {
  readonly source: TagSource;
  /** The module that defines the env; null for a built-in env. */
  readonly module: EnvModule | null;
}

const known = new Map<string, Known>(
  [
    ...sokobanTags,
    ...frozenLakeTags,
    ...banditTags,
    ...countdownTags,
    ...game2048Tags,
    ...rubikTags,
    ...sudokuTags,
    ...searchTags,
    ...leanTags,
    ...alfworldTags,
    ...remoteTags,
    ...questionTags,
    ...webShopTags,
    ...deepCoderTags,
  ].map((source) => [source.tag, { source, module: null }]),
);

/** All tags, in the order in which help texts list them. */
export const envTags = (): readonly string[] => [...known.keys()];

/** The module that defines the env; null if the env is built in or unknown. */
export const moduleOf = (tag: string): EnvModule | null => known.get(tag)?.module ?? null;

/** The tag whose games the env `tag` plays: another tag if the env only defines a reward, otherwise `tag` itself. */
export function playedBy(tag: string): string {
  const of = known.get(tag)?.source.of;
  return of === undefined ? tag : playedBy(of);
}

/** The modules that an env needs: the env's own module, and the modules of the env whose games this env plays. */
export function neededModules(tag: string): EnvModule[] {
  const { module = null, source } = known.get(tag) ?? {};
  const others = source?.of === undefined ? [] : neededModules(source.of);
  return module === null ? others : [module, ...others];
}

export const envModules = (): EnvModule[] => [
  ...new Set([...known.values()].flatMap(({ module }) => (module === null ? [] : [module]))),
];

export const tagsOf = (module: EnvModule): string[] => envTags().filter((tag) => moduleOf(tag) === module);

/** Adds the envs of a module. @throws {TagError} if a tag is already defined, or if envs play each other's games in a circle */
export function addEnvs(sources: readonly TagSource[], module: EnvModule): void {
  const twice = firstRepeated(sources.map(({ tag }) => tag));
  if (twice !== undefined)
    throw new TagError(`${module.path} defines the env ${twice} twice; choose another tag for one of the two envs`);
  for (const { tag } of sources) {
    const other = known.get(tag);
    if (other === undefined) continue;
    const owner = other.module === null ? "a built-in env" : other.module.path;
    throw new TagError(`the env ${tag} of ${module.path} has the tag of ${owner}; choose another tag`);
  }
  const of = (tag: string) => (sources.find((source) => source.tag === tag) ?? known.get(tag)?.source)?.of;
  for (const { tag } of sources) {
    const chain = [tag];
    for (let next = of(tag); next !== undefined; next = of(next)) {
      const circle = chain.includes(next);
      chain.push(next);
      if (circle) throw new TagError(`${module.path}: envs play each other's games: ${chain.join(" over ")}`);
    }
  }
  for (const source of sources) known.set(source.tag, { source, module });
}

export function removeEnvs(module: EnvModule): void {
  for (const tag of tagsOf(module)) known.delete(tag);
}

/**
 * @param options  the env's own settings: `{successRate: 0.8}` for FrozenLake.
 * @param compat  decides the value of an omitted option. ragen-*: the value of this RAGEN version. strict: Bunraku's value.
 * @throws {TagError} one line: the nearest known tags, or what is wrong with the options.
 */
export function envTag(name: string, options: unknown = {}, compat: Compat = "strict"): EnvTag {
  const found = known.get(name);
  if (found === undefined) {
    throw new TagError(`unknown env tag ${JSON.stringify(name)}; nearest: ${nearestTags(name).join(", ")}`);
  }
  const tag = found.source.make(options, compat);
  return found.module === null ? tag : { ...tag, digest: found.module.digest };
}

/** The three known tags with the smallest edit distance. */
function nearestTags(name: string): string[] {
  const distance = new Map(envTags().map((tag) => [tag, editDistance(name.toLowerCase(), tag.toLowerCase())]));
  return [...distance.keys()].sort((a, b) => distance.get(a)! - distance.get(b)!).slice(0, 3);
}

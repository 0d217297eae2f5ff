/** All envs by tag. A new env adds one import and one entry. */
import { alfworldTags } from "./alfworld/tags.ts";
import { banditTags } from "./bandit/tags.ts";
import { countdownTags } from "./countdown/tags.ts";
import { deepCoderTags } from "./deep-coder/tags.ts";
import { frozenLakeTags } from "./frozen-lake/tags.ts";
import { game2048Tags } from "./game-2048/tags.ts";
import { leanTags } from "./lean/tags.ts";
import { questionTags } from "./questions/tags.ts";
import { remoteTags } from "./remote/tags.ts";
import { rubikTags } from "./rubik/tags.ts";
import { searchTags } from "./search/tags.ts";
import { sokobanTags } from "./sokoban/tags.ts";
import { sudokuTags } from "./sudoku/tags.ts";
import { type Compat, type EnvTag, TagError, type TagSource } from "./tag.ts";
import { editDistance } from "./text/nearest.ts";
import { webShopTags } from "./webshop/tags.ts";

const sources: ReadonlyMap<string, TagSource> = new Map(
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
  ].map((source) => [source.tag, source]),
);

/** In the order that help texts list them. */
export const envTags: readonly string[] = [...sources.keys()];

/**
 * @param options  the env's own settings: `{successRate: 0.8}` for FrozenLake.
 * @param compat  the version of RAGEN whose settings are the defaults, its shared random streams included.
 * @throws {TagError} one line: the nearest known tags, or what is wrong with the options.
 */
export function envTag(name: string, options: unknown = {}, compat: Compat = "strict"): EnvTag {
  const source = sources.get(name);
  if (source === undefined) {
    throw new TagError(`unknown env tag ${JSON.stringify(name)}; nearest: ${nearestTags(name).join(", ")}`);
  }
  return source.make(options, compat);
}

/** The three known tags with the smallest edit distance. */
function nearestTags(name: string): string[] {
  const distance = new Map(envTags.map((tag) => [tag, editDistance(name.toLowerCase(), tag.toLowerCase())]));
  return [...envTags].sort((a, b) => distance.get(a)! - distance.get(b)!).slice(0, 3);
}

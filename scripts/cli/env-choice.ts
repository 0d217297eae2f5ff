/** Which env a command is asked to play: `--env TAG` and `--env.options.KEY=VALUE`. */

import { type RunConfig, runKeys } from "../../actors/config/config.ts";
import { type Layer, merge, oneValue, type Tree } from "../../actors/config/layers.ts";
import { lessonsOf } from "../../actors/play/envs-of-run.ts";
import { envTag } from "../../envs/registry.ts";
import { type EnvTag, TagError } from "../../envs/tag.ts";
import { type Override, UsageError } from "./options.ts";

/** The section `env` of what was typed. */
export function envOverrides(overrides: readonly Override[]): Tree {
  const mixed = overrides.find(({ path }) => path.startsWith("env.mix"));
  if (mixed !== undefined) throw new UsageError(`${mixed.source}: one env is played here; name it with --env`);
  const layers = overrides.map(({ path, text, source }): Layer => {
    return asUsage(source, () => oneValue(source, path, runKeys.value(path, text)));
  });
  return (merge(layers)["env"] ?? {}) as Tree;
}

/** @throws {UsageError} for a tag or options that there are not, and for data that are not there. */
export function checkedTag(name: string, options: unknown, compat = false): EnvTag {
  try {
    const tag = envTag(name, options ?? {}, compat);
    const lack = tag.missing?.() ?? null;
    if (lack !== null) throw new UsageError(lack);
    return tag;
  } catch (error) {
    throw error instanceof TagError ? new UsageError(error.message) : error;
  }
}

/** @throws {UsageError} if data or programs of an env that is played are not there. */
export function checkData(config: RunConfig): void {
  for (const { tag } of lessonsOf(config)) {
    const lack = tag.missing?.() ?? null;
    if (lack !== null) throw new UsageError(lack);
  }
}

export function asUsage<T>(source: string, run: () => T): T {
  try {
    return run();
  } catch (error) {
    throw new UsageError(`${source}: ${error instanceof Error ? error.message : error}`);
  }
}

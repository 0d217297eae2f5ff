/** The env that a command plays: `--env TAG` and `--env.options.KEY=VALUE`. */
import { runKeys } from "../../actors/config/config.ts";
import { type Layer, merge, oneValue, type Tree } from "../../actors/config/layers.ts";
import { messageOf } from "../../actors/errors.ts";
import { type Override, UsageError } from "./options.ts";

/** The section `env` of the overrides. */
export function envOverrides(overrides: readonly Override[]): Tree {
  const mixed = overrides.find(({ path }) => path.startsWith("env.mix"));
  if (mixed !== undefined) throw new UsageError(`${mixed.source}: this command plays one env; name it with --env`);
  const layers = overrides.map(({ path, text, source }): Layer => {
    return asUsage(source, () => oneValue(source, path, runKeys.value(path, text)));
  });
  return (merge(layers)["env"] ?? {}) as Tree;
}

/** Turns an error of `run` into a `UsageError` that begins with what was typed. */
export function asUsage<T>(source: string, run: () => T): T {
  try {
    return run();
  } catch (error) {
    throw new UsageError(`${source}: ${messageOf(error)}`);
  }
}

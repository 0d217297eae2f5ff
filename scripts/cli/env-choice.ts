/** The env that a command plays: `--env TAG` and `--env.options.KEY=VALUE`. */
import { merge, type Tree } from "../../actors/config/layers.ts";
import { type Override, UsageError } from "./options.ts";
import { overrideLayer } from "./presets.ts";

/** The section `env` of the overrides. */
export function envOverrides(overrides: readonly Override[]): Tree {
  const mixed = overrides.find(({ path }) => path.startsWith("env.mix"));
  if (mixed !== undefined) throw new UsageError(`${mixed.source}: this command plays one env; leave it out`);
  return (merge(overrides.map(overrideLayer))["env"] ?? {}) as Tree;
}

/** Settings of a run that starts from another's policy. library/run-folder.ts makes new runs, library/old-run.ts resumes runs. */
import { existsSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { latestCheckpoint } from "../../actors/checkpoint/checkpoint.ts";
import { valuesByPath } from "../../actors/config/layers.ts";
import { readRunConfig } from "../../actors/policy/saved-policy.ts";
import { CONFIG_FILE } from "../../library/run-folder.ts";
import { type Override, UsageError } from "./options.ts";

/**
 * The settings of a run that starts from the policy of another run.
 *
 * @param from       a run's folder, or one of its checkpoints
 * @param overrides  settings of the new run; one that contradicts the policy is refused
 */
export async function startFrom(from: string, overrides: readonly Override[]): Promise<Override[]> {
  const isCheckpoint = basename(dirname(resolve(from))) === "checkpoints";
  const folder = isCheckpoint ? dirname(dirname(resolve(from))) : resolve(from);
  if (!existsSync(join(folder, CONFIG_FILE))) {
    throw new UsageError(`--from ${from}: no run in ${folder}; name a run's folder, or a checkpoint in it`);
  }
  const { model, env, prompt } = readRunConfig(folder);
  const checkpoint = isCheckpoint ? resolve(from) : (await latestCheckpoint(join(folder, "checkpoints"))).found;
  if (checkpoint === null)
    throw new UsageError(`--from ${from}: the run has no intact checkpoint yet; wait for one, or name another run`);
  if (!existsSync(checkpoint))
    throw new UsageError(`--from ${from}: there is no such checkpoint; name the run, for its newest, or another one`);
  const { path, width, layers, heads, kvHeads, hidden, lora } = model;
  const adapters = lora.rank > 0 ? { lora: { rank: lora.rank, alpha: lora.alpha, targets: lora.targets } } : {};
  const shape = path === null ? { width, layers, heads, kvHeads, hidden } : { path, ...adapters };
  const settings = {
    warmStart: { enabled: false },
    env: { think: env.think },
    prompt: { compat: prompt.compat, layout: prompt.layout },
    model: { checkpoint, ...shape },
  };
  const fixed = valuesByPath(settings).map(([path, value]) => {
    return { path, text: typeof value === "string" ? value : JSON.stringify(value), source: `--from ${from}` };
  });
  for (const { path, text, source } of overrides) {
    const its = fixed.find((one) => one.path === path);
    if (its === undefined || its.text === text) continue;
    throw new UsageError(`${source}: the policy of ${from} needs ${path} ${its.text}; leave it out`);
  }
  return fixed;
}

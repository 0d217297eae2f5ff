/** Reads the files of configs/: presets, and settings that belong to one env. */
import { readdirSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { envTag, moduleOf, playedBy } from "../../envs/registry.ts";
import { TagError } from "../../envs/tag.ts";
import { didYouMean, nearest } from "../../envs/text/nearest.ts";
import { ConfigError } from "../errors.ts";
import { composeRunConfig } from "./compose.ts";
import type { RunConfig } from "./config.ts";
import { type Layer, lastToSet, merge, parseLayer, type Tree } from "./layers.ts";

/** Keys of `env` whose values belong to an env tag and not to a run. */
const BUDGETS = ["turnsMax", "actionsMax", "actionsPerTurnMax"];

const root = join(import.meta.dir, "../../configs");

export const DEFAULT_PRESET = "quickstart";
/** The default preset of a run with a pretrained model. */
export const PRETRAINED_PRESET = "pretrained";

export const presetFiles = (): string[] => yamlNames(root);

/** @param names  the presets that the error lists or suggests. @throws {ConfigError} if there is no preset of this name */
export function presetLayer(name: string, names = presetFiles()): Layer {
  if (!presetFiles().includes(name)) {
    const near = didYouMean(nearest(name, names)) || `; there are ${names.join(", ")}`;
    throw new ConfigError(`no preset "${name}"${near}`);
  }
  return parseLayer(readFileSync(join(root, `${name}.yaml`), "utf8"), `configs/${name}.yaml`);
}

/**
 * Composes a run's config. The file of the run's env is the lowest layer. The budgets in that file (limits of turns and actions) are also
 * a separate layer, directly below the layer that chose the tag. So these budgets override budgets that a lower layer set for another env.
 *
 * @throws {ConfigError} with one line per fault.
 */
export function composeWithEnvFile(layers: readonly Layer[]): RunConfig {
  const env = envLayer(layers);
  if (env === null) return composeRunConfig(layers);
  const budgets = { source: env.source, values: { env: budgetsIn(env) } };
  return composeRunConfig([env, ...layers.toSpliced(lastToSet(layers, "env.tag"), 0, budgets)]);
}

/**
 * The settings of the chosen env: all that the env's file has, or the budgets of an env that an outside module defines. Null if the env has
 * neither a file nor a module. An env that only changes the reward of another env gets the other env's settings.
 */
export function envLayer(layers: readonly Layer[]): Layer | null {
  const { tag, options } = (merge(layers)["env"] ?? {}) as { tag?: unknown; options?: unknown };
  const folder = join(root, "env");
  if (typeof tag !== "string") return null;
  const played = playedBy(tag);
  const module = moduleOf(played);
  if (module !== null) return { source: module.path, values: { env: moduleBudgets(played, options) } };
  if (!yamlNames(folder).includes(played)) return null;
  return parseLayer(readFileSync(join(folder, `${played}.yaml`), "utf8"), `configs/env/${played}.yaml`);
}

/** Budgets of an env that an outside module defines; empty if the env's options are wrong. rules.ts reports wrong options. */
function moduleBudgets(tag: string, options: unknown): Tree {
  try {
    const { actionsMax, turnsMax } = envTag(tag, options ?? {});
    return { actionsMax, ...(turnsMax !== undefined && { turnsMax }) };
  } catch (error) {
    if (error instanceof TagError) return {};
    throw error;
  }
}

/** The budgets of a tag. They come from the file or module that `envLayer` reads; empty if there are none. */
export function fileBudgets(tag: string): Tree {
  const env = envLayer([{ source: tag, values: { env: { tag } } }]);
  return env === null ? {} : budgetsIn(env);
}

const budgetsIn = ({ values }: Layer): Tree =>
  Object.fromEntries(Object.entries((values["env"] ?? {}) as Tree).filter(([key]) => BUDGETS.includes(key)));

function yamlNames(folder: string): string[] {
  const files = readdirSync(folder).filter((file) => file.endsWith(".yaml"));
  return files.map((file) => basename(file, ".yaml")).sort();
}

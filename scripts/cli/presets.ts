/**
 * Makes a run's config from files and flags. Layers, lowest first: defaults; the env's file (configs/env/TAG.yaml); the preset
 * (configs/NAME.yaml); the project's own settings and preset (bunraku.config.ts); the file of --config; flags and --section.key=value in the
 * order of the command line. A flag whose value also sets other keys comes before all other flags. The limits on turns and actions of the env's
 * file come a second time, directly below the layer that chose env.tag. So they override the limits of presets below this layer.
 */
import { type RunConfig, runKeys } from "../../actors/config/config.ts";
import { type Layer, merge, oneValue, readLayer, type Tree } from "../../actors/config/layers.ts";
import {
  composeWithEnvFile,
  DEFAULT_PRESET,
  PRETRAINED_PRESET,
  presetFiles,
  presetLayer,
} from "../../actors/config/preset-files.ts";
import { ConfigError, messageOf } from "../../actors/errors.ts";
import { NO_PROJECT, PROJECT_FILE, type Project } from "../../library/project.ts";
import { type Flag, flag, type Override, UsageError } from "./options.ts";

let project: Project = NO_PROJECT;

/** Makes `loaded` the project whose settings the command of this process uses. */
export function inProject(loaded: Project): void {
  const builtIn = Object.keys(loaded.presets).find((name) => presetFiles().includes(name));
  if (builtIn !== undefined) {
    throw new ConfigError(`${PROJECT_FILE}: presets.${builtIn}: a built-in preset has this name; choose another`);
  }
  project = loaded;
}

export const runsFolder = (): string => project.runsFolder;

/** The section `env` of the project's runs; empty if the project sets none. */
export const projectEnv = (): Tree => (project.run["env"] ?? {}) as Tree;

/** Flags of the commands that take a run's config. */
export const configFlags = {
  preset: flag.text(
    "NAME",
    `Name of a file in configs/ (without .yaml), or of a preset in bunraku.config.ts (default: ${DEFAULT_PRESET}; ${PRETRAINED_PRESET} with --model)`,
  ),
  config: flag.text("FILE", "Your own YAML file; its keys override the preset"),
  model: flag.text("DIR", "Hugging Face model to train: a folder, or hf:OWNER/NAME[@REVISION]", "model.path"),
  env: flag.text("TAG", "Env to play: SimpleSokoban, FrozenLake, Bandit, …", "env.tag"),
  updates: flag.count("N", "Reinforcement updates", "learner.updates"),
  minutes: flag.number("M", "End the run after M minutes of reinforcement", "learner.minutes"),
  samplers: flag.count("N", "Sampler processes", "sampler.count"),
  "env-servers": flag.count("N", "Env server processes", "envServer.count"),
  seed: flag.count("N", "Seed of the run", "seed"),
  engine: flag.text("NAME", "Compute engine: auto, compiled, tensorflow, eager or tinker", "engine.name"),
  device: flag.text("NAME", "Device: auto, cpu, cuda or webgpu", "engine.device"),
  port: flag.port("N", "Port of the page; 0 for any free port", "metrics.port"),
} as const satisfies Record<string, Flag>;

export interface ConfigChoice {
  readonly flags: { readonly preset?: string; readonly config?: string };
  readonly overrides: readonly Override[];
}

/**
 * @throws {UsageError} if the file cannot be read, or a flag's key or value is wrong.
 * @throws {ConfigError} if there is no such preset, or if the config has faults.
 */
export function chooseConfig({ flags, overrides }: ConfigChoice): RunConfig {
  const pretrained = overrides.some(({ path }) => path === "model.path");
  const layers = presetLayers(flags.preset, pretrained ? PRETRAINED_PRESET : DEFAULT_PRESET);
  if (flags.config !== undefined) layers.push(fileLayer("--config", flags.config));
  // The values of these keys also set other keys, so they must come before the other flags.
  const setsOthers = ({ path }: Override) =>
    Number(["learner.algorithm", "prompt.compat", "engine.name"].includes(path));
  const ordered = overrides.toSorted((a, b) => setsOthers(b) - setsOthers(a));
  return composeWithEnvFile([...layers, ...ordered.map(overrideLayer)]);
}

/** A built-in preset replaces all settings of the project. A preset of the project overrides single settings. */
function presetLayers(name: string | undefined, standard: string): Layer[] {
  const own = name === undefined ? {} : new Map(Object.entries(project.presets)).get(name);
  if (own === undefined) return [presetLayer(name!, [...Object.keys(project.presets), ...presetFiles()])];
  const source = name === undefined ? PROJECT_FILE : `${PROJECT_FILE}: presets.${name}`;
  return [
    presetLayer(project.preset ?? standard),
    { source: PROJECT_FILE, values: project.run },
    { source, values: own },
  ];
}

/** @param what the file's name in the error. @throws {UsageError} if the file cannot be read. @throws {ConfigError} if the file holds no settings */
export function fileLayer(what: string, file: string): Layer {
  try {
    return readLayer(file);
  } catch (error) {
    if (error instanceof ConfigError) throw error;
    throw new UsageError(`cannot read ${what} ${file}: ${messageOf(error)}`);
  }
}

/** @throws {UsageError} if the key is unknown or does not take the text. */
export function overrideLayer({ path, text, source }: Override): Layer {
  try {
    return oneValue(source, path, runKeys.value(path, text));
  } catch (error) {
    throw error instanceof ConfigError ? new UsageError(`${source}: ${error.message}`) : error;
  }
}

export function envOverrides(overrides: readonly Override[]): Tree {
  const mixed = overrides.find(({ path }) => path.startsWith("env.mix"));
  if (mixed !== undefined) throw new UsageError(`${mixed.source}: this command plays one env; leave it out`);
  return (merge(overrides.map(overrideLayer))["env"] ?? {}) as Tree;
}

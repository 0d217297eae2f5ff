/**
 * Makes a run's config from layers: presets, files and flags. The caller reads the files.
 *
 * - Every composed config satisfies the schema and all rules. One error lists all unknown keys, former keys and wrong types. If there are
 *   none, one error lists all broken rules, and all keys that the run would not read. Each line of an error names the file or flag that set
 *   the key.
 * - A layer overrides the layers before it, key by key. The defaults are below all layers. preset-files.ts decides where the settings of an
 *   env's file stand among the layers.
 */
import type { z } from "zod";
import { didYouMean, nearest } from "../../envs/text/nearest.ts";
import { ConfigError } from "../errors.ts";
import { modulesOf } from "../play/env-modules.ts";
import { ALGORITHMS } from "./algorithms.ts";
import { RunConfig, runKeys, SECRETS, UNCOMPILED } from "./config.ts";
import { type Layer, lastToSet, merge, type Tree, valueAt } from "./layers.ts";
import { brokenRules } from "./rules.ts";
import { TINKER_SETTINGS } from "./tinker.ts";
import { unreadKeys } from "./unread.ts";

/**
 * @param given  the layers, lowest first
 * @throws {ConfigError} with one line per fault.
 */
export function composeRunConfig(given: readonly Layer[]): RunConfig {
  const layers = withChoices(given);
  const defaults: Layer = { source: "defaults", values: RunConfig.parse({}, UNCOMPILED) };
  const parsed = RunConfig.safeParse(merge([defaults, ...layers]), { ...UNCOMPILED, reportInput: true });
  if (!parsed.success)
    throw new ConfigError(parsed.error.issues.flatMap((issue) => faultLines(issue, layers)).join("\n"));
  const config = parsed.data;
  const broken = brokenRules(config).map((fault) => `${setBy(layers, fault.slice(0, fault.indexOf(":")))}${fault}`);
  const faults = [...broken, ...unreadKeys(config, layers)];
  if (lastToSet(layers, "env.modules") !== -1)
    faults.push(
      `${setBy(layers, "env.modules")}env.modules: commands fill it in; name the module in bunraku.config.ts`,
    );
  if (faults.length > 0) throw new ConfigError(faults.join("\n"));
  return { ...config, env: { ...config.env, modules: modulesOf(config) } };
}

/** The keys whose values also choose other settings. If one layer sets two of these keys and both choose one setting, the later entry here wins. */
const CHOICES: readonly (readonly [path: string, settings: Readonly<Record<string, Tree>>])[] = [
  ["learner.algorithm", Object.fromEntries(Object.entries(ALGORITHMS).map(([name, learner]) => [name, { learner }]))],
  ["prompt.compat", { "ragen-v1": { prompt: { layout: "ragen-v1" } }, "ragen-v2": { prompt: { layout: "ragen-v2" } } }],
  ["engine.name", { tinker: TINKER_SETTINGS }],
];

/** Adds the chosen settings as a layer directly below the layer that made the choice. The choosing layer and all higher layers override them. */
function withChoices(given: readonly Layer[]): readonly Layer[] {
  let layers = given;
  for (const [path, settings] of CHOICES) {
    const at = lastToSet(layers, path);
    const chosen = valueAt(layers[at]?.values ?? {}, path);
    if (typeof chosen !== "string" || !Object.hasOwn(settings, chosen)) continue;
    layers = layers.toSpliced(at, 0, { source: `${path} ${chosen}`, values: settings[chosen]! });
  }
  return layers;
}

/** Maximum number of unknown keys of one section that the error lists. The error only counts further unknown keys. */
const UNKNOWN_KEYS_MAX = 20;

function faultLines(issue: z.core.$ZodIssue, layers: readonly Layer[]): string[] {
  const path = issue.path.join(".");
  if (issue.code === "unrecognized_keys") {
    const more = issue.keys.length - UNKNOWN_KEYS_MAX;
    const lines = issue.keys.slice(0, UNKNOWN_KEYS_MAX).map((key) => {
      const unknown = path === "" ? key : `${path}.${key}`;
      return `${setBy(layers, [...issue.path.map(String), key])}${runKeys.unknown(unknown)}`;
    });
    return more > 0 ? [...lines, `${path === "" ? "the config" : path} has ${more} more unknown keys`] : lines;
  }
  if (issue.code === "invalid_value") {
    const near = didYouMean(nearest(String(issue.input), issue.values.map(String)));
    const known = issue.values.join(", ");
    return [`${setBy(layers, path)}${path}: must be one of ${known}; got ${JSON.stringify(issue.input)}${near}`];
  }
  const found = SECRETS.has(path) ? "(hidden)" : issue.input;
  // JSON would write null for an infinite number.
  const got = found === undefined ? "" : `, got ${typeof found === "number" ? found : JSON.stringify(found)}`;
  return [`${setBy(layers, path)}${path}: ${issue.message}${got}`];
}

function setBy(layers: readonly Layer[], path: string | readonly string[]): string {
  const index = lastToSet(layers, path);
  return index === -1 ? "" : `${layers[index]!.source}: `;
}

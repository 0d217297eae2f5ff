/**
 * Makes a run's config from layers: presets, files and flags. Reads no disk; the caller passes the text of files.
 *
 * - A composed config can be run. Unknown and renamed keys and wrong types are refused together; if there are none, broken rules and
 *   keys that the run would not read are. Each fault names the file or flag that set the key.
 * - A layer overrides the layers before it, key by key; below all of them are the defaults.
 */
import type { z } from "zod";
import { didYouMean, nearest } from "../../envs/text/nearest.ts";
import { modulesOf } from "../play/env-modules.ts";
import { withAlgorithm } from "./algorithms.ts";
import { RunConfig, runKeys, SECRETS } from "./config.ts";
import { ConfigError } from "./error.ts";
import { formerKeyText } from "./former-keys.ts";
import { type Layer, lastToSet, merge, oneValue, type Tree } from "./layers.ts";
import { brokenRules } from "./rules.ts";
import { withTinker } from "./tinker.ts";
import { unreadKeys } from "./unread.ts";

/**
 * @param given  lowest first
 * @throws {ConfigError} with one line per fault.
 */
export function composeRunConfig(given: readonly Layer[]): RunConfig {
  const layers = withTinker(withCompatLayout(withAlgorithm(given)));
  const defaults: Layer = { source: "defaults", values: RunConfig.parse({}) };
  const parsed = RunConfig.safeParse(merge([defaults, ...layers]), { reportInput: true });
  if (!parsed.success)
    throw new ConfigError(parsed.error.issues.flatMap((issue) => faultLines(issue, layers)).join("\n"));
  const config = parsed.data;
  const broken = brokenRules(config).map(({ path, text }) => `${setBy(layers, path)}${path}: ${text}`);
  const faults = [...broken, ...unreadKeys(config, layers)];
  if (lastToSet(layers, "env.modules") !== -1)
    faults.push(
      `${setBy(layers, "env.modules")}env.modules: commands fill it in; name the module in bunraku.config.ts`,
    );
  if (faults.length > 0) throw new ConfigError(faults.join("\n"));
  return { ...config, env: { ...config.env, modules: modulesOf(config) } };
}

/** `prompt.compat` of a RAGEN version also sets `prompt.layout` to that version, unless the same or a higher layer sets the layout. */
function withCompatLayout(layers: readonly Layer[]): readonly Layer[] {
  const at = lastToSet(layers, "prompt.compat");
  if (at === -1) return layers;
  const compat = (merge([layers[at]!])["prompt"] as Tree)["compat"];
  if (compat !== "ragen-v1" && compat !== "ragen-v2") return layers;
  return layers.toSpliced(at, 0, oneValue(`prompt.compat ${compat}`, "prompt.layout", compat));
}

/** Unknown keys of a section that get a line each. */
const UNKNOWN_KEYS_MAX = 20;

function faultLines(issue: z.core.$ZodIssue, layers: readonly Layer[]): string[] {
  const path = issue.path.join(".");
  if (issue.code === "unrecognized_keys") {
    const more = issue.keys.length - UNKNOWN_KEYS_MAX;
    const lines = issue.keys.slice(0, UNKNOWN_KEYS_MAX).map((key) => {
      const unknown = path === "" ? key : `${path}.${key}`;
      const text = formerKeyText(unknown) ?? runKeys.unknown(unknown);
      return `${setBy(layers, [...issue.path.map(String), key])}${text}`;
    });
    return more > 0 ? [...lines, `${path === "" ? "the config" : path} has ${more} more unknown keys`] : lines;
  }
  if (issue.code === "invalid_value") {
    const near = didYouMean(nearest(String(issue.input), issue.values.map(String)));
    const known = issue.values.join(", ");
    return [`${setBy(layers, path)}${path}: must be one of ${known}; got ${JSON.stringify(issue.input)}${near}`];
  }
  const got = issue.input === undefined ? "" : `, got ${JSON.stringify(SECRETS.has(path) ? "(hidden)" : issue.input)}`;
  return [`${setBy(layers, path)}${path}: ${issue.message}${got}`];
}

function setBy(layers: readonly Layer[], path: string | readonly string[]): string {
  const index = lastToSet(layers, path);
  return index === -1 ? "" : `${layers[index]!.source}: `;
}

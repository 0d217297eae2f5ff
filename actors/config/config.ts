/**
 * A run, whole: every setting, its default and its sentence. The sections are in config/; this file composes them.
 * Reads no disk: who has files (scripts/cli/presets.ts) passes their text.
 *
 * - A config that parses can be run: unknown keys, wrong types, broken rules and keys nobody would read are refused,
 *   all at once, each with the file or flag that set it.
 * - A layer overrides the layers before it, key by key; below all of them are the defaults.
 */
import { z } from "zod";
import { didYouMean, nearest } from "../../envs/text/nearest.ts";
import { withAlgorithm } from "./algorithms.ts";
import { ConfigError } from "./error.ts";
import { HealthConfig } from "./health.ts";
import { Keys } from "./keys.ts";
import { type Layer, lastToSet, merge, oneValue, type Tree } from "./layers.ts";
import { LearnerConfig } from "./learner.ts";
import { EngineConfig, JoinConfig, MetricsConfig, SupervisorConfig, TransportConfig } from "./machine.ts";
import { CheckpointConfig, ModelConfig, ValidateConfig, WarmStartConfig } from "./policy.ts";
import { EnvConfig, EnvServerConfig, PromptConfig, RolloutConfig, SamplerConfig } from "./rollout.ts";
import { brokenRules } from "./rules.ts";
import { unreadKeys } from "./unread.ts";

export const RunConfig = z.strictObject({
  seed: z
    .uint32()
    .default(10_000)
    .describe("Of the run: names the coins of sampling, the initial weights, every shuffle"),
  env: EnvConfig.prefault({}),
  prompt: PromptConfig.prefault({}),
  rollout: RolloutConfig.prefault({}),
  sampler: SamplerConfig.prefault({}),
  envServer: EnvServerConfig.prefault({}),
  model: ModelConfig.prefault({}),
  warmStart: WarmStartConfig.prefault({}),
  learner: LearnerConfig.prefault({}),
  validate: ValidateConfig.prefault({}),
  checkpoint: CheckpointConfig.prefault({}),
  health: HealthConfig.prefault({}),
  engine: EngineConfig.prefault({}),
  metrics: MetricsConfig.prefault({}),
  supervisor: SupervisorConfig.prefault({}),
  join: JoinConfig.prefault({}),
  transport: TransportConfig.prefault({}),
});
export type RunConfig = z.infer<typeof RunConfig>;

/** All keys with type, default and sentence. */
export const runKeys = new Keys(RunConfig);

/** Never shown, logged or written to a run directory. */
const SECRETS = new Set(["metrics.token", "transport.token", "join.token", "join.samplerToken", "join.envServerToken"]);

/**
 * The config that layers make together, lowest first.
 *
 * @throws {ConfigError} with one line per fault.
 */
export function composeRunConfig(given: readonly Layer[]): RunConfig {
  const layers = withAlgorithm(given);
  const defaults: Layer = { source: "defaults", values: RunConfig.parse({}) };
  const parsed = RunConfig.safeParse(merge([defaults, ...layers]), { reportInput: true });
  if (!parsed.success)
    throw new ConfigError(parsed.error.issues.flatMap((issue) => faultLines(issue, layers)).join("\n"));
  const config = parsed.data;
  const broken = brokenRules(config).map(({ path, text }) => `${setBy(layers, path)}${path}: ${text}`);
  const faults = [...broken, ...unreadKeys(config, layers)];
  if (faults.length > 0) throw new ConfigError(faults.join("\n"));
  return config;
}

function faultLines(issue: z.core.$ZodIssue, layers: readonly Layer[]): string[] {
  const path = issue.path.join(".");
  if (issue.code === "unrecognized_keys") {
    return issue.keys.map((key) => {
      const unknown = path === "" ? key : `${path}.${key}`;
      return `${setBy(layers, unknown)}unknown key ${unknown}${didYouMean(runKeys.nearest(unknown))}`;
    });
  }
  if (issue.code === "invalid_value") {
    const near = didYouMean(nearest(String(issue.input), issue.values.map(String)));
    const known = issue.values.join(", ");
    return [`${setBy(layers, path)}${path}: ${JSON.stringify(issue.input)} is none of ${known}${near}`];
  }
  const got = issue.input === undefined ? "" : `, got ${JSON.stringify(SECRETS.has(path) ? "(hidden)" : issue.input)}`;
  return [`${setBy(layers, path)}${path}: ${issue.message}${got}`];
}

function setBy(layers: readonly Layer[], path: string): string {
  const index = lastToSet(layers, path);
  return index === -1 ? "" : `${layers[index]!.source}: `;
}

/** The config as it may be stored and shown: secrets are null. */
export function withoutSecrets(config: RunConfig): RunConfig {
  const hidden = [...SECRETS].map((path) => oneValue("secrets", path, null));
  return merge([{ source: "config", values: { ...config } }, ...hidden]) as RunConfig;
}

/** One `key = value` per line, secrets hidden: for people, logs and the run directory. */
export function describeConfig(config: RunConfig): string {
  return runKeys.all.map(({ path }) => `${path} = ${JSON.stringify(shown(config, path))}`).join("\n");
}

/** The value at a path as it may be shown. */
function shown(config: RunConfig, path: string): unknown {
  const value = path.split(".").reduce<unknown>((node, part) => (node as Tree)[part], config);
  return SECRETS.has(path) && value !== null ? "(hidden)" : value;
}

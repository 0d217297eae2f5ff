/**
 * A run's config: every setting with its type, default and description. The sections are in this folder; compose.ts makes a config from
 * presets, files and flags.
 */
import { z } from "zod";
import { EnvConfig, PromptConfig } from "./env.ts";
import { HealthConfig } from "./health.ts";
import { Keys } from "./keys.ts";
import { oneOf, seed } from "./kinds.ts";
import { merge, oneValue, valueAt } from "./layers.ts";
import { LearnerConfig } from "./learner.ts";
import { EngineConfig, JoinConfig, MetricsConfig, SupervisorConfig, TransportConfig } from "./machine.ts";
import { CheckpointConfig, ModelConfig, WarmStartConfig } from "./model.ts";
import { EnvServerConfig, RolloutConfig, SamplerConfig, ValidateConfig } from "./rollout.ts";

export const RunConfig = z.strictObject({
  seed: seed(10_000).describe(
    "Seed of the run: decides initial weights, sampling, shuffles and the boards of the warm start. rollout.firstSeed and validate.firstSeed decide the other boards",
  ),
  actors: oneOf(["processes", "workers", "one-thread"], "processes").describe(
    "Where actors run. processes: each actor in its own process; workers: all in one process, each in its own Bun worker; one-thread: all on one thread, for debugging",
  ),
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

/** Stops zod from compiling a function for each section. A process parses its settings once or twice, so compiling takes more time than it saves. */
export const UNCOMPILED = { jitless: true } as const;

/** All keys with type, default and description. */
export const runKeys = new Keys(RunConfig);

/** Bunraku never shows or logs the values of these keys, and never writes them to a run folder. */
export const SECRETS: ReadonlySet<string> = new Set([
  "metrics.token",
  "transport.token",
  "join.token",
  "join.samplerToken",
  "join.envServerToken",
]);

/** The config with null in place of each secret, so that Bunraku can store and show this config. */
export function withoutSecrets(config: RunConfig): RunConfig {
  const hidden = [...SECRETS].map((path) => oneValue("secrets", path, null));
  return merge([{ source: "config", values: { ...config } }, ...hidden]) as RunConfig;
}

/** The config as text, with one `key = value` per line and without secrets: for people, logs and the run folder. */
export function describeConfig(config: RunConfig): string {
  return runKeys.all.map(({ path }) => `${path} = ${JSON.stringify(shownValue(config, path))}`).join("\n");
}

/** The value of a key; "(hidden)" for a secret that is set. */
export function shownValue(config: RunConfig, path: string): unknown {
  const value = valueAt(config, path);
  return SECRETS.has(path) && value !== null ? "(hidden)" : value;
}

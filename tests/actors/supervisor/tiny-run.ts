/** Runs of a second or two on one thread: a policy of one layer and a short warm start. */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { latestCheckpoint } from "../../../actors/checkpoint/checkpoint.ts";
import type { RunConfig } from "../../../actors/config/config.ts";
import { type ClusterOptions, startCluster } from "../../../actors/supervisor/cluster.ts";
import type { RunEnd } from "../../../actors/supervisor/supervision.ts";
import { aConfig } from "../../fixtures.ts";
import { sharedWarmStarts } from "../../scripts/temporary.ts";

/** Settings of a short run. @param folder  the run's folder, which also caches the warm start, so that no run uses another run's warm start */
export const tinySettings = (folder: string, cacheDir = join(folder, "warm-start")) => ({
  rollout: { groups: 4, groupSize: 4 },
  sampler: { count: 1, slots: 8 },
  model: { width: 32, layers: 1, heads: 2, kvHeads: 1, hidden: 64 },
  warmStart: {
    boards: 100,
    cacheDir,
    stages: [{ name: "learn", babble: 0.5, noise: 0, steps: 120, batch: 16, learningRate: 1e-2, warmUpSteps: 10 }],
  },
  learner: { filter: { strategy: "all" } },
  engine: { threads: 1 },
  metrics: { port: 0 },
});

export interface TinyChoices {
  readonly samplers: number;
  /** Default: 3. */
  readonly updates?: number;
  /** "shared" for a test that begins after the warm start: another run may have made the warm start. Default: "own". */
  readonly warmStart?: "own" | "shared";
  /** The page's port. Default: any free port. */
  readonly port?: number;
}

/** A few updates on the bandit, after just enough lessons that the policy plays well-formed turns, both right and wrong. */
export function tinyConfig(folder: string, choices: TinyChoices): RunConfig {
  const { samplers, updates = 3, warmStart = "own", port = 0 } = choices;
  return aConfig(warmStart === "shared" ? tinySettings(folder, sharedWarmStarts(folder)) : tinySettings(folder), {
    env: { tag: "Bandit", turnsMax: 1, actionsMax: 1, actionsPerTurnMax: 1 },
    sampler: { count: samplers },
    warmStart: {
      imitate: "demonstrator",
      stages: [
        { name: "learn", babble: 0.5, noise: 0, steps: 60, batch: 16, learningRate: 1e-2, warmUpSteps: 10 },
        { name: "blur", babble: 1, noise: 0, steps: 20, batch: 16, learningRate: 2.5e-3, warmUpSteps: 0 },
      ],
    },
    learner: { updates },
    validate: { episodes: 16, everyUpdates: 2 },
    metrics: { port },
  });
}

/** A run with all actors on this thread, whatever its config says. */
export const startOneThread = (options: ClusterOptions) =>
  startCluster({ ...options, config: { ...options.config, actors: "one-thread" } });

/**
 * A run in `folder`, to its end. A run that the folder holds already is resumed.
 *
 * @throws {Error} if it ends badly.
 */
export async function playRun(folder: string, config: RunConfig): Promise<void> {
  const end = await runUntil(folder, config, null);
  if (!end.ok) throw new Error(end.reason);
}

/** Plays a run like `playRun`, but stops it once an actor logs a line with this text. */
export const stopRunAt = (folder: string, config: RunConfig, text: string): Promise<RunEnd> =>
  runUntil(folder, config, text);

async function runUntil(folder: string, config: RunConfig, text: string | null): Promise<RunEnd> {
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "config.json"), JSON.stringify(config));
  const said = Promise.withResolvers<void>();
  const output = (_: string, line: string) => void (text !== null && line.includes(text) && said.resolve());
  const cluster = await startOneThread({ run: "run", folder, config, event: () => {}, output });
  await Promise.race([said.promise, cluster.ended]);
  return text === null ? cluster.ended : cluster.stop("enough");
}

/** sha256 of what a run learned: parameters and moments of its newest checkpoint. */
export async function learnt(folder: string): Promise<string> {
  const { found } = await latestCheckpoint(join(folder, "checkpoints"));
  return readFileSync(join(found!, "SHA256SUMS"), "utf8")
    .split("\n")
    .filter((line) => line.endsWith(".safetensors"))
    .join("\n");
}

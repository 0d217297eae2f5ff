/**
 * The config of a run that is over in a second or two: a policy of one layer, a few updates on the bandit, and just enough
 * lessons that it plays well-formed turns, right and wrong ones.
 */
import { join } from "node:path";
import { composeRunConfig, type RunConfig } from "../../actors/config.ts";

export interface TinyChoices {
  readonly samplers: number;
  /** 3 if left out. */
  readonly updates?: number;
  /** Of the page; any free one if left out. */
  readonly port?: number;
}

/** @param folder  of the run; the warm start is cached in it, so no run takes another's. */
export function tinyConfig(folder: string, { samplers, updates = 3, port = 0 }: TinyChoices): RunConfig {
  return composeRunConfig([
    {
      source: "test",
      values: {
        env: { tag: "Bandit", turnsMax: 1, actionsMax: 1, actionsPerTurnMax: 1 },
        rollout: { groups: 4, groupSize: 4 },
        sampler: { count: samplers, slots: 8 },
        model: { width: 32, layers: 1, heads: 2, kvHeads: 1, hidden: 64 },
        warmStart: {
          boards: 100,
          cacheDir: join(folder, "warm-start"),
          stages: [
            { name: "learn", babble: 0.5, noise: 0, steps: 60, batch: 16, learningRate: 1e-2, warmUpSteps: 10 },
            { name: "blur", babble: 1, noise: 0, steps: 20, batch: 16, learningRate: 2.5e-3, warmUpSteps: 0 },
          ],
        },
        learner: { updates, filter: { strategy: "all" } },
        validate: { episodes: 16, everyUpdates: 2 },
        engine: { threads: 1 },
        metrics: { port },
      },
    },
  ]);
}

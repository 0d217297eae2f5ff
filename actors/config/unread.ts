/**
 * Which choices leave which keys unread. A key that was set and that the run will never look at is a mistake of the
 * person who set it, so it is refused at the start; a lower layer's key that a higher layer's choice made moot is not.
 */
import type { RunConfig } from "../config.ts";
import { type Layer, lastToSet } from "./layers.ts";

interface Unread {
  /** The key that decides. */
  readonly choice: string;
  /** The sentence's middle: "is never read {when}". */
  readonly when: string;
  readonly holds: (config: RunConfig) => boolean;
  readonly keys: readonly string[];
}

const PPO_ONLY = ["criticLearningRate", "criticWarmUpUpdates", "gamma", "lambda", "valueClip"];

const table: readonly Unread[] = [
  {
    choice: "learner.algorithm",
    when: "by grpo, which has no critic",
    holds: ({ learner }) => learner.algorithm === "grpo",
    keys: PPO_ONLY.map((key) => `learner.${key}`),
  },
  {
    choice: "learner.algorithm",
    when: "by ppo, whose baseline is the critic",
    holds: ({ learner }) => learner.algorithm === "ppo",
    keys: ["learner.groupStd"],
  },
  {
    choice: "learner.mode",
    when: "in sync mode, where nothing is stale",
    holds: ({ learner }) => learner.mode === "sync",
    keys: ["learner.stalenessMax"],
  },
  {
    choice: "learner.kl.coefficient",
    when: "while learner.kl.coefficient is 0",
    holds: ({ learner }) => learner.kl.coefficient === 0,
    keys: ["estimator", "control", "target", "horizon"].map((key) => `learner.kl.${key}`),
  },
  {
    choice: "learner.kl.control",
    when: "by the fixed controller",
    holds: ({ learner }) => learner.kl.control === "fixed",
    keys: ["learner.kl.target", "learner.kl.horizon"],
  },
  {
    choice: "learner.filter.strategy",
    when: "while learner.filter.strategy is all",
    holds: ({ learner }) => learner.filter.strategy === "all",
    keys: ["value", "order", "metric", "includeZero", "mode", "epsilon"].map((key) => `learner.filter.${key}`),
  },
  {
    choice: "learner.filter.strategy",
    when: "by top_ratio, which ranks by the std of the raw reward",
    holds: ({ learner }) => learner.filter.strategy === "top_ratio",
    keys: ["metric", "includeZero"].map((key) => `learner.filter.${key}`),
  },
  {
    choice: "learner.filter.strategy",
    when: "except by top_p",
    holds: ({ learner }) => learner.filter.strategy !== "top_p",
    keys: ["mode", "epsilon"].map((key) => `learner.filter.${key}`),
  },
  {
    choice: "learner.filter.mode",
    when: "by the softmax mode of top_p",
    holds: ({ learner }) => learner.filter.mode === "softmax",
    keys: ["learner.filter.epsilon"],
  },
  {
    choice: "learner.rewardNormalization.method",
    when: "by the method identity",
    holds: ({ learner }) => learner.rewardNormalization.method === "identity",
    keys: ["learner.rewardNormalization.grouping"],
  },
  {
    choice: "warmStart.enabled",
    when: "without a warm start",
    holds: ({ warmStart }) => !warmStart.enabled,
    keys: ["boards", "firstSeed", "stages", "cacheDir"].map((key) => `warmStart.${key}`),
  },
];

/** One sentence for each key that was set and will not be read; empty if every key is. */
export function unreadKeys(config: RunConfig, layers: readonly Layer[]): string[] {
  const faults = new Map<string, string>();
  for (const { choice, when, holds, keys } of table) {
    if (!holds(config)) continue;
    const chosenIn = lastToSet(layers, choice);
    for (const key of keys) {
      const setIn = lastToSet(layers, key);
      if (setIn === -1 || setIn < chosenIn || faults.has(key)) continue;
      faults.set(key, `${layers[setIn]!.source}: ${key} is never read ${when}; leave it out`);
    }
  }
  return [...faults.values()];
}

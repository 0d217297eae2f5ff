/**
 * Which choices leave which keys unread. A key that was set and that the run will never look at is a mistake of the
 * person who set it, so it is refused at the start; a lower layer's key that a higher layer's choice made moot is not.
 */
import { CRITIC_KINDS } from "../../model/learn/advantage/advantage.ts";
import { ESTIMATORS } from "./algorithms.ts";
import type { RunConfig } from "./config.ts";
import { type Layer, lastToSet } from "./layers.ts";

interface Unread {
  /** The key that decides. */
  readonly choice: string;
  /** The sentence's middle: "is never read {when}". */
  readonly when: string;
  readonly holds: (config: RunConfig) => boolean;
  readonly keys: readonly string[];
}

type Estimator = RunConfig["learner"]["estimator"];

/** Keys of the learner that some estimators read, and which. */
const ESTIMATOR_KEYS: readonly (readonly [keys: readonly string[], readers: readonly Estimator[]])[] = [
  [
    ["backbone", "coefficient", "learningRate", "warmUpUpdates", "valueClip"].map((key) => `critic.${key}`),
    CRITIC_KINDS,
  ],
  [["lambda"], CRITIC_KINDS],
  [["gamma"], [...CRITIC_KINDS, "reinforce++"]],
  [["rewardAt"], ["gae", "hybrid", "reinforce++"]],
  [["gammaTurn"], ["bi-level-gae", "gigpo"]],
  [["gigpo.turnWeight", "gigpo.normalise"], ["gigpo"]],
];

const byEstimator = ESTIMATORS.map((estimator): Unread => {
  const unread = ESTIMATOR_KEYS.filter(([, readers]) => !readers.includes(estimator));
  return {
    choice: "learner.estimator",
    when: `by the estimator ${estimator}`,
    holds: ({ learner }) => learner.estimator === estimator,
    keys: unread.flatMap(([keys]) => keys.map((key) => `learner.${key}`)),
  };
});

const table: readonly Unread[] = [
  ...byEstimator,
  {
    choice: "learner.loss",
    when: "except by the loss ppo",
    holds: ({ learner }) => learner.loss !== "ppo",
    keys: ["learner.dualClip"],
  },
  {
    choice: "learner.gradientAnalysis.everyUpdates",
    when: "while learner.gradientAnalysis.everyUpdates is 0",
    holds: ({ learner }) => learner.gradientAnalysis.everyUpdates === 0,
    keys: ["learner.gradientAnalysis.split", "learner.gradientAnalysis.groups"],
  },
  {
    choice: "learner.critic.backbone",
    when: "by a critic with a network of its own",
    holds: ({ learner }) => learner.critic.backbone === "separate",
    keys: ["learner.critic.coefficient"],
  },
  {
    choice: "learner.critic.backbone",
    when: "by a critic that shares the policy's network",
    holds: ({ learner }) => learner.critic.backbone === "shared",
    keys: ["learner.critic.learningRate", "learner.critic.warmUpUpdates"],
  },
  {
    choice: "learner.importance.level",
    when: "while learner.importance.level is none",
    holds: ({ learner }) => learner.importance.level === "none",
    keys: ["learner.importance.cap"],
  },
  {
    choice: "learner.overlong.weight",
    when: "while learner.overlong.weight is 0",
    holds: ({ learner }) => learner.overlong.weight === 0,
    keys: ["learner.overlong.margin"],
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
    holds: ({ learner, health }) => learner.kl.coefficient === 0 && !health.ladder.includes("raise-kl"),
    keys: ["place", "estimator", "control", "target", "horizon"].map((key) => `learner.kl.${key}`),
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
    when: "while learner.filter.strategy is all",
    holds: ({ learner, health }) => learner.filter.strategy === "all" && !health.ladder.includes("tighten-filter"),
    keys: ["learner.advantage.filterLossScaling"],
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
    choice: "env.mix",
    when: "by a mix, whose envs bring their own",
    holds: ({ env }) => env.mix.length > 0,
    keys: ["env.tag", "env.options", "env.actionsMax"],
  },
  {
    choice: "rollout.curriculum.by",
    when: "without a curriculum",
    holds: ({ rollout }) => rollout.curriculum.by === "none",
    keys: ["rollout.curriculum.smoothing", "rollout.curriculum.groupsMin"],
  },
  {
    choice: "prompt.context",
    when: "in the full context",
    holds: ({ prompt }) => prompt.context === "full",
    keys: ["prompt.contextTurnsMax"],
  },
  {
    choice: "model.path",
    when: "with model.path, whose config.json says it",
    holds: ({ model }) => model.path !== null,
    keys: ["width", "layers", "heads", "kvHeads", "hidden", "ropeTheta", "tiedEmbedding", "normEpsilon"].map(
      (key) => `model.${key}`,
    ),
  },
  {
    choice: "model.lora.rank",
    when: "without adapters, while model.lora.rank is 0",
    holds: ({ model }) => model.lora.rank === 0,
    keys: ["model.lora.alpha", "model.lora.targets"],
  },
  {
    choice: "warmStart.enabled",
    when: "without a warm start",
    holds: ({ warmStart }) => !warmStart.enabled,
    keys: ["boards", "firstSeed", "stages", "cacheDir"].map((key) => `warmStart.${key}`),
  },
  {
    choice: "health.ladder",
    when: "while health.ladder is empty",
    holds: ({ health }) => health.ladder.length === 0,
    keys: ["health.interveneAt", "health.settleUpdates"],
  },
  ...(
    [
      ["tighten-filter", "filterFactor"],
      ["raise-entropy", "entropyStep"],
      ["raise-kl", "klStep"],
      ["lower-step-size", "stepSizeFactor"],
    ] as const
  ).map(
    ([rung, key]): Unread => ({
      choice: "health.ladder",
      when: `without ${rung} in health.ladder`,
      holds: ({ health }) => !health.ladder.includes(rung),
      keys: [`health.${key}`],
    }),
  ),
  ...(
    [
      ["reward_variance_collapse", ["baselineUpdates", "collapseUpdates", "collapseShare"]],
      ["low_validation_success", ["validations", "validationMin"]],
      ["empty_filtered_steps", ["emptyUpdates"]],
    ] as const
  ).map(
    ([stop, keys]): Unread => ({
      choice: "health.stopEarly",
      when: `without ${stop} in health.stopEarly`,
      holds: ({ health }) => !health.stopEarly.includes(stop),
      keys: keys.map((key) => `health.stops.${key}`),
    }),
  ),
  {
    choice: "health.collapse.everyUpdates",
    when: "while health.collapse.everyUpdates is 0",
    holds: ({ health }) => health.collapse.everyUpdates === 0,
    keys: ["health.collapse.samples", "health.trap.informationShare"],
  },
  {
    choice: "health.stopEarly",
    when: "while health.stopEarly is empty",
    holds: ({ health }) => health.stopEarly.length === 0,
    keys: ["health.stops.solvedAt"],
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

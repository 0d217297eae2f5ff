/**
 * Refuses keys that were set and that the run would not read, because another key rules them out.
 * A lower layer's key is allowed where a higher layer made the choice that rules it out.
 */
import { ESTIMATORS } from "./algorithms.ts";
import type { RunConfig } from "./config.ts";
import { TREATMENT_OF_RUNG } from "./health.ts";
import { type Layer, lastToSet } from "./layers.ts";
import { JoinConfig, TransportConfig } from "./machine.ts";

interface Unread {
  /** The key that decides. */
  readonly choice: string;
  /** For the error: "is not read {when}". */
  readonly when: string;
  readonly holds: (config: RunConfig) => boolean;
  readonly keys: readonly string[];
}

type Estimator = RunConfig["learner"]["estimator"];

const OF_RANDOM_PLAY = [
  "plays",
  "playsMax",
  "playActionsMax",
  "plannedActions",
  "exploreOnce",
  "demonstrations",
  "randomTurns",
  "thought",
];
const CRITIC_KEYS = ["backbone", "learningRate", "warmUpUpdates", "valueClip"].map((key) => `critic.${key}`);
const GAE_KEYS = [...CRITIC_KEYS, "lambda", "gamma"];

/** By estimator: the keys of the learner that it reads and some other estimator does not. */
const ESTIMATOR_KEYS: Readonly<Record<Estimator, readonly string[]>> = {
  gae: [...GAE_KEYS, "rewardAt"],
  hybrid: [...GAE_KEYS, "rewardAt"],
  "bi-level-gae": [...GAE_KEYS, "gammaTurn"],
  "reinforce++": ["gamma", "rewardAt"],
  gigpo: ["gammaTurn", "gigpo.normalize"],
  grpo: [],
  "dr-grpo": [],
  rloo: [],
  "max-rl": [],
  "expert-iteration": [],
  tpo: [],
  "reinforce++-baseline": [],
};
const allEstimatorKeys = [...new Set(Object.values(ESTIMATOR_KEYS).flat())];

const laddersCovariance = ({ ladder }: RunConfig["health"]) => ladder.some((rung) => rung in TREATMENT_OF_RUNG);

const byEstimator = ESTIMATORS.map((estimator): Unread => {
  const unread = allEstimatorKeys.filter((key) => !ESTIMATOR_KEYS[estimator].includes(key));
  return {
    choice: "learner.estimator",
    when: `by the estimator ${estimator}`,
    holds: ({ learner }) => learner.estimator === estimator,
    keys: unread.map((key) => `learner.${key}`),
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
    choice: "learner.loss",
    when: "by the loss reinforce, which has no ratio",
    holds: ({ learner }) => learner.loss === "reinforce",
    keys: ["learner.clipLow", "learner.clipHigh"],
  },
  {
    choice: "learner.lossOn",
    when: "unless learner.lossOn is replies, because other masks train on the env's tokens by reward",
    holds: ({ learner }) => learner.lossOn !== "replies",
    keys: ["learner.observationLoss"],
  },
  {
    choice: "learner.gradientAnalysis.everyUpdates",
    when: "while learner.gradientAnalysis.everyUpdates is 0",
    holds: ({ learner }) => learner.gradientAnalysis.everyUpdates === 0,
    keys: ["learner.gradientAnalysis.split", "learner.gradientAnalysis.groups"],
  },
  {
    choice: "learner.critic.backbone",
    when: "by a critic that shares the policy's network",
    holds: ({ learner }) => learner.critic.backbone === "shared",
    keys: ["learner.critic.learningRate", "learner.critic.warmUpUpdates"],
  },
  {
    choice: "learner.entropyTarget",
    when: "while learner.entropyTarget is null",
    holds: ({ learner }) => learner.entropyTarget === null,
    keys: ["learner.entropyStep"],
  },
  {
    choice: "learner.estimator",
    when: "by the estimator tpo, which makes new advantages before each step",
    holds: ({ learner }) => learner.estimator === "tpo",
    keys: ["treatment", "share", "bounds", "coefficient"].map((key) => `learner.covariance.${key}`),
  },
  {
    choice: "learner.covariance.treatment",
    when: "while learner.covariance.treatment is none",
    holds: ({ learner, health }) => learner.covariance.treatment === "none" && !laddersCovariance(health),
    keys: ["learner.covariance.share"],
  },
  {
    choice: "learner.covariance.treatment",
    when: "except by the treatment clip",
    holds: ({ learner, health }) => learner.covariance.treatment !== "clip" && !health.ladder.includes("clip-cov"),
    keys: ["learner.covariance.bounds"],
  },
  {
    choice: "learner.covariance.treatment",
    when: "except by the treatment kl",
    holds: ({ learner, health }) => learner.covariance.treatment !== "kl" && !health.ladder.includes("kl-cov"),
    keys: ["learner.covariance.coefficient"],
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
    when: "in sync mode, which has no stale episodes",
    holds: ({ learner }) => learner.mode === "sync",
    keys: ["learner.stalenessMax", "sampler.weightsBetween"],
  },
  {
    choice: "learner.kl.coefficient",
    when: "while learner.kl.coefficient is 0",
    holds: ({ learner, health }) => learner.kl.coefficient === 0 && !health.ladder.includes("raise-kl"),
    keys: ["place", "estimator", "control", "target"].map((key) => `learner.kl.${key}`),
  },
  {
    choice: "learner.kl.control",
    when: "while learner.kl.control is fixed",
    holds: ({ learner }) => learner.kl.control === "fixed",
    keys: ["learner.kl.target"],
  },
  {
    choice: "learner.filter.strategy",
    when: "while learner.filter.strategy is all",
    holds: ({ learner }) => learner.filter.strategy === "all",
    keys: ["value", "order", "metric", "includeZero", "mode"].map((key) => `learner.filter.${key}`),
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
    keys: ["learner.filter.mode"],
  },
  {
    choice: "learner.rewardNormalization.method",
    when: "by the method identity",
    holds: ({ learner }) => learner.rewardNormalization.method === "identity",
    keys: ["learner.rewardNormalization.grouping"],
  },
  {
    choice: "env.mix",
    when: "with env.mix, whose envs have their own",
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
    choice: "rollout.curriculum.by",
    when: "except by difficulty",
    holds: ({ rollout }) => rollout.curriculum.by !== "difficulty",
    keys: ["rollout.curriculum.advanceAt"],
  },
  {
    choice: "actors",
    when: "unless actors is processes",
    holds: ({ actors }) => actors !== "processes",
    keys: [
      ...Object.keys(JoinConfig.shape).map((key) => `join.${key}`),
      ...Object.keys(TransportConfig.shape).map((key) => `transport.${key}`),
    ],
  },
  {
    choice: "prompt.context",
    when: "in the full context",
    holds: ({ prompt }) => prompt.context === "full",
    keys: ["prompt.contextTurnsMax"],
  },
  {
    choice: "prompt.context",
    when: "with prompt.context single_turn, where no token of the env follows a reply",
    holds: ({ prompt }) => prompt.context === "single_turn",
    keys: ["learner.observationLoss"],
  },
  {
    choice: "model.path",
    when: "with model.path, whose config.json sets it",
    holds: ({ model }) => model.path !== null,
    keys: ["width", "layers", "heads", "kvHeads", "hidden"].map((key) => `model.${key}`),
  },
  {
    choice: "model.lora.rank",
    when: "while model.lora.rank is 0",
    holds: ({ model }) => model.lora.rank === 0,
    keys: ["model.lora.alpha", "model.lora.targets"],
  },
  {
    choice: "engine.name",
    when: "except by engine tinker, and by sampler.engine vllm and sglang",
    holds: ({ engine, sampler }) => engine.name !== "tinker" && sampler.engine === "own",
    keys: ["engine.url", "engine.deadlineMs"],
  },
  {
    choice: "engine.name",
    when: "by engine tinker, whose server decides it",
    holds: ({ engine }) => engine.name === "tinker",
    keys: [
      "engine.device",
      "engine.softwareAdapter",
      "engine.threads",
      "sampler.threads",
      "sampler.precision",
      "sampler.weightsBetween",
      "model.lora.alpha",
      "model.lora.targets",
      "learner.gradClip",
    ],
  },
  {
    choice: "sampler.engine",
    when: "while a server samples",
    holds: ({ sampler }) => sampler.engine !== "own",
    keys: ["sampler.threads", "sampler.weightsBetween"],
  },
  {
    choice: "warmStart.enabled",
    when: "without a warm start",
    holds: ({ warmStart }) => !warmStart.enabled,
    keys: ["imitate", ...OF_RANDOM_PLAY, "boards", "solvedShare", "stages", "cacheDir"].map(
      (key) => `warmStart.${key}`,
    ),
  },
  {
    choice: "warmStart.imitate",
    when: "while warmStart.imitate is demonstrator",
    holds: ({ warmStart }) => warmStart.imitate === "demonstrator",
    keys: OF_RANDOM_PLAY.map((key) => `warmStart.${key}`),
  },
  {
    choice: "health.ladder",
    when: "while health.ladder is empty",
    holds: ({ health }) => health.ladder.length === 0,
    keys: ["health.interveneAt", "health.settleUpdates"],
  },
  {
    choice: "health.stopEarly",
    when: "without reward_variance_collapse in health.stopEarly",
    holds: ({ health }) => !health.stopEarly.includes("reward_variance_collapse"),
    keys: ["health.stops.baselineUpdates", "health.stops.collapseUpdates"],
  },
  {
    choice: "health.stopEarly",
    when: "without solved in health.stopEarly",
    holds: ({ health }) => !health.stopEarly.includes("solved"),
    keys: ["health.stops.solvedValidations", "health.stops.solvedShare"],
  },
  {
    choice: "health.collapse.everyUpdates",
    when: "while health.collapse.everyUpdates is 0",
    holds: ({ health }) => health.collapse.everyUpdates === 0,
    keys: ["health.collapse.samples"],
  },
];

/** One error for each key that was set and would not be read. */
export function unreadKeys(config: RunConfig, layers: readonly Layer[]): string[] {
  const faults = new Map<string, string>();
  for (const { choice, when, holds, keys } of table) {
    if (!holds(config)) continue;
    const chosenIn = lastToSet(layers, choice);
    for (const key of keys) {
      const setIn = lastToSet(layers, key);
      if (setIn === -1 || setIn < chosenIn || faults.has(key)) continue;
      faults.set(key, `${layers[setIn]!.source}: ${key} is not read ${when}; leave it out`);
    }
  }
  return [...faults.values()];
}

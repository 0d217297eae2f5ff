/**
 * Refuses a key that a layer sets and that the run would not read because of another key's value.
 * If the other key's value comes from a higher layer than the unread key, the unread key is no fault.
 */
import { ESTIMATOR_FACTS, ESTIMATORS } from "./algorithms.ts";
import type { RunConfig } from "./config.ts";
import type { Rung } from "./health.ts";
import { type At, type Layer, lastToSet, valueAt } from "./layers.ts";
import { CovarianceConfig, FilterConfig } from "./learner.ts";
import { JoinConfig, TransportConfig } from "./machine.ts";
import { WarmStartConfig } from "./model.ts";

interface Unread {
  /** The keys whose values decide whether the run reads `keys`. */
  readonly choices: readonly string[];
  /** For the error: "is not read {when}". */
  readonly when: string;
  readonly holds: (config: RunConfig) => boolean;
  readonly keys: readonly string[];
}

/** The paths of a section's keys, without the key `but`. */
const keysOf = (path: string, { shape }: { readonly shape: object }, but?: string) =>
  Object.keys(shape)
    .filter((key) => key !== but)
    .map((key) => `${path}.${key}`);

const OF_RANDOM_PLAY = [
  "plays",
  "playsMax",
  "playActionsMax",
  "plannedActions",
  "exploreOnce",
  "demonstrations",
  "randomTurns",
  "thought",
].map((key) => `warmStart.${key}`);

const keysOfEstimators = new Set(Object.values(ESTIMATOR_FACTS).flatMap(({ reads }) => reads));

interface More {
  /** Default: "while learner.mode is sync", for example. */
  readonly when?: string;
  /** Text to append to `when`. */
  readonly why?: string;
  /** A run whose `health.ladder` has one of these rungs reads `keys` too. */
  readonly rungs?: readonly Rung[];
}

const byValue =
  (word: "while" | "unless") =>
  <P extends string>(
    path: P,
    value: At<RunConfig, P>,
    keys: readonly string[],
    { when = `${word} ${path} is ${value}`, why = "", rungs = [] }: More = {},
  ): Unread => ({
    choices: rungs.length === 0 ? [path] : [path, "health.ladder"],
    when: when + why,
    holds: (config) =>
      (valueAt(config, path) === value) === (word === "while") &&
      !config.health.ladder.some((rung) => rungs.includes(rung)),
    keys,
  });
const whileIs = byValue("while");
const unlessIs = byValue("unless");

const byEstimator = ESTIMATORS.map((estimator) => {
  const unread = keysOfEstimators.difference(new Set<string>(ESTIMATOR_FACTS[estimator].reads));
  const keys = [...unread].map((key) => `learner.${key}`);
  return whileIs("learner.estimator", estimator, keys, { when: `by the estimator ${estimator}` });
});

const table: readonly Unread[] = [
  ...byEstimator,
  unlessIs("learner.loss", "ppo", ["learner.dualClip"]),
  whileIs("learner.loss", "reinforce", ["learner.clipLow", "learner.clipHigh"], {
    when: "by the loss reinforce, which has no ratio",
  }),
  unlessIs("learner.lossOn", "replies", ["learner.observationLoss"], {
    why: ", because every other value already puts the policy loss on tokens that the policy did not write",
  }),
  whileIs("learner.gradientAnalysis.everyUpdates", 0, [
    "learner.gradientAnalysis.split",
    "learner.gradientAnalysis.groups",
  ]),
  whileIs("learner.critic.backbone", "shared", ["learner.critic.learningRate", "learner.critic.warmUpUpdates"]),
  whileIs("learner.entropyTarget", null, ["learner.entropyStep"]),
  whileIs("learner.estimator", "tpo", keysOf("learner.covariance", CovarianceConfig), {
    when: "by the estimator tpo, which makes new advantages before each step",
  }),
  whileIs("learner.covariance.treatment", "none", ["learner.covariance.share"], { rungs: ["clip-cov", "kl-cov"] }),
  unlessIs("learner.covariance.treatment", "clip", ["learner.covariance.bounds"], { rungs: ["clip-cov"] }),
  unlessIs("learner.covariance.treatment", "kl", ["learner.covariance.coefficient"], { rungs: ["kl-cov"] }),
  whileIs("learner.importance.level", "none", ["learner.importance.cap"]),
  whileIs("learner.overlong.weight", 0, ["learner.overlong.margin"]),
  whileIs("learner.mode", "sync", ["learner.stalenessMax", "sampler.weightsBetween"]),
  whileIs("learner.kl.coefficient", 0, ["learner.kl.place", "learner.kl.estimator"], { rungs: ["raise-kl"] }),
  whileIs("learner.kl.coefficient", 0, ["learner.kl.control", "learner.kl.target"], {
    why: ", because the control only multiplies the coefficient",
  }),
  whileIs("learner.kl.control", "fixed", ["learner.kl.target"]),
  whileIs("learner.filter.strategy", "all", keysOf("learner.filter", FilterConfig, "strategy")),
  whileIs("learner.filter.strategy", "all", ["learner.advantage.filterLossScaling"], { rungs: ["tighten-filter"] }),
  whileIs("learner.filter.strategy", "top_ratio", ["learner.filter.metric", "learner.filter.includeZero"], {
    why: ", which ranks by the std of the raw reward",
  }),
  unlessIs("learner.filter.strategy", "top_p", ["learner.filter.mode"]),
  whileIs("learner.rewardNormalization.method", "identity", ["learner.rewardNormalization.grouping"]),
  {
    choices: ["env.mix"],
    when: "with env.mix, whose envs have their own value",
    holds: ({ env }) => env.mix.length > 0,
    keys: ["env.tag", "env.options", "env.actionsMax"],
  },
  whileIs("rollout.curriculum.by", "none", ["rollout.curriculum.smoothing", "rollout.curriculum.groupsMin"]),
  unlessIs("rollout.curriculum.by", "difficulty", ["rollout.curriculum.advanceAt"]),
  unlessIs("actors", "processes", [...keysOf("join", JoinConfig), ...keysOf("transport", TransportConfig)]),
  whileIs("prompt.context", "full", ["prompt.contextTurnsMax"]),
  whileIs("prompt.context", "single_turn", ["learner.observationLoss"], {
    when: "with prompt.context single_turn, where no token of the env follows a reply",
  }),
  unlessIs("model.path", null, ["model.width", "model.layers", "model.heads", "model.kvHeads", "model.hidden"], {
    when: "with model.path, whose config.json sets it",
  }),
  whileIs("model.lora.rank", 0, ["model.lora.alpha", "model.lora.targets"]),
  {
    choices: ["engine.name", "sampler.engine"],
    when: "unless a server trains (engine tinker) or samples (sampler.engine vllm or sglang)",
    holds: ({ engine, sampler }) => engine.name !== "tinker" && sampler.engine === "own",
    keys: ["engine.url", "engine.deadlineMs"],
  },
  whileIs(
    "engine.name",
    "tinker",
    [
      "engine.device",
      "engine.softwareAdapter",
      "engine.tf32",
      "engine.bfloat16Products",
      "engine.threads",
      "sampler.threads",
      "sampler.precision",
      "sampler.weightsBetween",
      "model.lora.alpha",
      "model.lora.targets",
      "learner.gradClip",
      "learner.microTokensMax",
    ],
    { when: "by engine tinker, whose server has no such setting" },
  ),
  whileIs("engine.name", "eager", ["engine.threads", "sampler.threads"], {
    when: "by engine eager, which computes in one thread",
  }),
  unlessIs("sampler.engine", "own", ["sampler.threads", "sampler.weightsBetween"], {
    when: "while sampler.engine is vllm or sglang",
  }),
  whileIs("warmStart.enabled", false, keysOf("warmStart", WarmStartConfig, "enabled")),
  whileIs("warmStart.imitate", "demonstrator", OF_RANDOM_PLAY),
  {
    choices: ["health.ladder"],
    when: "while health.ladder is empty",
    holds: ({ health }) => health.ladder.length === 0,
    keys: ["health.interveneAt", "health.settleUpdates"],
  },
  {
    choices: ["health.stopEarly"],
    when: "without reward_variance_collapse in health.stopEarly",
    holds: ({ health }) => !health.stopEarly.includes("reward_variance_collapse"),
    keys: ["health.stops.baselineUpdates", "health.stops.collapseUpdates"],
  },
  {
    choices: ["health.stopEarly"],
    when: "without solved in health.stopEarly",
    holds: ({ health }) => !health.stopEarly.includes("solved"),
    keys: ["health.stops.solvedValidations", "health.stops.solvedShare"],
  },
  whileIs("health.collapse.everyUpdates", 0, ["health.collapse.samples"]),
];

/** One error for each key that a layer sets and the run would not read. */
export function unreadKeys(config: RunConfig, layers: readonly Layer[]): string[] {
  const faults = new Map<string, string>();
  for (const { choices, when, holds, keys } of table) {
    if (!holds(config)) continue;
    const chosenIn = Math.max(...choices.map((choice) => lastToSet(layers, choice)));
    for (const key of keys) {
      const setIn = lastToSet(layers, key);
      if (setIn === -1 || setIn < chosenIn || faults.has(key)) continue;
      faults.set(key, `${layers[setIn]!.source}: ${key} is not read ${when}; leave it out`);
    }
  }
  return [...faults.values()];
}

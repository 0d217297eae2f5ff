/** Engine tinker: the defaults that this engine changes, and the values that it requires of settings. */
import { NEEDS_CRITIC } from "../../model/learn/advantage/advantage.ts";
import type { RunConfig } from "./config.ts";
import { type At, valueAt } from "./layers.ts";

/** Settings that engine tinker sets. The loss of the server skyrl-tx clips ratios at these bounds and has no entropy bonus. */
export const TINKER_SETTINGS = {
  model: { lora: { rank: 32 } },
  learner: { clipLow: 0.2, clipHigh: 0.2, dualClip: null, entropyCoefficient: 0 },
} as const;

interface Limit {
  readonly path: string;
  readonly holds: (config: RunConfig) => boolean;
  readonly text: string;
}

const is = <P extends string>(path: P, value: At<RunConfig, P>, text: string): Limit => ({
  path,
  holds: (config) => valueAt(config, path) === value,
  text,
});

const LIMITS: readonly Limit[] = [
  {
    path: "engine.url",
    holds: ({ engine }) => engine.url !== null,
    text: "engine tinker needs the address of its server; set engine.url, such as http://127.0.0.1:8801",
  },
  {
    path: "model.path",
    holds: ({ model }) => model.path !== null || model.pretrainedOnly,
    text: "engine tinker trains the server's model, whose tokenizer and chat template Bunraku reads here; set --model to a folder with these files",
  },
  {
    path: "model.lora.rank",
    holds: ({ model }) => model.lora.rank > 0,
    text: "engine tinker trains adapters; set a rank above 0",
  },
  is("model.checkpoint", null, "engine tinker cannot start from a policy of another run; leave it out"),
  is("learner.loss", "ppo", "the server's losses are cross_entropy, importance_sampling and ppo; set it to ppo"),
  {
    path: "learner.clipLow",
    holds: ({ learner }) => learner.clipLow === 0.2 && learner.clipHigh === 0.2,
    text: "the server's ppo clips ratios at .8 and 1.2; set learner.clipLow and learner.clipHigh to .2",
  },
  is("learner.dualClip", null, "the server's ppo has no dual clip; set it to null"),
  is("learner.entropyCoefficient", 0, "the server's losses have no entropy bonus; set it to 0"),
  {
    path: "health.ladder",
    holds: ({ health }) => !health.ladder.includes("raise-entropy"),
    text: "the server's losses have no entropy bonus; leave raise-entropy out",
  },
  is("learner.entropyTarget", null, "the server's losses have no entropy bonus; leave it out"),
  is("learner.observationLoss", 0, "the server's losses have no term for the env's tokens; set it to 0"),
  {
    path: "learner.covariance.treatment",
    holds: ({ learner, health }) => learner.covariance.treatment !== "kl" && !health.ladder.includes("kl-cov"),
    text: "the server's losses have no term for the log-ratio; set it to none or clip, and leave kl-cov out of health.ladder",
  },
  {
    path: "learner.kl.place",
    holds: ({ learner: { kl }, health }) =>
      kl.place === "reward" || (kl.coefficient === 0 && !health.ladder.includes("raise-kl")),
    text: "the server's losses have no KL term; set learner.kl.place to reward",
  },
  {
    path: "learner.estimator",
    holds: ({ learner }) => !NEEDS_CRITIC.has(learner.estimator),
    text: "the server trains no critic; take an estimator without one, such as grpo, rloo or dr-grpo",
  },
  is("learner.optimizer", "adamw", "the server's optimizer is AdamW; set it to adamw"),
  is("learner.gradientAnalysis.everyUpdates", 0, "the server returns no gradients; set it to 0"),
  is("rollout.temperature", 1, "the server computes log-probabilities at temperature 1; set it to 1"),
];

/** @returns a fault for each setting whose value engine tinker refuses; none with another engine */
export function tinkerRules(config: RunConfig): readonly Pick<Limit, "path" | "text">[] {
  return config.engine.name === "tinker" ? LIMITS.filter(({ holds }) => !holds(config)) : [];
}

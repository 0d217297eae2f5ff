/** Engine tinker: the defaults that this engine changes, and the values that it requires of settings. */
import { NEEDS_CRITIC } from "../../model/learn/advantage/advantage.ts";
import type { RunConfig } from "./config.ts";

/** Settings that engine tinker sets. The loss of the server skyrl-tx clips ratios at these bounds and has no entropy bonus. */
export const TINKER_SETTINGS = {
  model: { lora: { rank: 32 } },
  learner: { clipLow: 0.2, clipHigh: 0.2, dualClip: null, entropyCoefficient: 0 },
} as const;

/** Settings whose values engine tinker refuses; none with another engine. The lines are as in rules.ts. */
export function* tinkerRules({ engine, model, learner, health, rollout }: RunConfig): Generator<string> {
  if (engine.name !== "tinker") return;
  const noEntropyBonus = "the server's losses have no entropy bonus";
  if (engine.url === null)
    yield "engine.url: engine tinker needs the address of its server; set engine.url, such as http://127.0.0.1:8801";
  if (model.path === null && !model.pretrainedOnly)
    yield "model.path: engine tinker trains the server's model, whose tokenizer and chat template Bunraku reads here; set --model to a folder with these files";
  if (model.lora.rank === 0) yield "model.lora.rank: engine tinker trains adapters; set a rank above 0";
  if (model.checkpoint !== null)
    yield "model.checkpoint: engine tinker cannot start from a policy of another run; leave it out";
  if (learner.loss !== "ppo")
    yield "learner.loss: the server's losses are cross_entropy, importance_sampling and ppo; set it to ppo";
  if (learner.clipLow !== 0.2 || learner.clipHigh !== 0.2)
    yield "learner.clipLow: the server's ppo clips ratios at .8 and 1.2; set learner.clipLow and learner.clipHigh to .2";
  if (learner.dualClip !== null) yield "learner.dualClip: the server's ppo has no dual clip; set it to null";
  if (learner.entropyCoefficient !== 0) yield `learner.entropyCoefficient: ${noEntropyBonus}; set it to 0`;
  if (health.ladder.includes("raise-entropy")) yield `health.ladder: ${noEntropyBonus}; leave raise-entropy out`;
  if (learner.entropyTarget !== null) yield `learner.entropyTarget: ${noEntropyBonus}; leave it out`;
  if (learner.observationLoss !== 0)
    yield "learner.observationLoss: the server's losses have no term for the env's tokens; set it to 0";
  if (learner.covariance.treatment === "kl" || health.ladder.includes("kl-cov"))
    yield "learner.covariance.treatment: the server's losses have no term for the log-ratio; set it to none or clip, and leave kl-cov out of health.ladder";
  if (learner.kl.place !== "reward" && (learner.kl.coefficient > 0 || health.ladder.includes("raise-kl")))
    yield "learner.kl.place: the server's losses have no KL term; set learner.kl.place to reward";
  if (NEEDS_CRITIC.has(learner.estimator))
    yield "learner.estimator: the server trains no critic; take an estimator without one, such as grpo, rloo or dr-grpo";
  if (learner.optimizer !== "adamw") yield "learner.optimizer: the server's optimizer is AdamW; set it to adamw";
  if (learner.gradientAnalysis.everyUpdates !== 0)
    yield "learner.gradientAnalysis.everyUpdates: the server returns no gradients; set it to 0";
  if (rollout.temperature !== 1)
    yield "rollout.temperature: the server computes log-probabilities at temperature 1; set it to 1";
}

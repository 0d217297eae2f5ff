/** The config of a run as the settings of one update. */
import type { Estimator } from "../model/advantage.ts";
import type { UpdateSettings } from "../model/update.ts";
import { filterRule } from "./config/learning.ts";
import type { RunConfig } from "./config.ts";
import { limitsOf } from "./warm-start.ts";

/** @param update  from 0, for schedules */
export function updateSettings({ learner, rollout }: RunConfig, update: number, klCoefficient: number): UpdateSettings {
  const { algorithm, gamma, lambda, groupStd, clipLow, clipHigh, dualClip, betas, weightDecay, gradClip, kl } = learner;
  const estimator: Estimator =
    algorithm === "ppo" ? { kind: "gae", gamma, lambda, rewardAt: "turns" } : { kind: groupStd ? "grpo" : "dr-grpo" };
  const optimizer = {
    learningRate: learner.learningRate * decay(learner, update),
    ...{ beta1: betas[0], beta2: betas[1], epsilon: 1e-8, weightDecay, clipNorm: gradClip },
  };
  return {
    filter: filterRule(learner.filter),
    normalisation: learner.rewardNormalization,
    estimator,
    policy: {
      rule: { kind: "ppo", clipLow, clipHigh, dualClip },
      entropyCoefficient: learner.entropyCoefficient,
      kl: klCoefficient === 0 ? null : { estimator: kl.estimator, coefficient: klCoefficient },
    },
    aggregation: learner.aggregation,
    epochs: learner.epochs,
    minibatch: learner.minibatch ?? rollout.groups * rollout.groupSize,
    limits: limitsOf(learner),
    optimizer,
    critic:
      algorithm === "ppo"
        ? { optimizer: { ...optimizer, learningRate: learner.criticLearningRate }, valueClip: learner.valueClip }
        : null,
    temperature: rollout.temperature,
    trainPolicy: algorithm !== "ppo" || update >= learner.criticWarmUpUpdates,
  };
}

/** Linear to a tenth at the last update. */
function decay({ decay, updates }: RunConfig["learner"], update: number): number {
  return decay === "none" ? 1 : 1 - 0.9 * (update / Math.max(1, updates - 1));
}

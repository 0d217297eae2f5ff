/** How the policy learns from what was played. Shapes and defaults only; which algorithm reads which is config/unread.ts. */
import { z } from "zod";
import type { Aggregation } from "../../model/learn/aggregation.ts";
import { FILTER_METRICS, type FilterRule } from "../../model/learn/filter/filter.ts";
import { KL_ESTIMATORS } from "../../model/learn/kl.ts";
import { ALGORITHM_NAMES, ESTIMATORS, LOSSES } from "./algorithms.ts";

const KlConfig = z.strictObject({
  coefficient: z.number().nonnegative().default(0).describe("Weight of the divergence from the start; 0 is off"),
  place: z.enum(["loss", "reward"]).default("loss").describe("A term of the loss, or taken off each token's reward"),
  estimator: z
    .enum(KL_ESTIMATORS)
    .default("k3")
    .describe("How it is estimated per token (docs/algorithms.md); k1 is for the reward, as a loss it has no gradient"),
  control: z.enum(["fixed", "adaptive"]).default("fixed").describe("adaptive steers the coefficient to the target"),
  target: z.number().positive().default(0.1).describe("Divergence the adaptive controller aims at, in nats per token"),
  horizon: z.number().positive().default(10_000).describe("Trajectories over which the adaptive controller acts"),
});

const FilterConfig = z.strictObject({
  strategy: z
    .enum(["all", "top_ratio", "top_p", "top_k", "top_k_abs", "min_p"] satisfies FilterRule["strategy"][])
    .default("top_ratio")
    .describe("Which groups are trained on: top_ratio of the raw reward's std is StarPO-S"),
  value: z.number().positive().default(0.25).describe("Share of groups kept; p of top_p and min_p; count of top_k_abs"),
  order: z.enum(["largest", "smallest"]).default("largest").describe("Which end of the ranking is kept"),
  metric: z.enum(FILTER_METRICS).default("reward_variance").describe("What the others than top_ratio rank by"),
  includeZero: z.boolean().default(true).describe("Let groups that score 0 take part"),
  mode: z.enum(["linear", "softmax"]).default("linear").describe("top_p: shares of the sum, or of the softmax"),
  epsilon: z.number().nonnegative().default(0.01).describe("top_p, linear: taken off the sum to be reached"),
});

const RewardNormalizationConfig = z.strictObject({
  grouping: z.enum(["state", "inductive", "batch"]).default("state").describe("Over a group, an env tag, or all"),
  method: z.enum(["identity", "mean", "mean_std", "asym_clip"]).default("identity").describe("asym_clip: into [-1, 3]"),
});

const OverlongConfig = z.strictObject({
  weight: z.number().nonnegative().default(0).describe("Reward lost by a reply of full length; 0 is off"),
  margin: z
    .number()
    .positive()
    .max(1)
    .default(0.2)
    .describe("Last share of rollout.replyTokensMax, over which the loss grows from 0"),
});

const AdvantageConfig = z.strictObject({
  softReweight: z
    .boolean()
    .default(false)
    .describe("Scale by the group's std of raw reward against the widest group's"),
  filterLossScaling: z
    .enum(["none", "linear", "sqrt"])
    .default("none")
    .describe("Scale by the share of groups that the filter kept, or by its root"),
  lengthWeighting: z.boolean().default(false).describe("Divide by the episode's written tokens over their mean"),
  zero: z.boolean().default(false).describe("An ablation: no advantage at all, so that only entropy and KL are learnt"),
});

const ImportanceConfig = z.strictObject({
  level: z
    .enum(["none", "token", "sequence"])
    .default("none")
    .describe("Weigh by how likely the learner makes what a sampler wrote, per token or per episode"),
  cap: z.number().min(1).default(2).describe("Largest such weight"),
});

const GigpoConfig = z.strictObject({
  turnWeight: z.number().nonnegative().default(1).describe("Weight of comparing turns that began in the same state"),
  normalise: z.enum(["mean_std", "mean"]).default("mean_std").describe("Divide by the std, or only subtract the mean"),
});

const CriticConfig = z.strictObject({
  backbone: z
    .enum(["separate", "shared"])
    .default("separate")
    .describe("A network of its own, or one more output of the policy's"),
  coefficient: z.number().positive().default(0.5).describe("Weight of its loss, where it shares the policy's network"),
  learningRate: z.number().positive().default(1e-3).describe("Its step size"),
  warmUpUpdates: z.int().nonnegative().default(0).describe("First updates, which train it alone"),
  valueClip: z.number().positive().default(0.5).describe("How far a value may move per update, in reward units"),
});

const GradientAnalysisConfig = z.strictObject({
  everyUpdates: z.int().nonnegative().default(0).describe("Measure what pulls at the policy so often; 0 is never"),
  split: z
    .enum(["quantile", "fixed"])
    .default("quantile")
    .describe("Six buckets of groups by std of reward: equally many in each, or from 0, 1, 2, 3, 4 and 5 on"),
  groups: z
    .int()
    .nonnegative()
    .default(0)
    .describe("Groups played for it alone, which nobody learns from; 0: those of the update"),
});

const AGGREGATIONS = [
  "token-mean",
  "seq-mean-token-sum",
  "seq-mean-token-mean",
  "seq-mean-token-sum-norm",
] as const satisfies Aggregation[];

export const LearnerConfig = z.strictObject({
  algorithm: z
    .enum(ALGORITHM_NAMES)
    .default("grpo")
    .describe("A name for estimator, loss and what belongs to them (docs/algorithms.md); keys set beside it win"),
  estimator: z.enum(ESTIMATORS).default("grpo").describe("How rewards become advantages"),
  loss: z
    .enum(LOSSES)
    .default("ppo")
    .describe("Clipped ratio of each token, of the whole episode, or weighted REINFORCE"),
  mode: z.enum(["sync", "async"]).default("sync").describe("sync: play, then learn; equal seeds give equal runs"),
  stalenessMax: z.int().nonnegative().default(0).describe("Updates that an episode may lag behind the policy"),
  updates: z.int().positive().default(200).describe("Reinforcement updates of the run"),
  minutes: z.number().positive().nullable().default(null).describe("Stop after so much reinforcement; null: no limit"),
  learningRate: z.number().positive().default(3e-4).describe("Step size of AdamW"),
  decay: z.enum(["none", "linear"]).default("none").describe("linear: to a tenth of the step size at the last update"),
  betas: z
    .tuple([z.number().min(0).lt(1), z.number().min(0).lt(1)])
    .default([0.9, 0.99])
    .describe("Decay of AdamW's two moments"),
  weightDecay: z.number().nonnegative().default(0).describe("Of AdamW, decoupled"),
  gradClip: z.number().positive().default(1).describe("Largest global norm of a gradient"),
  brokenUpdatesMax: z
    .int()
    .positive()
    .default(5)
    .describe(
      "Updates in a row whose gradient is not finite; then the run ends, as its policy would never change again",
    ),
  entropyCoefficient: z.number().nonnegative().default(1e-3).describe("Weight of the entropy bonus"),
  clipLow: z.number().positive().max(1).default(0.2).describe("A ratio below 1 - clipLow gains nothing; 1 is no bound"),
  clipHigh: z.number().positive().default(0.28).describe("A ratio above 1 + clipHigh gains nothing"),
  dualClip: z.number().gt(1).nullable().default(3).describe("Largest ratio against a negative advantage; null: none"),
  kl: KlConfig.prefault({}),
  filter: FilterConfig.prefault({}),
  resampleRoundsMax: z
    .int()
    .nonnegative()
    .default(0)
    .describe("Times that groups whose episodes all earned the same are replaced by groups on new boards; 0 is off"),
  rewardNormalization: RewardNormalizationConfig.prefault({}),
  overlong: OverlongConfig.prefault({}),
  advantage: AdvantageConfig.prefault({}),
  importance: ImportanceConfig.prefault({}),
  aggregation: z.enum(AGGREGATIONS).default("token-mean").describe("How token losses become one, over the minibatch"),
  epochs: z.int().positive().default(1).describe("Passes over the kept trajectories of an update"),
  minibatch: z
    .int()
    .positive()
    .nullable()
    .default(null)
    .describe("Trajectories per optimizer step; null: all that were kept"),
  microTokensMax: z
    .int()
    .positive()
    .default(512)
    .describe("Padded tokens per gradient computation: memory and speed, not maths"),
  gamma: z.number().min(0).max(1).default(1).describe("Discount per token"),
  lambda: z.number().min(0).max(1).default(1).describe("GAE's trade of bias and variance"),
  gammaTurn: z.number().min(0).max(1).default(0.95).describe("Discount per turn"),
  rewardAt: z.enum(["turns", "end"]).default("turns").describe("Each turn's reward on its end, or all on the last"),
  gigpo: GigpoConfig.prefault({}),
  critic: CriticConfig.prefault({}),
  gradientAnalysis: GradientAnalysisConfig.prefault({}),
});
export type LearnerConfig = z.infer<typeof LearnerConfig>;

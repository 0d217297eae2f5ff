/** Section `learner`: how the policy learns from episodes. Types and defaults only; algorithms.ts says which estimator reads which key. */
import { z } from "zod";
import type { Aggregation } from "../../model/learn/aggregation.ts";
import { FILTER_METRICS, type FilterRule } from "../../model/learn/filter.ts";
import { KL_ESTIMATORS } from "../../model/learn/kl.ts";
import { ALGORITHM_NAMES, ESTIMATORS, LOSSES, OPTIMIZERS } from "./algorithms.ts";
import {
  flag,
  nonnegativeInt,
  nonnegativeNumber,
  oneOf,
  positiveInt,
  positiveNumber,
  positiveShare,
  share,
} from "./kinds.ts";

const KlConfig = z.strictObject({
  coefficient: nonnegativeNumber(0).describe(
    "Weight of the KL divergence from the policy at the start of reinforcement (with adapters: from the base model); 0: off",
  ),
  place: oneOf(["loss", "reward"], "loss").describe(
    "Where the divergence counts. loss: as a term of the loss; reward: the run subtracts it from each token's reward",
  ),
  estimator: oneOf(KL_ESTIMATORS, "k3").describe(
    "Estimate per token (docs/algorithms.md). k1 needs learner.kl.place reward: in the loss the expected gradient of k1 is zero, so k1 adds only noise",
  ),
  control: oneOf(["fixed", "adaptive"], "fixed").describe(
    "adaptive: changes the coefficient so that the divergence approaches the target",
  ),
  target: positiveNumber(0.1).describe("adaptive: the target of the divergence, in nats per token"),
});

export const FilterConfig = z.strictObject({
  strategy: oneOf(
    ["all", "top_ratio", "top_p", "top_k", "top_k_abs", "min_p"] satisfies FilterRule["strategy"][],
    "top_ratio",
  ).describe(
    "Which groups the learner trains on. all: every group. The other strategies keep the best groups by a score, and learner.filter.value says how many. top_ratio (StarPO-S): a share of the groups; the score is the std of the raw reward. top_k: a share of the groups. top_k_abs: a number of groups. top_p: groups until their scores reach a share of the sum. min_p: groups whose score is near the best score",
  ),
  value: positiveNumber(0.25).describe(
    "top_ratio, top_k: the filter keeps this share of the groups, rounded down, at least one group. (Groups that were replaced or are stale do not count.) top_k_abs: number of groups to keep. top_p: share of the sum of all scores (learner.filter.mode). min_p: the filter keeps groups with score >= value x (largest score); with order smallest, score <= (smallest score) / value",
  ),
  order: oneOf(["largest", "smallest"], "largest").describe(
    "Which groups the filter keeps: those with the largest or with the smallest scores",
  ),
  metric: oneOf(FILTER_METRICS, "reward_variance").describe(
    "Score of a group, for strategies other than top_ratio. reward_variance, entropy_variance: std over the group's episodes; reward, entropy, length: mean; reward_sum: sum",
  ),
  includeZero: flag(true).describe("false: the filter first drops groups with a score of 0"),
  mode: oneOf(["linear", "softmax"], "linear").describe(
    "top_p: the filter keeps the best groups until a sum reaches a limit. linear: the filter adds scores, best first, until they reach learner.filter.value x (sum of all scores) - 0.01. If a score of 0 or less comes first, it keeps no group. softmax: the filter turns the scores into shares by a softmax, and adds shares, best first, until they reach learner.filter.value",
  ),
});

const RewardNormalizationConfig = z.strictObject({
  grouping: oneOf(["state", "inductive", "batch"], "state").describe(
    "Which rewards are normalized together. state: the rewards of a group; inductive: the rewards of an env; batch: all rewards of the update",
  ),
  method: oneOf(["identity", "mean", "mean_std", "asym_clip"], "identity").describe(
    "identity: no change; mean: subtracts the mean; mean_std: also divides by the std; asym_clip: as mean_std, then clips to [-1, 3]. With rollout.groupSize 1 and grouping state, no method changes the rewards",
  ),
});

const OverlongConfig = z.strictObject({
  weight: nonnegativeNumber(0).describe(
    "Penalty for long replies: the run subtracts this number from the reward of a reply of rollout.replyTokensMax tokens; 0: off",
  ),
  margin: positiveShare(0.2).describe(
    "A share m of rollout.replyTokensMax. A reply of up to (1 - m) x rollout.replyTokensMax tokens has no penalty. For longer replies the penalty grows linearly, up to learner.overlong.weight at rollout.replyTokensMax tokens",
  ),
});

const AdvantageConfig = z.strictObject({
  softReweight: flag(false).describe(
    "true: multiplies advantages by the group's std of raw reward, divided by the largest std of all groups",
  ),
  filterLossScaling: oneOf(["none", "linear", "sqrt"], "none").describe(
    "Multiplies advantages by the share of groups that the filter kept (linear), or by the square root of this share (sqrt)",
  ),
  lengthWeighting: flag(false).describe(
    "true: divides an episode's advantages by n / m; n is the number of tokens that the policy wrote in the episode, and m is the mean of n over the episodes",
  ),
  zero: flag(false).describe(
    "true, for an ablation: all advantages are 0, so that only entropy and KL have a gradient",
  ),
});

const ImportanceConfig = z.strictObject({
  level: oneOf(["none", "token", "sequence"], "none").describe(
    "Importance weight of the loss: the learner's probability divided by the sampler's probability. token: of each token; sequence: of each episode; none: no weight",
  ),
  cap: z.number().min(1).default(2).describe("Largest importance weight"),
});

export const CovarianceConfig = z.strictObject({
  treatment: oneOf(["none", "clip", "kl"], "none").describe(
    "Treatment of tokens whose log-probability and advantage vary together (docs/algorithms.md). clip (Clip-Cov): the advantage becomes 0; kl (KL-Cov): a penalty for leaving the old policy",
  ),
  share: positiveShare(2e-4).describe(
    "Share of the written tokens that get the treatment, at least one token. With clip these tokens are drawn from the tokens whose covariance is between the bounds, so they may be fewer",
  ),
  bounds: z
    .tuple([z.number(), z.number()])
    .default([1, 5])
    .describe("clip: bounds of the covariance of treated tokens"),
  coefficient: positiveNumber(1).describe("kl: weight of the absolute log-ratio of a treated token"),
});

const GigpoConfig = z.strictObject({
  normalize: oneOf(["mean_std", "mean"], "mean_std").describe(
    "How gigpo compares the returns of episodes and of turns. mean: subtracts the mean; mean_std: also divides by the std",
  ),
});

const CriticConfig = z.strictObject({
  backbone: oneOf(["separate", "shared"], "separate").describe(
    "separate: the critic has its own network; shared: the critic is an output of the policy's network",
  ),
  learningRate: positiveNumber(1e-3).describe("Step size of a separate critic"),
  warmUpUpdates: nonnegativeInt(0).describe("Updates at the start that train only the critic"),
  valueClip: positiveNumber(0.5).describe("PPO's clip range of the value loss, in reward units"),
});

const GradientAnalysisConfig = z.strictObject({
  everyUpdates: nonnegativeInt(0).describe(
    "N: the run measures gradient norms (metrics gradient/…) in the updates 1, 1 + N, 1 + 2 N, …; 0: never",
  ),
  split: oneOf(["quantile", "fixed"], "quantile").describe(
    "How the analysis divides the groups into six buckets by std of reward. quantile: the buckets have equal sizes; fixed: the lower bounds of the buckets are 0, 1, 2, 3, 4 and 5",
  ),
  groups: nonnegativeInt(0).describe(
    "Number of groups that the run plays only for the analysis; 0: the analysis uses the update's groups",
  ),
});

export const LearnerConfig = z.strictObject({
  algorithm: oneOf(ALGORITHM_NAMES, "grpo").describe(
    "Sets estimator, loss and further keys (docs/algorithms.md). A key that you set by a flag, or in the same file as learner.algorithm, overrides the algorithm's value",
  ),
  estimator: oneOf(ESTIMATORS, "grpo").describe("Computes advantages from rewards"),
  loss: oneOf(LOSSES, "ppo").describe(
    "ppo: clipped ratio per token; gspo: clipped ratio per context (by default a context is an episode); cispo: REINFORCE weighted by the clipped ratio; reinforce: no ratio",
  ),
  mode: oneOf(["sync", "async"], "sync").describe(
    "sync: the run plays, then learns; equal seeds give equal runs. async: samplers play while the learner learns",
  ),
  stalenessMax: nonnegativeInt(0).describe(
    "async: maximum number of updates between the policy that played an episode and the policy in training; the learner drops older episodes",
  ),
  updates: positiveInt(200).describe("Number of updates of the run"),
  minutes: positiveNumber(null).describe("Ends the run after this many minutes of reinforcement; null: no limit"),
  optimizer: oneOf(OPTIMIZERS, "adamw").describe(
    "muon: Muon's orthogonal steps for the hidden matrices, and AdamW for the other weights. The warm start uses the same optimizer",
  ),
  learningRate: positiveNumber(3e-4).describe("Step size; muon scales its steps to the size of AdamW's"),
  decay: oneOf(["none", "linear"], "none").describe(
    "linear: the policy's step size falls linearly, to a tenth of learner.learningRate at the last update; none: the step size is constant",
  ),
  betas: z
    .tuple([z.number().min(0).lt(1), z.number().min(0).lt(1)])
    .default([0.9, 0.99])
    .describe("Decay rates of AdamW's two moments"),
  weightDecay: nonnegativeNumber(0).describe("AdamW's decoupled weight decay"),
  gradClip: positiveNumber(1).describe(
    "Largest global norm of a gradient; the learner scales a larger gradient down to this norm",
  ),
  entropyCoefficient: nonnegativeNumber(1e-3).describe("Weight of the entropy bonus"),
  entropyTarget: positiveNumber(null).describe(
    "Target of the entropy in nats per token. After an update with a lower entropy, entropyCoefficient rises; after an update with an equal or higher entropy, it falls, but not below 0. An update without a measured entropy does not change it. null: entropyCoefficient is constant",
  ),
  entropyStep: positiveNumber(5e-3).describe("Step by which entropyCoefficient rises or falls"),
  observationLoss: nonnegativeNumber(0).describe(
    "Weight of the cross-entropy of the env's tokens after a reply (ECHO, docs/algorithms.md); 0: off",
  ),
  clipLow: positiveShare(0.2).describe(
    "With a negative advantage, a ratio below 1 - clipLow gives no gradient; cispo: 1 - clipLow is the smallest weight. If clipLow is 1, the ratio has no lower bound",
  ),
  clipHigh: positiveNumber(0.28).describe(
    "With a positive advantage, a ratio above 1 + clipHigh gives no gradient; cispo: 1 + clipHigh is the largest weight",
  ),
  dualClip: z
    .number()
    .gt(1)
    .nullable()
    .default(3)
    .describe("ppo: with a negative advantage, a ratio above this value gives no gradient; null: no limit"),
  kl: KlConfig.prefault({}),
  filter: FilterConfig.prefault({}),
  resampleRoundsMax: nonnegativeInt(0).describe(
    "Dynamic sampling: maximum number of further rounds of play in an update. A round plays a new group on a new board in place of each group whose episodes all earned the same reward or could not be played. 0: off",
  ),
  rewardNormalization: RewardNormalizationConfig.prefault({}),
  overlong: OverlongConfig.prefault({}),
  advantage: AdvantageConfig.prefault({}),
  importance: ImportanceConfig.prefault({}),
  covariance: CovarianceConfig.prefault({}),
  lossOn: oneOf(["replies", "assistant-turns", "everything"], "replies").describe(
    "Tokens that enter the loss. replies: the tokens that the policy sampled; assistant-turns: also the role headers, as in RAGEN with its response mask; everything: all tokens after the system message, as in RAGEN without this mask",
  ),
  aggregation: oneOf(
    ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"] satisfies Aggregation[],
    "token-mean",
  ).describe("How the token losses of a minibatch become one loss (docs/algorithms.md)"),
  epochs: positiveInt(1).describe("Passes over the trajectories of an update"),
  minibatch: positiveInt(null).describe(
    "Trajectories per optimizer step; null: the number of trajectories that the update trains on, divided by rollout.onlineK",
  ),
  microTokensMax: positiveInt(null).describe(
    "Maximum number of tokens in one gradient computation, padding included. If memory runs out, lower this value; it changes only the speed and the last digits of results. null: 512, or 4096 if the learner computes on a GPU",
  ),
  gamma: share(1).describe("Discount per token (gae, bi-level-gae, hybrid, reinforce++)"),
  lambda: share(1).describe("GAE's lambda: a lower value gives advantages with less variance and more bias"),
  gammaTurn: share(0.95).describe("Discount per turn (bi-level-gae, gigpo)"),
  rewardAt: oneOf(["turns", "end"], "turns").describe(
    "Which tokens carry rewards. turns: the last token of a turn carries the turn's reward; end: the episode's last token carries the sum of the rewards",
  ),
  gigpo: GigpoConfig.prefault({}),
  critic: CriticConfig.prefault({}),
  gradientAnalysis: GradientAnalysisConfig.prefault({}),
});

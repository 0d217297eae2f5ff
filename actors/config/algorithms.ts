/**
 * Algorithms by name. An algorithm is the estimator, the loss and the other learner settings of one paper.
 * compose.ts adds these settings as a layer right below the layer that chose the name, so keys of the upper layer override these settings.
 */
import type { Tree } from "./layers.ts";

const CRITIC_KEYS = ["backbone", "learningRate", "warmUpUpdates", "valueClip"].map((key) => `critic.${key}`);
const GAE_KEYS = [...CRITIC_KEYS, "lambda", "gamma"];

/**
 * All estimators. compares: whether the estimator compares the episodes of a group. reads: the keys below `learner` that this estimator reads,
 * without the keys that every estimator reads.
 */
export const ESTIMATOR_FACTS = {
  grpo: { compares: true, reads: [] },
  "dr-grpo": { compares: true, reads: [] },
  rloo: { compares: true, reads: [] },
  "max-rl": { compares: true, reads: [] },
  "expert-iteration": { compares: false, reads: [] },
  tpo: { compares: true, reads: [] },
  "reinforce++": { compares: false, reads: ["gamma", "rewardAt"] },
  "reinforce++-baseline": { compares: true, reads: [] },
  gae: { compares: false, reads: [...GAE_KEYS, "rewardAt"] },
  "bi-level-gae": { compares: false, reads: [...GAE_KEYS, "gammaTurn"] },
  gigpo: { compares: true, reads: ["gammaTurn", "gigpo.normalize"] },
  hybrid: { compares: true, reads: [...GAE_KEYS, "rewardAt"] },
} satisfies Record<string, { readonly compares: boolean; readonly reads: readonly string[] }>;
type EstimatorName = keyof typeof ESTIMATOR_FACTS;
export const ESTIMATORS = Object.keys(ESTIMATOR_FACTS) as EstimatorName[];
export const LOSSES = ["ppo", "gspo", "cispo", "reinforce"] as const;
export const OPTIMIZERS = ["adamw", "muon"] as const;

interface Composition extends Tree {
  readonly estimator: EstimatorName;
  readonly loss: (typeof LOSSES)[number];
}

export const ALGORITHMS = {
  grpo: { estimator: "grpo", loss: "ppo" },
  "dr-grpo": { estimator: "dr-grpo", loss: "ppo", aggregation: "seq-mean-token-sum-norm" },
  rloo: { estimator: "rloo", loss: "ppo" },
  // As in the paper, the loss sums over the whole episode. StarPO-S's filter would drop the hard boards, to which max-rl gives more weight.
  "max-rl": {
    estimator: "max-rl",
    loss: "ppo",
    aggregation: "seq-mean-token-sum-norm",
    filter: { strategy: "all" },
  },
  // The filter drops no group, so the policy also imitates its plays of boards that it always solves.
  "expert-iteration": { estimator: "expert-iteration", loss: "reinforce", filter: { strategy: "all" } },
  // The filter keeps a group whose rewards are all equal: after the first step such a group holds the policy near the policy that played it.
  // An entropy bonus would outweigh tpo's gradient, which is small in a group whose episodes differ much in probability.
  tpo: {
    estimator: "tpo",
    loss: "reinforce",
    aggregation: "seq-mean-token-sum-norm",
    filter: { strategy: "all" },
    entropyCoefficient: 0,
  },
  "reinforce++": { estimator: "reinforce++", loss: "ppo" },
  "reinforce++-baseline": { estimator: "reinforce++-baseline", loss: "ppo" },
  ppo: { estimator: "gae", loss: "ppo" },
  "bi-level-ppo": { estimator: "bi-level-gae", loss: "ppo" },
  gigpo: { estimator: "gigpo", loss: "ppo" },
  hybrid: { estimator: "hybrid", loss: "ppo" },
  // The paper's clip-higher, dynamic sampling (resampleRoundsMax), token-level loss and overlong shaping; no KL term.
  dapo: {
    estimator: "grpo",
    loss: "ppo",
    clipLow: 0.2,
    clipHigh: 0.28,
    aggregation: "token-mean",
    resampleRoundsMax: 3,
    filter: { strategy: "all" },
    overlong: { weight: 1 },
    kl: { coefficient: 0 },
  },
  // The clip bounds are so wide that no ratio reaches them. Only the KL term of the treated tokens keeps the policy near the old policy.
  "kl-cov": {
    estimator: "grpo",
    loss: "ppo",
    clipLow: 1,
    clipHigh: 1e9,
    dualClip: null,
    covariance: { treatment: "kl" },
  },
  "clip-cov": { estimator: "grpo", loss: "ppo", clipLow: 0.2, clipHigh: 0.2, covariance: { treatment: "clip" } },
  gspo: { estimator: "grpo", loss: "gspo", clipLow: 3e-4, clipHigh: 4e-4, aggregation: "seq-mean-token-mean" },
  // clipLow 1 means that the ratio has no lower bound.
  cispo: { estimator: "grpo", loss: "cispo", clipLow: 1, clipHigh: 0.28, aggregation: "token-mean" },
} as const satisfies Record<string, Composition>;

export const ALGORITHM_NAMES = Object.keys(ALGORITHMS) as (keyof typeof ALGORITHMS)[];

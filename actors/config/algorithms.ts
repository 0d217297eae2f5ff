/**
 * Algorithms by name: the estimator, the loss and the other settings of the learner that a paper's recipe consists of.
 * compose.ts adds them right below the layer that chose the name, so keys set beside the name win.
 */
import type { Tree } from "./layers.ts";

export const ESTIMATORS = [
  "grpo",
  "dr-grpo",
  "rloo",
  "max-rl",
  "expert-iteration",
  "tpo",
  "reinforce++",
  "reinforce++-baseline",
  "gae",
  "bi-level-gae",
  "gigpo",
  "hybrid",
] as const;
export const LOSSES = ["ppo", "gspo", "cispo", "reinforce"] as const;
export const OPTIMIZERS = ["adamw", "muon"] as const;

interface Composition extends Tree {
  readonly estimator: (typeof ESTIMATORS)[number];
  readonly loss: (typeof LOSSES)[number];
}

export const ALGORITHMS = {
  grpo: { estimator: "grpo", loss: "ppo" },
  "dr-grpo": { estimator: "dr-grpo", loss: "ppo", aggregation: "seq-mean-token-sum-norm" },
  rloo: { estimator: "rloo", loss: "ppo" },
  // The loss sums over the whole episode, as in the paper. The StarPO-S filter would drop the hard boards that max-rl gives more weight.
  "max-rl": {
    estimator: "max-rl",
    loss: "ppo",
    aggregation: "seq-mean-token-sum-norm",
    filter: { strategy: "all" },
  },
  // Solved boards are imitated too, so no group is left out.
  "expert-iteration": { estimator: "expert-iteration", loss: "reinforce", filter: { strategy: "all" } },
  // Groups without a spread of reward stay: after the first step they hold the policy near the policy that played them. An entropy bonus
  // outweighs q - p, which is small where a group's episodes differ much in probability.
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
  // A higher upper clip, dynamic sampling, token-mean, overlong shaping, and no KL.
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
  // The loss has a ratio without bounds: the KL term of the treated tokens is what holds the policy.
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
  // clipLow 1: no lower bound.
  cispo: { estimator: "grpo", loss: "cispo", clipLow: 1, clipHigh: 0.28, aggregation: "token-mean" },
} as const satisfies Record<string, Composition>;

export const ALGORITHM_NAMES = Object.keys(ALGORITHMS) as (keyof typeof ALGORITHMS)[];

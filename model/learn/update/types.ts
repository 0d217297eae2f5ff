/** What one update takes and what it returns. Types only. */
import type { Trajectory } from "../../trajectory.ts";
import type { Estimator } from "../advantage/advantage.ts";
import type { Scaling } from "../advantage/scaling.ts";
import type { Aggregation, ImportanceRule } from "../aggregation.ts";
import type { BatchLimits } from "../batch.ts";
import type { CovarianceRule } from "../covariance.ts";
import type { FilterRule } from "../filter.ts";
import type { KlTerm } from "../kl.ts";
import type { LossOn } from "../loss-mask.ts";
import type { Network, TrainedPolicy } from "../network.ts";
import type { PolicySettings } from "../objective.ts";
import type { OptimizerSettings } from "../optimizer.ts";
import type { Normalization } from "../reward.ts";

export interface UpdateSettings {
  readonly filter: FilterRule;
  /** True: before the filter, drop groups whose raw rewards are all equal (DAPO). The caller has already played other groups in their place. */
  readonly dropConstant: boolean;
  readonly normalization: Normalization;
  /** Penalty for long replies; null: none. */
  readonly overlong: OverlongRule | null;
  readonly estimator: Estimator;
  /** Factors on the advantages. */
  readonly scaling: Scaling;
  /** Truncated importance sampling; null: none. */
  readonly importance: ImportanceRule | null;
  readonly policy: PolicySettings;
  /** Weight of the cross-entropy of the env's tokens (`withObservations`, update.ts); 0: none. */
  readonly observationLoss: number;
  /** Rule for the tokens that would lower entropy most (covariance.ts); null: none. */
  readonly covariance: CovarianceRule | null;
  /** KL penalty on each token's reward; null: none. */
  readonly klInReward: KlTerm | null;
  readonly lossOn: LossOn;
  readonly aggregation: Aggregation;
  /** Maximum number of tokens of an episode's replies. The divisor of seq-mean-token-sum-norm is this number times the number of episodes. */
  readonly writtenTokensMax: number;
  /** Passes over the kept trajectories. */
  readonly epochs: number;
  /** A number: trajectories per optimizer step. `parts`: the maximum number of steps in an epoch. */
  readonly minibatch: number | { readonly parts: number };
  readonly limits: BatchLimits;
  readonly optimizer: OptimizerSettings;
  /** null for estimators without a critic. */
  readonly critic: CriticSettings | null;
  /** Sampling temperature of the trajectories. */
  readonly temperature: number;
  /** False: train the critic only. */
  readonly trainPolicy: boolean;
}

export interface OverlongRule {
  /** Reward that a reply of `tokensMax` tokens loses. */
  readonly weight: number;
  readonly tokensMax: number;
  /** In tokens. The penalty begins at `tokensMax - margin` and grows linearly up to `tokensMax`. */
  readonly margin: number;
}

export type CriticSettings = {
  readonly valueClip: number;
} & (
  | { readonly backbone: "separate"; readonly optimizer: OptimizerSettings }
  /** The policy's own network has the value head; one step takes the sum of both losses. */
  | { readonly backbone: "shared"; readonly coefficient: number }
);

/** A played episode as an update sees it. */
export interface TrainingEpisode {
  readonly trajectory: Trajectory;
  /** An integer that identifies the episode's group in the update. */
  readonly group: number;
  /** Name of the env in the run. */
  readonly tag: string;
  /** (turns) a name for the state in which each turn began; equal names mean equal states. For gigpo. */
  readonly anchors: readonly string[];
  /** For max-rl and expert-iteration. */
  readonly success: boolean;
}

export interface UpdateNetworks<Policy extends TrainedPolicy = Network> {
  readonly policy: Policy;
  /** For estimators with a critic; the policy itself if critic and policy share a backbone. */
  readonly critic: Network | null;
  /** The reference policy of a KL term. */
  readonly reference: Pick<Network, "score"> | null;
}

/** What an update did. Metrics are means over the update (`meansOf`, update.ts) unless their name says otherwise. */
export interface UpdateResult {
  /** Why the update, or a minibatch of it, took no step; otherwise null. */
  readonly skipped: string | null;
  /** Mean advantage of each episode; null if the filter dropped it. */
  readonly advantages: readonly (number | null)[];
  /** (written tokens) advantages of each episode; null if all are equal or the filter dropped the episode. Absent if the filter kept no group. */
  readonly tokenAdvantages?: readonly (Float32Array<ArrayBuffer> | null)[];
  readonly steps: number;
  readonly metrics: Readonly<Record<string, number>>;
}

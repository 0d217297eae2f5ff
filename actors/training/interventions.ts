/**
 * Interventions against the Echo Trap. The ladder is a list of interventions; each is a rung. This file computes how the rungs change the
 * settings of an update. All functions are pure. health.ts decides when a run takes a rung; training.ts does the rungs `roll-back` and `stop`.
 */
import type { FilterRule } from "../../model/learn/filter.ts";
import type { UpdateSettings } from "../../model/learn/update/types.ts";
import { type Rung, TREATMENT_OF_RUNG } from "../config/health.ts";

/** The combined effect of all rungs that the run has taken. Every checkpoint holds it. */
export interface Control {
  /** The filter keeps this share of the groups that the configured filter would keep. */
  readonly filter: number;
  /** `intervened` adds this number to the entropy coefficient. */
  readonly entropy: number;
  /** update-step.ts adds this number to the KL coefficient. */
  readonly kl: number;
  /** Replaces the configured treatment of covariance. If absent, the configured treatment applies. */
  readonly covariance?: "clip" | "kl";
  /** Multiplies the policy's step size. */
  readonly stepSize: number;
  /** True if the policy makes only one gradient step on each rollout. */
  readonly fresh: boolean;
  /** Multiplies the number of actions that a training turn allows. */
  readonly actions: number;
  /** Number of roll-backs so far. It is part of episode names, so rollouts after a roll-back get new coins. */
  readonly round: number;
}

export const CONTROL_START: Control = { filter: 1, entropy: 0, kl: 0, stepSize: 1, fresh: false, actions: 1, round: 0 };

/** How much each rung changes its setting. */
const FILTER_FACTOR = 0.5;
const ENTROPY_STEP = 0.003;
const KL_STEP = 0.01;
const STEP_SIZE_FACTOR = 0.5;
const ACTIONS_FACTOR = 0.5;

/** The control after a rung, and a text that says what changed. */
export function controlAfter(rung: Rung, control: Control): { control: Control; text: string } {
  const changed = (change: Partial<Control>, text: string) => ({ control: { ...control, ...change }, text });
  switch (rung) {
    case "tighten-filter": {
      const filter = control.filter * FILTER_FACTOR;
      return changed({ filter }, `the filter keeps ${show(filter)} of the groups that the configured filter keeps`);
    }
    case "raise-entropy": {
      const entropy = control.entropy + ENTROPY_STEP;
      return changed({ entropy }, `the entropy coefficient is raised by ${show(entropy)} in total`);
    }
    case "raise-kl": {
      const kl = control.kl + KL_STEP;
      return changed({ kl }, `the KL coefficient is raised by ${show(kl)} in total`);
    }
    case "clip-cov":
    case "kl-cov": {
      const covariance = TREATMENT_OF_RUNG[rung];
      return changed({ covariance }, `the learner's treatment of covariance is ${covariance}`);
    }
    case "lower-step-size": {
      const stepSize = control.stepSize * STEP_SIZE_FACTOR;
      return changed({ stepSize }, `the step size is ${show(stepSize)} times the configured step size`);
    }
    case "fresh-rollouts":
      return changed({ fresh: true }, "every gradient step has rollouts of its own");
    case "fewer-actions": {
      const actions = control.actions * ACTIONS_FACTOR;
      return changed({ actions }, `a training turn allows ${show(actions)} of its configured actions, at least one`);
    }
    case "roll-back":
      return changed({}, "back to the last healthy checkpoint");
    case "stop":
      return changed({}, "the run ends here");
    default:
      return rung satisfies never;
  }
}

/** The settings of an update with the effect of all rungs that the run has taken. The KL coefficient of `settings` already includes `control.kl`. */
export function intervened(settings: UpdateSettings, control: Control, groups: number): UpdateSettings {
  const { policy, optimizer } = settings;
  return {
    ...settings,
    filter: control.filter === 1 ? settings.filter : tightened(settings.filter, control.filter, groups),
    ...(control.fresh ? { epochs: 1, minibatch: { parts: 1 } } : {}),
    policy: { ...policy, entropyCoefficient: policy.entropyCoefficient + control.entropy },
    optimizer: { ...optimizer, learningRate: optimizer.learningRate * control.stepSize },
  };
}

/** A filter that keeps about `factor` of the groups that `filter` keeps, and at least one group. `all` becomes the filter of StarPO-S. */
function tightened(filter: FilterRule, factor: number, groups: number): FilterRule {
  // Linear top_p with a value near 0 would keep no group. With 1.5 / groups the kept groups must reach 1.5 times the mean score. A smaller
  // configured share stays: a larger one would keep more groups.
  const atLeastOne = (share: number) => Math.min(share, Math.max(share * factor, 1.5 / groups));
  switch (filter.strategy) {
    case "all":
      return { strategy: "top_ratio", value: factor, order: "largest" };
    case "top_ratio":
      return { ...filter, value: filter.value * factor };
    case "top_p":
    case "top_k":
      return { ...filter, value: atLeastOne(filter.value) };
    case "top_k_abs":
      return { ...filter, value: Math.max(1, Math.floor(filter.value * factor)) };
    case "min_p":
      // min_p keeps groups whose score is at least this share of the best score. A higher share keeps fewer groups.
      return { ...filter, value: 1 - (1 - filter.value) * factor };
    default:
      return filter satisfies never;
  }
}

const show = (value: number) => Number(value.toPrecision(3)).toString();

/**
 * Interventions against the Echo Trap: the rungs of the ladder that change how a run learns, and their effect on the settings of an
 * update. Pure. health.ts decides when a rung is taken; training.ts rolls back and stops.
 */
import type { FilterRule } from "../../model/learn/filter/filter.ts";
import type { UpdateSettings } from "../../model/learn/update/types.ts";
import { type Rung, TREATMENT_OF_RUNG } from "../config/health.ts";

/** The combined effect of all rungs taken. Saved with every checkpoint. */
export interface Control {
  /** Of the groups that the configured filter keeps, the share that is still kept. */
  readonly filter: number;
  /** Added to the coefficients of entropy and KL. */
  readonly entropy: number;
  readonly kl: number;
  /** Replaces the configured treatment of covariance; absent: the configured one stays. */
  readonly covariance?: "clip" | "kl";
  /** Multiplies the policy's step size. */
  readonly stepSize: number;
  /** True: one gradient step per rollout. */
  readonly fresh: boolean;
  /** Multiplies the allowed actions of a training turn. */
  readonly actions: number;
  /** How often the run was rolled back. It is part of episode names, so the next rollouts get new coins. */
  readonly round: number;
}

export const CONTROL_START: Control = { filter: 1, entropy: 0, kl: 0, stepSize: 1, fresh: false, actions: 1, round: 0 };

/** How much each rung changes. */
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
      return changed({ stepSize }, `the step size is ${show(stepSize)} of the configured one`);
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

/** The settings of an update after all rungs taken. The KL coefficient of `settings` already includes `control.kl`. */
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

/** A filter that keeps about `factor` of the groups that `filter` keeps, and at least one. `all` becomes the filter of StarPO-S. */
function tightened(filter: FilterRule, factor: number, groups: number): FilterRule {
  // Filters round a share of the groups down: 1.5 / groups keeps one group, but 1 / groups may keep none.
  const atLeastOne = (share: number) => Math.min(1, Math.max(share * factor, 1.5 / groups));
  switch (filter.strategy) {
    case "all":
      return byStd(factor, "largest");
    case "top_ratio":
      return byStd(filter.ratio * factor, filter.type === "std" ? "largest" : "smallest");
    case "top_p":
    case "top_k":
      return { ...filter, value: atLeastOne(filter.value) };
    case "top_k_abs":
      return { ...filter, value: Math.max(1, Math.floor(filter.value * factor)) };
    case "min_p":
      // min_p keeps groups that score at least this share of the best score: a higher share keeps fewer.
      return { ...filter, value: 1 - (1 - filter.value) * factor };
    default:
      return filter satisfies never;
  }
}

/** As top_ratio, but keeps at least one group: if groups are replaced or stale, the filter gets fewer groups than an update plays. */
const byStd = (value: number, order: "largest" | "smallest"): FilterRule => ({
  strategy: "top_k",
  value,
  metric: "reward_variance",
  order,
  includeZero: true,
});

const show = (value: number) => Number(value.toPrecision(3)).toString();

/**
 * When to give up a run: RAGEN-2's three early stops, behind a success gate. A pure reducer over recorded numbers; knows
 * no clock, no run and no log.
 *
 * - A solved task is not a collapsed one: with success at or above `solvedAt`, constant groups and empty selections are
 *   what success looks like, and their counts start anew.
 * - The state is plain data: it may be saved, and a recorded run gives the same answer offline.
 */
import { mean } from "../statistics.ts";

export interface StopRule {
  /** Updates whose mean in-group std is the baseline, and how many in a row must lie below `collapseShare` of it. */
  readonly baselineUpdates: number;
  readonly collapseUpdates: number;
  readonly collapseShare: number;
  /** Validations in a row with success below `validationMin` in any env. */
  readonly validations: number;
  readonly validationMin: number;
  /** Updates in a row whose filter kept nothing. */
  readonly emptyUpdates: number;
  readonly solvedAt: number;
}

/** RAGEN-2's numbers; the gate is ours. */
export const STOP_RULE: StopRule = {
  baselineUpdates: 10,
  collapseUpdates: 10,
  collapseShare: 0.1,
  validations: 5,
  validationMin: 0.01,
  emptyUpdates: 5,
  solvedAt: 0.9,
};

export interface StopState {
  /** In-group stds of the first updates, until there are `baselineUpdates`. */
  readonly baseline: readonly number[];
  /** How many in a row, up to now. */
  readonly collapsed: number;
  readonly failed: number;
  readonly empty: number;
}

export const STOP_START: StopState = { baseline: [], collapsed: 0, failed: 0, empty: 0 };

/** What one update measured. */
export interface StopPoint {
  /** Share of played episodes solved. */
  readonly success: number;
  /** Mean in-group std of the raw reward, before filtering. */
  readonly rewardStd: number;
  readonly groupsKept: number;
  /** Lowest validation success over envs; left out where the update was not validated. */
  readonly validation?: number;
}

export interface Stop {
  readonly kind: "reward_variance_collapse" | "low_validation_success" | "empty_filtered_steps";
  /** For people: what was measured, against what. */
  readonly reason: string;
}

/**
 * Source: RAGEN-2, https://arxiv.org/abs/2604.06268, and its code's thresholds.
 *
 * @returns the state after the point, and a stop if one is due.
 */
export function watchForStop(
  state: StopState,
  point: StopPoint,
  rule = STOP_RULE,
): { state: StopState; stop: Stop | null } {
  const solved = point.success >= rule.solvedAt;
  const measuring = state.baseline.length < rule.baselineUpdates;
  const baseline = measuring ? [...state.baseline, point.rewardStd] : state.baseline;
  const low = !measuring && point.rewardStd < rule.collapseShare * mean(baseline);
  const { validation } = point;
  const next: StopState = {
    baseline,
    collapsed: low && !solved ? state.collapsed + 1 : 0,
    failed: validation === undefined ? state.failed : validation < rule.validationMin ? state.failed + 1 : 0,
    empty: point.groupsKept === 0 && !solved ? state.empty + 1 : 0,
  };
  return { state: next, stop: due(next, rule) };
}

function due({ baseline, collapsed, failed, empty }: StopState, rule: StopRule): Stop | null {
  const percent = (share: number) => `${Number((100 * share).toPrecision(3))} %`;
  if (collapsed >= rule.collapseUpdates) {
    const reason = `in-group reward std was below ${percent(rule.collapseShare)} of its start (${mean(baseline).toPrecision(3)}) for ${collapsed} updates`;
    return { kind: "reward_variance_collapse", reason };
  }
  if (failed >= rule.validations) {
    const reason = `validation success was below ${percent(rule.validationMin)} in ${failed} validations in a row`;
    return { kind: "low_validation_success", reason };
  }
  if (empty >= rule.emptyUpdates) {
    return { kind: "empty_filtered_steps", reason: `the filter kept no group in ${empty} updates in a row` };
  }
  return null;
}

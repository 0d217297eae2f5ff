/**
 * RAGEN-2's three early stops, and Bunraku's own stop. Bunraku's own stop ends a run whose task is solved, because further training
 * cannot improve the policy, but may make it worse. This file is a pure reducer over recorded numbers; it knows no clock, no run and no log.
 *
 * - While success is at least `solvedAt`, a small spread of reward and a filter that keeps nothing are expected. Both counts then start
 *   again at 0.
 * - The state is plain data, so a checkpoint can hold the state. A recorded run gives the same stops offline.
 */
import { mean } from "../statistics.ts";

/** RAGEN-2's numbers; `solvedAt` and the stop of a solved task are Bunraku's own. */
export const STOP_RULE = {
  /** The baseline is the mean in-group std of these first updates. */
  baselineUpdates: 10,
  /** Stop after this many updates in a row whose std is below `collapseShare` of the baseline. */
  collapseUpdates: 10,
  collapseShare: 0.1,
  /** Stop after this many validations in a row with success below `validationMin` in any env. */
  validations: 5,
  validationMin: 0.01,
  /** Stop after this many updates in a row whose filter kept nothing. */
  emptyUpdates: 5,
  solvedAt: 0.9,
  /** Stop after this many validations in a row with success of at least `solvedShare` in every env. */
  solvedValidations: 2,
  solvedShare: 1,
} as const;

export type StopRule = Readonly<Record<keyof typeof STOP_RULE, number>>;

export interface StopState {
  /** In-group stds of the first `baselineUpdates` updates. */
  readonly baseline: readonly number[];
  /** Current streaks: `collapsed` and `empty` in updates, `failed` and `solved` in validations. */
  readonly collapsed: number;
  readonly failed: number;
  readonly empty: number;
  /** Absent in a checkpoint of version 0.1. */
  readonly solved?: number;
}

export const STOP_START: StopState = { baseline: [], collapsed: 0, failed: 0, empty: 0, solved: 0 };

export interface StopPoint {
  /** Share of the played episodes that succeeded. */
  readonly success: number;
  /** Mean in-group std of the raw reward, before filtering; absent where no group has two episodes. */
  readonly rewardStd?: number;
  /** Share of the groups that the filter kept. Absent if the filter's choice is not known. */
  readonly groupsKept?: number;
}

export const RAGEN_STOPS = ["reward_variance_collapse", "low_validation_success", "empty_filtered_steps"] as const;
export const STOPS = ["solved", ...RAGEN_STOPS] as const;

export interface Stop {
  readonly kind: (typeof STOPS)[number];
  /** A sentence with the measurement and its limit. */
  readonly reason: string;
}

export interface Watched {
  readonly state: StopState;
  /** The first wanted stop, if there is one. After a stop the counts begin again, because a user may prolong the run. */
  readonly stop: Stop | null;
}

/**
 * The state and the stop after one more update.
 *
 * Source: RAGEN-2, https://arxiv.org/abs/2604.06268; the thresholds of RAGEN's three stops are those of RAGEN-2's code.
 *
 * @param wanted  the kinds of stop to return; the state counts towards all kinds
 */
export function watchForStop(
  state: StopState,
  point: StopPoint,
  rule: StopRule = STOP_RULE,
  wanted: readonly Stop["kind"][] = STOPS,
): Watched {
  const solved = point.success >= rule.solvedAt;
  const { rewardStd } = point;
  const measuring = state.baseline.length < rule.baselineUpdates;
  const baseline = measuring && rewardStd !== undefined ? [...state.baseline, rewardStd] : state.baseline;
  const low = !measuring && rewardStd !== undefined && rewardStd < rule.collapseShare * mean(baseline);
  const collapsed = low && !solved ? state.collapsed + 1 : 0;
  const empty = point.groupsKept === 0 && !solved ? state.empty + 1 : 0;
  return watched({ ...state, baseline, collapsed, empty }, rule, wanted);
}

/** The state and the stop after one more validation. @param validation  the lowest success of all envs */
export function watchValidation(
  state: StopState,
  validation: number,
  rule: StopRule = STOP_RULE,
  wanted: readonly Stop["kind"][] = STOPS,
): Watched {
  const failed = validation < rule.validationMin ? state.failed + 1 : 0;
  const solved = validation >= rule.solvedShare ? (state.solved ?? 0) + 1 : 0;
  return watched({ ...state, failed, solved }, rule, wanted);
}

function watched(next: StopState, rule: StopRule, wanted: readonly Stop["kind"][]): Watched {
  const stop = stopsOf(next, rule).find(({ kind }) => wanted.includes(kind)) ?? null;
  return { state: stop === null ? next : { ...STOP_START, baseline: next.baseline }, stop };
}

function* stopsOf({ baseline, collapsed, failed, empty, solved = 0 }: StopState, rule: StopRule): Generator<Stop> {
  const percent = (share: number) => `${Number((100 * share).toPrecision(3))} %`;
  if (solved >= rule.solvedValidations) {
    const reason = `validation success was at least ${percent(rule.solvedShare)} in ${solved} validations in a row`;
    yield { kind: "solved", reason };
  }
  if (collapsed >= rule.collapseUpdates) {
    const reason = `in-group reward std was below ${percent(rule.collapseShare)} of its start (${mean(baseline).toPrecision(3)}) for ${collapsed} updates`;
    yield { kind: "reward_variance_collapse", reason };
  }
  if (failed >= rule.validations) {
    const reason = `validation success was below ${percent(rule.validationMin)} in ${failed} validations in a row`;
    yield { kind: "low_validation_success", reason };
  }
  if (empty >= rule.emptyUpdates)
    yield { kind: "empty_filtered_steps", reason: `the filter kept no group in ${empty} updates in a row` };
}

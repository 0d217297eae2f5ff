/**
 * A run's health: each update's numbers go through the Echo Trap detector and RAGEN-2's early stops. After a bad verdict the run takes
 * the next rung of `health.ladder`, the list of interventions. The functions are pure and read only recorded numbers, so
 * `bun run diagnose` gives the same answers as the live run.
 *
 * - Every checkpoint holds the state as plain data, so a resumed run takes the same rungs at the same updates.
 * - The run takes each rung once, in order. Each rung has `settleUpdates` updates to take effect before the run takes the next one.
 * - The detector compares an update with the start of the run. After a roll-back the detector starts again.
 */
import {
  STOP_RULE,
  STOP_START,
  type Stop,
  type StopState,
  watchForStop,
  watchValidation,
} from "../../model/health/early-stop.ts";
import {
  echoTrap,
  TRAP_RULE,
  TRAP_START,
  type TrapPoint,
  type TrapState,
  type Verdict,
} from "../../model/health/echo-trap/echo-trap.ts";
import type { HealthConfig, Rung } from "../config/health.ts";
import type { MetricName, MetricValues } from "../metrics/metrics.ts";
import { CONTROL_START, type Control, controlAfter } from "./interventions.ts";

export interface HealthState {
  readonly trap: TrapState;
  readonly stops: StopState;
  readonly verdict: Verdict;
  /** Number of rungs that the run has taken. */
  readonly taken: number;
  /** Number of updates before the run may take the next rung. */
  readonly settling: number;
  readonly control: Control;
  /** The update of the newest checkpoint to which a roll-back may go (`Saving` of training.ts decides); null if there is none. */
  readonly healthyCheckpoint: number | null;
}

export const HEALTH_START: HealthState = {
  trap: TRAP_START,
  stops: STOP_START,
  verdict: "healthy",
  taken: 0,
  settling: 0,
  control: CONTROL_START,
  healthyCheckpoint: null,
};

export const isWell = (verdict: Verdict): boolean => verdict === "healthy" || verdict === "solved";

/** True if the detector sees no sign of a collapse, not even a sign too brief for a bad verdict. A roll-back may go to such a policy. */
export const hasNoSign = ({ verdict, trap }: HealthState): boolean =>
  isWell(verdict) && Object.keys(trap.streaks).length === 0;

/** The metric `health/verdict` is an index into this array. */
const VERDICTS = ["healthy", "solved", "warning", "collapsed"] as const satisfies Verdict[];

export interface Measured extends TrapPoint {
  /** Share of the groups that the filter kept. */
  readonly groupsKept?: number;
}

/** What the run must do. `text` says what changes, and why. */
export type Due =
  | { readonly kind: "rung"; readonly rung: Rung; readonly text: string }
  | { readonly kind: "early-stop"; readonly text: string };

/** A line for the log and the page. */
export interface HealthNotice {
  /** True for good news, false for a warning. */
  readonly good: boolean;
  readonly kind: "health" | "intervention" | "early-stop";
  readonly text: string;
}

export interface Checkup {
  readonly state: HealthState;
  /** What the run must do; null if the run must do nothing. */
  readonly due: Due | null;
  readonly metrics: MetricValues;
  readonly notices: readonly HealthNotice[];
}

/** Judges one more update. */
export function checkup(before: HealthState, measured: Measured, config: HealthConfig): Checkup {
  const { state: trap, verdict, reasons: signs } = echoTrap(before.trap, measured, { ...TRAP_RULE, ...config.trap });
  const { success } = measured;
  const rule = { ...STOP_RULE, ...config.stops };
  // The early stops need the update's success.
  const { state: stops, stop } =
    success === undefined
      ? { state: before.stops, stop: null }
      : watchForStop(before.stops, { ...measured, success }, rule, config.stopEarly);
  const settling = Math.max(0, before.settling - 1);
  const reasons = signs.map(({ text }) => text).join("; ");
  const notices: HealthNotice[] = [];
  if (verdict !== before.verdict) {
    const text = reasons === "" ? `health: ${verdict}` : `${verdict}: ${reasons}`;
    notices.push({ good: isWell(verdict), kind: "health", text });
  }
  const watched: HealthState = { ...before, trap, stops, verdict, settling };
  const { state, due } = stop !== null ? { state: watched, due: dueOf(stop) } : climb(watched, reasons, config);
  return answer(state, due, stop, notices);
}

/** Judges one more validation. Only the early stops use validations. @param validation  lowest success over envs */
export function checkupOfValidation(before: HealthState, validation: number, config: HealthConfig): Checkup {
  const rule = { ...STOP_RULE, ...config.stops };
  const { state: stops, stop } = watchValidation(before.stops, validation, rule, config.stopEarly);
  const state = { ...before, stops };
  return stop === null ? { state, due: null, metrics: {}, notices: [] } : answer(state, dueOf(stop), stop, []);
}

const dueOf = ({ kind, reason }: Stop): Due => ({ kind: "early-stop", text: `${kind}: ${reason}` });

/** @param stop  the early stop that is due, if there is one @param notices  what to say besides what is due */
function answer(state: HealthState, due: Due | null, stop: Stop | null, notices: readonly HealthNotice[]): Checkup {
  const metrics = healthMetrics(state, due);
  if (due === null) return { state, due, metrics, notices };
  const kind = due.kind === "rung" ? "intervention" : due.kind;
  return { state, due, metrics, notices: [...notices, { good: stop?.kind === "solved", kind, text: due.text }] };
}

/** Takes the next rung if the verdict is bad, and if the last rung has had its `settleUpdates` updates. */
function climb(state: HealthState, reasons: string, config: HealthConfig): { state: HealthState; due: Due | null } {
  const { verdict, settling } = state;
  const bad = verdict === "collapsed" || (verdict === "warning" && config.interveneAt === "warning");
  const rung = bad && settling === 0 ? config.ladder[state.taken] : undefined;
  if (rung === undefined) return { state, due: null };
  const { control, text } = controlAfter(rung, state.control);
  const taken = state.taken + 1;
  const why = `${rung} (rung ${taken} of ${config.ladder.length}): ${text}; ${verdict}: ${reasons}`;
  return {
    state: { ...state, control, taken, settling: config.settleUpdates },
    due: { kind: "rung", rung, text: why },
  };
}

const healthMetrics = ({ verdict, taken, control }: HealthState, due: Due | null): MetricValues => ({
  "health/verdict": VERDICTS.indexOf(verdict),
  "health/interventions": taken,
  "health/rollbacks": control.round,
  ...(due !== null && endsRun(due) ? { "health/stopped_early": 1 } : {}),
});

export const endsRun = (due: Due): boolean => due.kind === "early-stop" || due.rung === "stop";

/** Health after a roll-back: the detectors start again, but the run takes no rung a second time. */
export const healthAfterRollBack = (saved: HealthState, now: HealthState): HealthState => ({
  ...HEALTH_START,
  taken: now.taken,
  settling: now.settling,
  control: { ...now.control, round: now.control.round + 1 },
  healthyCheckpoint: saved.healthyCheckpoint,
});

/** The metric of each number that the detectors read. If no group has two episodes, an update has no in-group standard deviation. */
const METRIC_OF = {
  success: "train/success",
  rewardStd: "train/in_group_std",
  zeroStdShare: "train/zero_std_groups",
  groupsKept: "train/kept_groups",
  entropy: "train/entropy",
  gradNorm: "train/grad_norm",
  repetition: "train/repetition",
  likelihood: "train/solved_log_prob",
  mutualInformation: "collapse/mi_estimate",
} as const satisfies Partial<Record<keyof Measured, MetricName>>;

/** The metrics that `measuredOf` reads. */
export const MEASURED = [...Object.values(METRIC_OF), "train/format_errors"] as const;

/** The detectors' input, without the numbers that the update did not measure. @returns null if the update trained on no episode */
export function measuredOf(values: Pick<MetricValues, (typeof MEASURED)[number]>): Measured | null {
  const { "train/success": success, "train/format_errors": formatErrors } = values;
  if (success === undefined) return null;
  const given = Object.entries(METRIC_OF).map(([key, name]) => [key, values[name]] as const);
  const known = Object.fromEntries(given.filter(([, value]) => value !== undefined));
  return { success, ...known, ...(formatErrors === undefined ? {} : { validity: 1 - formatErrors }) };
}

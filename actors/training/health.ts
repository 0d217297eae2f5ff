/**
 * How a run is doing, and what is due because of it. Each update's numbers go through the Echo Trap detector and RAGEN-2's early
 * stops; a bad verdict takes the next rung of the run's ladder. A pure reducer over recorded numbers: it runs live and,
 * over a recorded run, offline, with the same answers.
 *
 * - The state is plain data, and is saved with every checkpoint: a resumed run takes the same rungs at the same updates.
 * - Each rung of the ladder is taken once, in order, and has `settleUpdates` to act before the next.
 * - The detector compares with the run's own start, so after rolling back it starts anew.
 */
import { STOP_START, type StopPoint, type StopState, watchForStop } from "../../model/health/early-stop.ts";
import {
  echoTrap,
  TRAP_START,
  type TrapPoint,
  type TrapState,
  type Verdict,
} from "../../model/health/echo-trap/echo-trap.ts";
import type { HealthConfig, Rung } from "../config/health.ts";
import type { MetricName } from "../metrics/metrics.ts";
import { CONTROL_START, type Control, controlAfter } from "./interventions.ts";
import type { Values } from "./update-metrics.ts";

export interface HealthState {
  readonly trap: TrapState;
  readonly stops: StopState;
  readonly verdict: Verdict;
  /** Rungs taken. */
  readonly taken: number;
  /** Updates that the last one still has to act. */
  readonly settling: number;
  readonly control: Control;
  /** Update of the newest checkpoint saved by a run in good health; null without one. */
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

/** As the metric `health/verdict` says it. */
export const VERDICTS = ["healthy", "solved", "warning", "collapsed"] as const satisfies Verdict[];

export interface Measured extends TrapPoint {
  readonly groupsKept: number;
  /** Lowest validation success over envs, where the update was preceded by a validation. */
  readonly validation?: number;
}

/** What must be done. `text` is for people: what changes, and why. */
export type Due =
  | { readonly kind: "rung"; readonly rung: Rung; readonly text: string }
  | { readonly kind: "early-stop"; readonly text: string };

/** Something to be said of the run. */
export interface Told {
  /** No reason to worry. */
  readonly good: boolean;
  readonly kind: "health" | "intervention" | "early-stop";
  readonly text: string;
}

export interface Checkup {
  readonly state: HealthState;
  /** What the run must do now; null if nothing. */
  readonly due: Due | null;
  readonly metrics: Values;
  readonly told: readonly Told[];
}

/** The run after one more update. */
export function checkup(before: HealthState, measured: Measured, config: HealthConfig): Checkup {
  const { state: trap, verdict, reasons: alarms } = echoTrap(before.trap, measured, config.trap);
  const { state: stops, stop } = watchForStop(before.stops, stopPoint(measured), config.stops);
  const settling = Math.max(0, before.settling - 1);
  const reasons = alarms.map(({ text }) => text).join("; ");
  const told: Told[] = [];
  if (verdict !== before.verdict) {
    told.push({ good: isWell(verdict), kind: "health", text: reasons === "" ? verdict : `${verdict}: ${reasons}` });
  }
  const watched: HealthState = { ...before, trap, stops, verdict, settling };
  const { state, due } =
    stop !== null && config.stopEarly.includes(stop.kind)
      ? { state: watched, due: { kind: "early-stop", text: `${stop.kind}: ${stop.reason}` } as const }
      : climb(watched, reasons, config);
  if (due !== null) told.push({ good: false, kind: due.kind === "rung" ? "intervention" : due.kind, text: due.text });
  return { state, due, metrics: healthMetrics(state, due), told };
}

/** Take the next rung, if the verdict asks for it. */
function climb(state: HealthState, reasons: string, config: HealthConfig): { state: HealthState; due: Due | null } {
  const { verdict, settling } = state;
  const bad = verdict === "collapsed" || (verdict === "warning" && config.interveneAt === "warning");
  const rung = bad && settling === 0 ? config.ladder[state.taken] : undefined;
  if (rung === undefined) return { state, due: null };
  const { control, text } = controlAfter(rung, state.control, config);
  const taken = state.taken + 1;
  const why = `${rung} (rung ${taken} of ${config.ladder.length}): ${text}; ${verdict}: ${reasons}`;
  return {
    state: { ...state, control, taken, settling: config.settleUpdates },
    due: { kind: "rung", rung, text: why },
  };
}

const healthMetrics = ({ verdict, taken, control }: HealthState, due: Due | null): Values => ({
  "health/verdict": VERDICTS.indexOf(verdict),
  "health/interventions": taken,
  "health/rollbacks": control.round,
  ...(due !== null && endsRun(due) ? { "health/stopped_early": 1 } : {}),
});

export const endsRun = (due: Due): boolean => due.kind === "early-stop" || due.rung === "stop";

/** The health of a run that was rolled back to a checkpoint: what was done against the trap stays done. */
export const rolledBack = (saved: HealthState, now: HealthState): HealthState => ({
  ...HEALTH_START,
  taken: now.taken,
  settling: now.settling,
  control: now.control,
  healthyCheckpoint: saved.healthyCheckpoint,
});

function stopPoint({ success, rewardStd, groupsKept, validation }: Measured): StopPoint {
  return { success, rewardStd, groupsKept, ...(validation === undefined ? {} : { validation }) };
}

/** What is read of an update's metrics. */
export const MEASURED = [
  "train/success",
  "train/in_group_std",
  "train/zero_std_groups",
  "train/kept_groups",
  "train/entropy",
  "train/grad_norm",
  "train/repetition",
  "train/format_errors",
  "collapse/mi_estimate",
] as const satisfies MetricName[];

/**
 * An update's metrics as the detectors take them. Not known and not measured is left out.
 *
 * @returns null if nothing was learnt from: then there is nothing to judge.
 */
export function measuredOf(
  values: Pick<Values, (typeof MEASURED)[number]>,
  validation: number | undefined,
): Measured | null {
  const success = values["train/success"];
  const rewardStd = values["train/in_group_std"];
  if (success === undefined || rewardStd === undefined) return null;
  const formatErrors = values["train/format_errors"];
  const given = {
    zeroStdShare: values["train/zero_std_groups"],
    entropy: values["train/entropy"],
    gradNorm: values["train/grad_norm"],
    repetition: values["train/repetition"],
    mutualInformation: values["collapse/mi_estimate"],
    validity: formatErrors === undefined ? undefined : 1 - formatErrors,
    validation,
  };
  const known = Object.entries(given).filter(([, value]) => value !== undefined);
  return { success, rewardStd, groupsKept: values["train/kept_groups"] ?? 0, ...Object.fromEntries(known) };
}

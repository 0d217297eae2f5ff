/**
 * The detectors of a collapse, and what happened to a run (`outcomeOf`). A detector reads the log of a run. It returns the index of the
 * update that raises the first alarm, or null.
 */
import { HealthConfig } from "../../actors/config/health.ts";
import type { MetricName, MetricValues } from "../../actors/metrics/metrics.ts";
import { checkup, HEALTH_START, type Measured, measuredOf } from "../../actors/training/health.ts";
import { RAGEN_STOPS } from "../../model/health/early-stop.ts";
import {
  echoTrap,
  TRAP_RULE,
  TRAP_START,
  type TrapRule,
  type Verdict,
} from "../../model/health/echo-trap/echo-trap.ts";
import { deviation, mean } from "../../model/statistics.ts";

export interface LoggedUpdate {
  readonly values: MetricValues;
  /** What Bunraku's detector reads from `values`; null if the update trained on no episode. */
  readonly measured: Measured | null;
}

/** One update of a log. Logs have no validations. */
export const loggedUpdate = (values: MetricValues): LoggedUpdate => ({
  values,
  measured: measuredOf(values),
});

export type Detector = (run: { readonly updates: readonly LoggedUpdate[] }) => number | null;

/** Bunraku's Echo Trap detector. @param verdicts  the verdicts that count as an alarm */
export const bunraku =
  (verdicts: readonly Verdict[], rule: TrapRule = TRAP_RULE): Detector =>
  ({ updates }) =>
    firstAlarm(updates, TRAP_START, (before, point) => {
      const { state, verdict } = echoTrap(before, point, rule);
      return { state, isAlarm: verdicts.includes(verdict) };
    });

const ragenConfig = HealthConfig.parse({ ladder: [], stopEarly: [...RAGEN_STOPS] });

/** RAGEN-2's early stops, except the stop for low success in validations: validations are not in the logs. */
export const ragenStops: Detector = ({ updates }) =>
  firstAlarm(updates, HEALTH_START, (before, point) => {
    const { state, due } = checkup(before, point, ragenConfig);
    return { state, isAlarm: due !== null };
  });

/** An entropy below the floor for three updates in a row. @param floor  in nats */
export const entropyFloor =
  (floor: number): Detector =>
  ({ updates }) => {
    let streak = 0;
    for (const [i, entropy] of seriesOf(updates, "train/entropy").entries()) {
      streak = entropy !== undefined && entropy < floor ? streak + 1 : 0;
      if (streak === 3) return i;
    }
    return null;
  };

/** An alarm if the gradient norm is above mean + 3 standard deviations of all earlier updates. The first 20 updates raise no alarm. */
export const gradientThreeSigma: Detector = ({ updates }) => {
  const norms = seriesOf(updates, "train/grad_norm");
  for (let i = 20; i < norms.length; i++) {
    const before = norms.slice(0, i).filter((norm) => norm !== undefined);
    const norm = norms[i];
    if (norm !== undefined && before.length > 1 && norm > mean(before) + 3 * deviation(before)) return i;
  }
  return null;
};

/** Feeds each update that trained on an episode to a reducer. @returns the index of the first alarm, or null */
function firstAlarm<State>(
  updates: readonly LoggedUpdate[],
  start: State,
  next: (state: State, point: Measured) => { readonly state: State; readonly isAlarm: boolean },
): number | null {
  let state = start;
  for (const [i, { measured }] of updates.entries()) {
    if (measured === null) continue;
    const { state: after, isAlarm } = next(state, measured);
    if (isAlarm) return i;
    state = after;
  }
  return null;
}

const seriesOf = (updates: readonly LoggedUpdate[], name: MetricName) => updates.map(({ values }) => values[name]);

/** What happened to a run, by its success alone. The rates compare the alarms of a detector with this outcome. */
export type Outcome =
  | {
      /** Success ends below half of its peak. */
      readonly kind: "collapsed";
      /** Index of the first update with smoothed success below half of the peak so far. */
      readonly onset: number;
    }
  /** Success never fell below half of its peak, and ends near that peak. */
  | { readonly kind: "healthy" }
  /** The run neither collapsed nor stayed healthy, or has no updates. Such a run counts for no rate. */
  | { readonly kind: "unclear" };

/**
 * Smoothed success is a mean over this many updates on each side of an update. By chance the success of an update of eight boards varies by
 * about 0.12, and a peak is the largest of many means. With means of only five updates, a policy whose success stays at 0.4 would have a peak
 * of 0.55.
 */
const REACH = 10;
/** Number of updates that count as the end of a run. */
const LAST = 20;
/** A smaller fall from the peak may be chance. */
const FALL_MIN = 0.1;
/** A healthy run ends with this share of its peak or more. */
const HEALTHY_SHARE = 0.8;

/** @param success  share of an update's episodes that were solved, in the order of the updates */
export function outcomeOf(success: readonly number[]): Outcome {
  if (success.length === 0) return { kind: "unclear" };
  const smooth = success.map((_, i) => mean(success.slice(Math.max(0, i - REACH), i + REACH + 1)));
  const peak = Math.max(...smooth);
  // The peak starts at the first update's own success. A mean with later updates would be too low if the run falls right after the first update.
  let best = success[0]!;
  let onset: number | null = null;
  const fell = (value: number) => value < best / 2 && best - value >= FALL_MIN;
  for (const [i, value] of smooth.entries()) {
    best = Math.max(best, value);
    if (onset === null && fell(value)) onset = i;
  }
  const end = mean(success.slice(-LAST));
  if (onset === null) return { kind: end >= HEALTHY_SHARE * peak ? "healthy" : "unclear" };
  return fell(end) ? { kind: "collapsed", onset } : { kind: "unclear" };
}

/** Judges the health of a run after an update, and writes the verdict to the log and the page. */
import type { MetricValues } from "../metrics/metrics.ts";
import type { TrainingContext } from "./context.ts";
import { checkup, type Due, type HealthState, measuredOf } from "./health.ts";
import type { Progress } from "./progress.ts";
import { lowestSuccess } from "./validation.ts";

export interface Judgment {
  readonly health: HealthState;
  /** What the run must do; null if nothing. */
  readonly due: Due | null;
  readonly metrics: MetricValues;
}

/** @param metrics  of the update that was made last */
export function judge(
  { config, log }: Pick<TrainingContext, "config" | "log">,
  { update, health, validated }: Progress,
  metrics: MetricValues,
): Judgment {
  const { unjudged, ...before } = health;
  const validation = validated?.update === update - 1 ? lowestSuccess(validated) : unjudged;
  const measured = measuredOf(metrics, validation);
  if (measured === null) {
    const waiting = validation === undefined ? {} : { unjudged: validation };
    return { health: { ...before, ...waiting }, due: null, metrics: {} };
  }
  const { state, due, metrics: judged, notices } = checkup(before, measured, config.health);
  for (const { good, kind, text } of notices) log.event(good ? "info" : "warning", kind, `update ${update}: ${text}`);
  return { health: state, due, metrics: judged };
}

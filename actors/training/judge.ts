/** Judges the health of a run after an update or a validation, and writes the verdict to the log and the page. */
import type { MetricValues } from "../metrics/metrics.ts";
import type { TrainingContext } from "./context.ts";
import { type Checkup, checkup, checkupOfValidation, type Due, type HealthState, measuredOf } from "./health.ts";
import type { Progress, Solved } from "./progress.ts";
import { lowestSuccess } from "./validation.ts";

type JudgeContext = Pick<TrainingContext, "config" | "log">;

export interface Judgment {
  readonly health: HealthState;
  /** What the run must do; null if nothing. */
  readonly due: Due | null;
  readonly metrics: MetricValues;
}

/** @param metrics  of the update that was made last */
export function judge(context: JudgeContext, { update, health }: Progress, metrics: MetricValues): Judgment {
  const measured = measuredOf(metrics);
  if (measured === null) return { health, due: null, metrics: {} };
  return judged(context, update, checkup(health, measured, context.config.health));
}

/** @param isLast  the run ends after this validation anyway, so no early stop is due; it counts if the run is prolonged */
export function judgeValidation(
  context: JudgeContext,
  { update, health }: Progress,
  solved: Solved,
  isLast: boolean,
): Judgment {
  const { health: config } = context.config;
  const stopEarly = isLast ? [] : config.stopEarly;
  return judged(context, update, checkupOfValidation(health, lowestSuccess(solved), { ...config, stopEarly }));
}

function judged({ log }: JudgeContext, update: number, { state: health, due, metrics, notices }: Checkup): Judgment {
  for (const { good, kind, text } of notices) log.event(good ? "info" : "warning", kind, `update ${update}: ${text}`);
  return { health, due, metrics };
}

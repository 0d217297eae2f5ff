/** Judges the health of a run after an update or a validation, and writes the verdict to the log and the page. */
import type { MetricValues } from "../metrics/metrics.ts";
import type { TrainingContext } from "./context.ts";
import { type Checkup, checkup, checkupOfValidation, measuredOf } from "./health.ts";
import type { Progress, Solved } from "./progress.ts";
import { lowestSuccess } from "./validation.ts";

type JudgeContext = Pick<TrainingContext, "config" | "log">;

/** @param metrics  of the update that was made last */
export function judge(context: JudgeContext, { update, health }: Progress, metrics: MetricValues): Checkup {
  const measured = measuredOf(metrics);
  if (measured === null) return { state: health, due: null, metrics: {}, notices: [] };
  return judged(context, update, checkup(health, measured, context.config.health));
}

/** @param isLast  the run ends after this validation anyway, so no early stop is due; it counts if the run is prolonged */
export function judgeValidation(
  context: JudgeContext,
  { update, health }: Progress,
  solved: Solved,
  isLast: boolean,
): Checkup {
  const { health: config } = context.config;
  const stopEarly = isLast ? [] : config.stopEarly;
  return judged(context, update, checkupOfValidation(health, lowestSuccess(solved), { ...config, stopEarly }));
}

function judged({ log }: JudgeContext, update: number, found: Checkup): Checkup {
  for (const { good, kind, text } of found.notices)
    log.event(good ? "info" : "warning", kind, `update ${update}: ${text}`);
  return found;
}

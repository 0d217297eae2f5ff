/** Where a record ends. A run that went back has values of later updates from before, until it repeats them. */
import type { Series } from "../dashboard/answers.ts";
import type { MetricName } from "../metrics/metrics.ts";
import type { Point } from "../metrics-sink/records.ts";

/** @param latest  the value of every metric and actor that was written last @returns infinity before the first update */
export function newestUpdate(latest: readonly Point[]): number {
  const updates: MetricName = "total/updates";
  return latest.find(({ name }) => name === updates)?.step ?? Number.POSITIVE_INFINITY;
}

/** A curve without updates after the newest. */
export function upTo(newest: number, { steps, values, ...one }: Series): Series {
  const count = steps.filter((step) => step <= newest).length;
  return { ...one, steps: steps.slice(0, count), values: values.slice(0, count) };
}

/** Where a record ends. A run that went back has values of later updates from before, until it repeats them. */
import type { Series } from "../dashboard/answers.ts";
import type { MetricName } from "../metrics/metrics.ts";
import type { Point } from "../metrics-sink/records.ts";
import type { Store } from "../metrics-sink/store.ts";

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

/** As `Store.series`, without updates that a roll-back gave up or a resumed run made again. */
export function seriesOf(store: Store, names: readonly MetricName[], since = 0): Series[] {
  const newest = newestUpdate(store.latest());
  // The steps of the warm start are no updates.
  const all = store.series(names, since).map((one) => (one.name.startsWith("warm/") ? one : upTo(newest, one)));
  return all.filter(({ steps }) => steps.length > 0);
}

/** Where a record ends. A run that went back has values of later updates from before, until it repeats them. */
import type { Series } from "../dashboard/answers.ts";
import type { MetricName } from "../metrics/metrics.ts";
import type { Store } from "../metrics-sink/store.ts";

/** The last value of an update, and the value of a roll-back, at the update that it went back to. */
const ENDS: readonly MetricName[] = ["total/updates", "health/rollbacks"];

/** @returns infinity before the first update */
export const newestUpdate = (store: Pick<Store, "newestStep">): number =>
  store.newestStep(ENDS) ?? Number.POSITIVE_INFINITY;

/** A curve without updates after the newest. */
export function upTo(newest: number, { steps, values, ...one }: Series): Series {
  const count = steps.filter((step) => step <= newest).length;
  return { ...one, steps: steps.slice(0, count), values: values.slice(0, count) };
}

/** As `Store.series`, without updates that a roll-back gave up or a resumed run made again. */
export function seriesOf(store: Store, names: readonly MetricName[], since = 0): Series[] {
  const newest = newestUpdate(store);
  // The steps of the warm start are no updates.
  const all = store.series(names, since).map((one) => (one.name.startsWith("warm/") ? one : upTo(newest, one)));
  return all.filter(({ steps }) => steps.length > 0);
}

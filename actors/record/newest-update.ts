/** Finds the update at which a record ends. After a roll-back or resume, old values of later updates stay until the run repeats the updates. */
import type { Series } from "../dashboard/answers.ts";
import { isMetricName, type MetricName, metric } from "../metrics/metrics.ts";
import type { Point } from "../metrics-sink/records.ts";
import type { Store } from "../metrics-sink/store.ts";

/** Every update writes `total/updates` last. A roll-back writes `health/rollbacks` at the update to which the run goes back. */
export const ENDS: readonly MetricName[] = ["total/updates", "health/rollbacks"];

/** The update at which the record ends; infinity before the first update. */
export const newestUpdate = (store: Pick<Store, "newestStep">): number =>
  store.newestStep(ENDS) ?? Number.POSITIVE_INFINITY;

/** A curve without steps after the newest update. */
export function upTo(newest: number, { steps, values, ...one }: Series): Series {
  const count = steps.filter((step) => step <= newest).length;
  return { ...one, steps: steps.slice(0, count), values: values.slice(0, count) };
}

/** `Store.series` without values of updates that a roll-back discarded, or that a resumed run has not repeated yet. */
export function seriesOf(store: Store, names: readonly MetricName[], since = 0): Series[] {
  const newest = newestUpdate(store);
  const all = store.series(names, since).map((one) => (isOfWarmStart(one) ? one : upTo(newest, one)));
  return all.filter(({ steps }) => steps.length > 0);
}

/** The latest value of each metric up to the newest update. Values that an actor reports about itself always stay. */
export function latestOf(store: Store): Point[] {
  const newest = newestUpdate(store);
  return store.latest().flatMap((point) => {
    const { name, actor, step } = point;
    const isOfUpdate = isMetricName(name) && metric(name).perActor !== true && !isOfWarmStart(point);
    if (step <= newest || !isOfUpdate) return [point];
    const known = store.series([name], 0).filter((one) => one.actor === actor);
    const { steps, values } = upTo(newest, known[0]!);
    return steps.length === 0 ? [] : [{ name, actor, step: steps.at(-1)!, value: values.at(-1)! }];
  });
}

/** True for a metric of the warm start: its steps are not updates. */
const isOfWarmStart = ({ name }: { readonly name: string }) => name.startsWith("warm/");

/** Where a record ends. A run that went back has values of later updates from before, until it repeats them. */
import type { Series } from "../dashboard/answers.ts";
import { isMetricName, type MetricName, metric } from "../metrics/metrics.ts";
import type { Point } from "../metrics-sink/records.ts";
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
  const all = store.series(names, since).map((one) => (isOfWarmStart(one) ? one : upTo(newest, one)));
  return all.filter(({ steps }) => steps.length > 0);
}

/** As `Store.latest`, without updates that a roll-back gave up or a resumed run made again. What an actor reports of itself is always kept. */
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

/** Its steps are no updates. */
const isOfWarmStart = ({ name }: { readonly name: string }) => name.startsWith("warm/");

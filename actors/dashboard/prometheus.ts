/**
 * The run's latest values in Prometheus' text format. Names, help and units come from the table of metrics.
 *
 * - A metric that the run has not measured has no sample; a sample of 0 would be wrong.
 * - After an actor has ended, the metrics that each actor reports for itself (`perActor`) have no sample of this actor.
 * - All times are in seconds, as Prometheus expects. The table's unit may differ.
 */
import { Counter, Gauge, Registry } from "prom-client";
import { isMetricName, METRIC_NAMES, type MetricName, metric, splitName } from "../metrics/metrics.ts";
import type { Store } from "../metrics-sink/store.ts";

/** Labels of samples. `env`: the env of a value, for a metric with one value per env. `k`: the k of a value of pass@k. */
const LABELS = ["run", "actor", "env", "k"] as const;
type Label = (typeof LABELS)[number];

/** "speed/update_s" is `bunraku_speed_update_seconds`; counters end in `_total`. */
export function prometheusName(name: MetricName): string {
  const base = `bunraku_${name.replace("/", "_")}`.replace(/_(ms|s)$/, "_seconds");
  return metric(name).kind === "counter" ? `${base.replace("_total_", "_")}_total` : base;
}

export async function exposition(store: Store): Promise<{ readonly text: string; readonly contentType: string }> {
  const registry = new Registry();
  const gauges = new Map<string, Gauge<Label> | Counter<Label>>();
  for (const name of METRIC_NAMES) {
    const { help, unit, kind } = metric(name);
    const options = {
      name: prometheusName(name),
      help: `${help} Unit: ${unit === "milliseconds" ? "seconds" : unit}.`,
      // Without labels, a gauge would have a sample of 0 before its first value.
      labelNames: LABELS,
      registers: [registry],
    };
    gauges.set(name, kind === "counter" ? new Counter(options) : new Gauge(options));
  }
  const run = store.run()?.name;
  const actors = store.actors()?.actors ?? null;
  const isGone = (actor: string) =>
    actors !== null && !actors.some(({ name, guest, pid }) => name === actor && (guest || pid !== null));
  for (const { name, actor, value } of run === undefined ? [] : store.latest()) {
    // A store of another Bunraku version may have names that this version does not know.
    if (!isMetricName(name)) continue;
    const { unit, perActor } = metric(name);
    if (perActor && isGone(actor)) continue;
    const { row, part } = splitName(name);
    const labels = { run: run!, ...(perActor && { actor }), ...(part !== null && { [part[0]]: part[1] }) };
    gauges.get(row)!.inc(labels, unit === "milliseconds" ? value / 1000 : value);
  }
  return { text: await registry.metrics(), contentType: registry.contentType };
}

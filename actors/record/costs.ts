/**
 * Computes a run's costs from its record: tokens, actions, processor time and energy. Each cost has three values: of the whole run, of
 * reinforcement (from the first update on), and per percentage point by which success rose in reinforcement. This file also computes the
 * seconds of reinforcement's phases. All functions are pure.
 *
 * - Each process counts its processor time and energy. If a counter's value falls, a new process reported it, and its counter began at 0.
 * - The record lacks the costs between an actor's last report and its end, at most one heartbeat interval. If a new process replaces a
 *   process during an update, the record lacks the costs of the old process in this update.
 * - If a run repeats an update after a resume or a roll-back, the update counts once. A value at a step after the newest update is
 *   from before the resume or roll-back, and does not count.
 */
import type { z } from "zod";
import type { CostsAnswer, Series } from "../dashboard/answers.ts";
import type { MetricName } from "../metrics/metrics.ts";
import { upTo } from "./newest-update.ts";

export type Costs = z.infer<typeof CostsAnswer>;
type Amounts = Costs["total"];

const METRIC_OF: Readonly<Record<keyof Amounts, MetricName>> = {
  tokens: "total/tokens",
  actions: "total/actions",
  cpuSeconds: "process/cpu_seconds",
  joules: "machine/energy_joules",
};

const SECONDS_OF: Readonly<Record<keyof Costs["seconds"], MetricName>> = {
  rollout: "speed/rollout_s",
  update: "speed/update_s",
  validation: "speed/validate_s",
  checkpoints: "speed/checkpoint_s",
};

/** @param all  all values of a metric, one series for each actor. @param newest  the update at which the record ends */
export function costsOf(all: (name: MetricName) => readonly Series[], newest: number): Costs {
  const series = (name: MetricName) => all(name).map((one) => upTo(newest, one));
  const sums = <K extends string>(metrics: Readonly<Record<K, MetricName>>, of: (one: Series) => number) => {
    const entries = Object.entries<MetricName>(metrics).map(([key, name]) => {
      const found = series(name);
      return [key, found.length === 0 ? null : found.reduce((sum, one) => sum + of(one), 0)] as const;
    });
    return Object.fromEntries(entries) as Record<K, number | null>;
  };
  const reinforcement = sums(METRIC_OF, (one) => growth(one, 1));
  const before = series("baseline/before")[0]?.values.at(-1);
  const now = series("validate/success")[0]?.values.at(-1);
  const points = before === undefined || now === undefined ? null : 100 * (now - before);
  const perPoint = (amount: number | null) =>
    amount === null || points === null || points <= 0 ? null : amount / points;
  return {
    total: sums(METRIC_OF, (one) => growth(one, 0)),
    reinforcement,
    points,
    perPoint: Object.fromEntries(
      Object.entries(reinforcement).map(([key, amount]) => [key, perPoint(amount)]),
    ) as Amounts,
    seconds: sums(SECONDS_OF, sumOfUpdates),
  };
}

/** The sum of the values at update 1 and later. */
const sumOfUpdates = ({ steps, values }: Series): number =>
  values.reduce((sum, value, i) => (steps[i]! < 1 ? sum : sum + value), 0);

/** How much a counter grew from step `first` on. */
function growth({ steps, values }: Series, first: number): number {
  return values.reduce((sum, value, i) => {
    if (steps[i]! < first) return sum;
    const before = i === 0 ? 0 : values[i - 1]!;
    return sum + (value >= before ? value - before : value);
  }, 0);
}

/** Runs on disk, as a metrics sink leaves them. */
import { mkdirSync } from "node:fs";
import { basename, join } from "node:path";
import type { MetricName } from "../../../actors/metrics/metrics.ts";
import { Store } from "../../../actors/metrics-sink/store.ts";

/** Values of the learner's metrics, each with its update. */
export type Values = Partial<Record<MetricName, readonly (readonly [step: number, value: number])[]>>;

/** A store with one session and these values. @param folder  the run's; it need not exist */
export function recordIn(folder: string, values: Values = {}, session: object = {}, wallMs = 1000): Store {
  mkdirSync(folder, { recursive: true });
  const store = new Store({ path: join(folder, "run.sqlite"), durability: "normal", wallClock: () => wallMs });
  store.startSession({ name: basename(folder), env: "Bandit", updates: 9, seed: 1, ...session });
  const points = Object.entries(values).flatMap(([name, pairs]) =>
    pairs.map(([step, value]) => ({ name, actor: "learner", step, value })),
  );
  store.write({ points, events: [], episodes: [] });
  return store;
}

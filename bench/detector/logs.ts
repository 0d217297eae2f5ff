/** Logs of many runs in one Parquet file: one row for each update. */

import type { MetricName, MetricValues } from "../../actors/metrics/metrics.ts";
import { MEASURED } from "../../actors/training/health.ts";
import { parquetRows } from "../../envs/data/parquet.ts";

/** Of Bunraku's detector, and what rivals read beside them. */
export const METRICS = [
  ...MEASURED,
  "train/reward_mean",
  "train/advantage_abs",
  "train/reply_tokens",
  "train/learning_rate",
  "loss/policy",
  "loss/kl",
  "loss/clip_fraction_high",
] as const satisfies MetricName[];

export interface RunLog {
  readonly run: string;
  readonly env: string;
  readonly seed: number;
  /** By update, ascending. */
  readonly updates: readonly { readonly update: number; readonly values: MetricValues }[];
}

export function readLogs(path: string): RunLog[] {
  const logs = new Map<string, RunLog & { updates: { update: number; values: MetricValues }[] }>();
  const wanted = ["run", "env", "seed", "update", ...METRICS].map((name) => ({ name, optional: false }));
  for (const row of parquetRows(path, wanted)) {
    const run = row["run"] as string;
    const log = logs.get(run) ?? { run, env: row["env"] as string, seed: Number(row["seed"]), updates: [] };
    logs.set(run, log);
    const values = METRICS.map((name) => [name, row[name]] as const).filter(([, value]) => typeof value === "number");
    log.updates.push({ update: Number(row["update"]), values: Object.fromEntries(values) });
  }
  return [...logs.values()];
}

/** Logs of many runs, from a folder of runs or from one Parquet file, which has one row for each update. */
import { existsSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { writeWhole } from "../../actors/checkpoint/disk.ts";
import type { Series } from "../../actors/dashboard/answers.ts";
import { messageOf } from "../../actors/errors.ts";
import type { MetricName, MetricValues } from "../../actors/metrics/metrics.ts";
import { hasRecord, RecordedRun } from "../../actors/record/recorded-run.ts";
import { MEASURED } from "../../actors/training/health.ts";
import { parquetRows } from "../../envs/data/parquet.ts";
import { firstRepeated } from "../../envs/text/repeats.ts";
import { reportFile } from "../../library/run-folder.ts";
import { UsageError } from "../cli/options.ts";
import { named, type Row, writeParquet } from "../export/tables.ts";

/** The metrics that Bunraku's detector reads (`MEASURED`), and more metrics that other detectors read (bench/peers/alarms.py). */
const METRICS = [
  ...MEASURED,
  "train/reward_mean",
  "train/reply_tokens",
  "train/learning_rate",
  "loss/policy",
  "loss/kl",
  "loss/clip_fraction_high",
] as const satisfies MetricName[];

export interface RunLog {
  /** Name of the run's folder. */
  readonly run: string;
  readonly env: string;
  readonly seed: number;
  /** The updates in ascending order, without updates that trained on no episode. */
  readonly updates: readonly { readonly update: number; readonly values: MetricValues }[];
}

/**
 * @param path  a folder whose finished runs are read, or a file that `writeLogs` wrote
 * @throws {UsageError} if there are no logs, or they cannot be read
 */
export function readLogs(path: string): RunLog[] {
  if (!existsSync(path)) throw new UsageError(`no folder of runs and no file at ${path}`);
  const isFolder = statSync(path).isDirectory();
  if (!isFolder && !path.endsWith(".parquet"))
    throw new UsageError(`${path} has no logs of runs; give a folder of runs, or a .parquet file that --logs-to wrote`);
  const logs = isFolder ? ofFolder(path) : ofParquet(path);
  if (logs.length === 0)
    throw new UsageError(`no finished run in ${path}; give a folder of runs, such as a folder of bun run sweep`);
  return logs;
}

/**
 * Replaces an existing file only when the new file is complete. @throws {UsageError} if two runs have one name. @throws {Error} if the file
 * cannot be written
 */
export async function writeLogs(path: string, logs: readonly RunLog[]): Promise<void> {
  const repeated = firstRepeated(logs.map(({ run }) => run));
  if (repeated !== undefined)
    throw new UsageError(
      `two runs are named ${repeated}, and ${path} tells runs apart by their names; rename a folder`,
    );
  const columns = [
    ...named("STRING", "run", "env"),
    ...named("DOUBLE", "seed"),
    ...named("INT32", "update"),
    ...named("DOUBLE", ...METRICS),
  ];
  try {
    await writeWhole(path, (pending) => writeParquet(pending, columns, rowsOf(logs)));
  } catch (error) {
    throw new Error(`cannot write --logs-to ${path}: ${messageOf(error)}; make room, or name another file`);
  }
}

function* rowsOf(logs: readonly RunLog[]): Generator<Row> {
  for (const { run, env, seed, updates } of logs) {
    for (const { update, values } of updates) {
      const measured = METRICS.map((name) => [name, values[name] ?? null] as const);
      yield { run, env, seed, update, ...Object.fromEntries(measured) };
    }
  }
}

function ofFolder(path: string): RunLog[] {
  const finished = readdirSync(path).filter((name) => {
    const folder = join(path, name);
    return hasRecord(folder) && existsSync(reportFile({ folder }));
  });
  return finished.sort().map((run) => ofRun(run, join(path, run)));
}

function ofRun(run: string, folder: string): RunLog {
  using record = new RecordedRun(folder);
  const { env, seed } = record.facts;
  const byUpdate = valuesByUpdate(METRICS.flatMap((name) => record.curve(name) ?? []));
  const updates = [...byUpdate].filter(([, values]) => values["train/success"] !== undefined);
  updates.sort(([a], [b]) => a - b);
  return { run, env, seed, updates: updates.map(([update, values]) => ({ update, values })) };
}

/** Metrics by update. After a resume or a roll-back, updates repeat; the values of the last repetition count. */
export function valuesByUpdate(curves: readonly Series[]): Map<number, MetricValues> {
  const byUpdate = new Map<number, Partial<Record<MetricName, number>>>();
  for (const { name, steps, values } of curves) {
    steps.forEach((step, i) => {
      byUpdate.getOrInsert(step, {})[name as MetricName] = values[i]!;
    });
  }
  return byUpdate;
}

function ofParquet(path: string): RunLog[] {
  const wanted = ["run", "env", "seed", "update", ...METRICS].map((name) => ({ name, optional: false }));
  try {
    return ofRows(parquetRows(path, wanted));
  } catch (error) {
    throw new UsageError(`cannot read the logs ${path}: ${messageOf(error)}`);
  }
}

function ofRows(rows: Iterable<Readonly<Record<string, unknown>>>): RunLog[] {
  const logs = new Map<string, RunLog & { readonly updates: { update: number; values: MetricValues }[] }>();
  for (const row of rows) {
    const run = String(row["run"]);
    const log = logs.getOrInsert(run, { run, env: String(row["env"]), seed: Number(row["seed"]), updates: [] });
    // If another program rewrote the file, the value of an unmeasured metric may be NaN.
    const measured = METRICS.map((name) => [name, row[name]] as const).filter(([, value]) => Number.isFinite(value));
    const values: MetricValues = Object.fromEntries(measured);
    if (values["train/success"] !== undefined) log.updates.push({ update: Number(row["update"]), values });
  }
  // Such a program may also have changed the order of the rows.
  for (const { updates } of logs.values()) updates.sort((a, b) => a.update - b.update);
  return [...logs.values()];
}

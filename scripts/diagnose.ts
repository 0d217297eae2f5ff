/**
 * `bun run diagnose`: feeds recorded runs, and logs of other trainers, through the Echo Trap detector and the early stops. Shows when and
 * why the verdict changed, what a ladder of interventions or an early stop would have done, and which quantities a log lacks. Flags
 * change the thresholds.
 */

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { parsedJson } from "../actors/checkpoint/json.ts";
import { runKeys } from "../actors/config/config.ts";
import { upgraded } from "../actors/config/former-keys.ts";
import { HealthConfig } from "../actors/config/health.ts";
import { isTree, type Layer, merge } from "../actors/config/layers.ts";
import { schemaFaults } from "../actors/errors.ts";
import { type MetricValues, partName, splitName } from "../actors/metrics/metrics.ts";
import { recordOf } from "../actors/metrics-sink/store.ts";
import { envNames } from "../actors/play/envs-of-run.ts";
import { seriesOf } from "../actors/record/newest-update.ts";
import { hasRecord } from "../actors/record/recorded-run.ts";
import {
  type Checkup,
  checkup,
  checkupOfValidation,
  endsRun,
  HEALTH_START,
  type HealthNotice,
  type HealthState,
  healthAfterRollBack,
  MEASURED,
  type Measured,
  measuredOf,
} from "../actors/training/health.ts";
import { RAGEN_STOPS } from "../model/health/early-stop.ts";
import { type Command, expectOnly, flag, type Override, type Parsed, UsageError } from "./cli/options.ts";
import { overrideLayer } from "./cli/presets.ts";
import { type Log, readLog } from "./diagnose/logs.ts";
import { seenIn } from "./diagnose/names.ts";
import { ratesReport, ratesText } from "./diagnose/rates.ts";
import { readLogs, valuesByUpdate, writeLogs } from "./diagnose/run-logs.ts";

export const command = {
  words: {
    show: "RUN…",
    text: "Folders of runs; or logs of other trainers: TRL's trainer_state.json, TensorBoard event files, .csv, .jsonl",
    max: Number.POSITIVE_INFINITY,
  },
  flags: {
    column: flag.list(
      "QUANTITY=NAME",
      "The log's name for a quantity: success, spread, constant, entropy, gradient, repetition, information, form, likelihood or kept; may be repeated",
    ),
    rates: flag.switch(
      "Print error rates of Bunraku's detector and of other detectors; RUN is a folder of finished runs, or a file with their logs",
    ),
    "held-out": flag.text("ENV", "With --rates: an env on which no threshold is chosen"),
    alarms: flag.text("FILE", "With --rates: first alarms of other detectors (bench/peers/alarms.py)"),
    "logs-to": flag.text("FILE", "With --rates: also write the logs as one Parquet file"),
    json: flag.switch("End standard output with one JSON object"),
  },
  examples: [
    "bun run diagnose runs/2026-11-20-simplesokoban-1",
    "bun run diagnose runs/a runs/b --health.trap.spreadShare=0.3",
    "bun run diagnose outputs/checkpoint-500/trainer_state.json",
    "bun run diagnose wandb-export.csv --column success=critic/score/mean",
    "bun run diagnose --rates runs/error-rates --held-out FrozenLake --logs-to logs.parquet",
    'bun run diagnose runs/a --health.ladder=\'["lower-step-size","roll-back"]\' --health.interveneAt=warning',
  ],
  overrides: runKeys,
  keys: "A key of health",
} as const satisfies Command;

export async function main({ flags, words, overrides }: Parsed<typeof command>): Promise<number> {
  if (words.length === 0) throw new UsageError("name folders of runs, or logs of other trainers");
  checkFlags(flags, overrides);
  if (flags.rates) {
    const { "held-out": heldOut = null, alarms = null, "logs-to": logsTo } = flags;
    const logs = words.flatMap(readLogs);
    if (logsTo !== undefined) await writeLogs(logsTo, logs);
    const report = ratesReport(logs, { heldOut, alarms });
    console.log(ratesText(report));
    if (flags.json) console.log(JSON.stringify(report));
    return 0;
  }
  if (flags.column !== undefined && words.every(isRun))
    throw new UsageError("--column names columns of a log, and a run of Bunraku has none; leave it out");
  const diagnoses = words.map((path) => {
    const measured = isRun(path) ? recorded(path) : logged(path, flags.column ?? []);
    return diagnose(path, healthConfig(path, overrides), measured);
  });
  console.log(diagnoses.map(described).join("\n\n"));
  if (flags.json) console.log(JSON.stringify({ runs: diagnoses }));
  return 0;
}

function isRun(path: string): boolean {
  const has = (name: string) => existsSync(join(path, name));
  // A checkpoint folder of TRL also has a config.json, which describes the model.
  return has("run.sqlite") || (has("config.json") && !has("trainer_state.json"));
}

type Flags = Parsed<typeof command>["flags"];

/** @throws {UsageError} for a flag that the command would not read: some flags need --rates, and others have no effect with --rates */
function checkFlags(flags: Flags, overrides: readonly Override[]): void {
  if (!flags.rates) {
    const unread = (["held-out", "alarms", "logs-to"] as const).find((name) => flags[name] !== undefined);
    if (unread !== undefined)
      throw new UsageError(`--${unread} is read with --rates only; add --rates, or leave it out`);
    return;
  }
  if (flags.column !== undefined) throw new UsageError("--column is not read with --rates; leave it out");
  expectOnly(/^$/, overrides, "--rates takes no settings, because it chooses thresholds itself");
}

interface UpdateNotice extends HealthNotice {
  readonly update: number;
}

/** What is known about the log of another trainer. */
type LogFacts = Pick<Log, "kind" | "notFinite"> & Omit<ReturnType<typeof seenIn>, "measured">;

/** A measured update, the validation after it, or a roll-back to it. */
interface Point {
  readonly update: number;
  judge(before: HealthState, config: HealthConfig): Checkup;
}

interface Updates {
  /** In the order of the run. */
  readonly points: readonly Point[];
  readonly updates: number;
  /** null for a run of Bunraku. */
  readonly log: LogFacts | null;
}

const pointOf = (update: number, measured: Measured): Point => ({
  update,
  judge: (before, config) => checkup(before, measured, config),
});

/** After a roll-back the detectors start again, as they do in the run itself. */
const rolledBack: Point["judge"] = (before) => {
  const text = "the run was rolled back to this update; the detectors start again";
  const state = healthAfterRollBack(HEALTH_START, before);
  return { state, due: null, metrics: {}, notices: [{ good: true, kind: "health", text }] };
};

function logged(path: string, columns: readonly string[]): Updates {
  const { kind, steps, notFinite } = readLog(path);
  const { measured, ...seen } = seenIn(steps, path, columns);
  const points = [...measured].map(([step, one]) => pointOf(step, one));
  return { points, updates: points.length, log: { kind, notFinite, ...seen } };
}

function recorded(run: string): Updates {
  const values = [...readValues(run)].sort(([a], [b]) => a - b);
  const updates = values.filter(([, one]) => one["train/success"] !== undefined).map(([update]) => update);
  let round = 0;
  const points = values.flatMap(([update, one]) => {
    const measured = measuredOf(one);
    const validation = lowestSuccess(one);
    const found: Point[] = measured === null ? [] : [pointOf(update, measured)];
    // A validation after the last update cannot end the run early.
    if (validation !== undefined && update < (updates.at(-1) ?? 0))
      found.push({ update, judge: (before, config) => checkupOfValidation(before, validation, config) });
    const { "health/rollbacks": rollbacks = round } = one;
    if (rollbacks > round) found.push({ update, judge: rolledBack });
    round = rollbacks;
    return found;
  });
  return { points, updates: updates.length, log: null };
}

/**
 * @returns the changes of the verdict with the rungs that the ladder would have taken, and the first time that each of RAGEN-2's early stops
 * would have ended the run. `verdict` is the last verdict; null if no update could be judged
 */
function diagnose(run: string, config: HealthConfig, { points, updates, log }: Updates) {
  const notices: UpdateNotice[] = [];
  const earlyStops: UpdateNotice[] = [];
  let state = HEALTH_START;
  // A stop that comes sets the counts of all stops back to 0. So each stop has a state of its own here, until it first comes.
  const watched = new Map(RAGEN_STOPS.map((kind) => [kind, HEALTH_START]));
  let over = false;
  for (const { update, judge } of points) {
    const one = judge(state, { ...config, stopEarly: [] });
    state = one.state;
    if (!over) notices.push(...one.notices.map((notice) => ({ update, ...notice })));
    over ||= one.due !== null && endsRun(one.due);
    for (const [kind, before] of watched) {
      const { state: after, notices } = judge(before, { ...config, stopEarly: [kind] });
      watched.set(kind, after);
      const stop = notices.find((notice) => notice.kind === "early-stop");
      if (stop === undefined) continue;
      earlyStops.push({ update, ...stop });
      watched.delete(kind);
    }
  }
  return { run, updates, verdict: points.length === 0 ? null : state.verdict, notices, earlyStops, log };
}

/** Lowest validation success over the envs. */
function lowestSuccess(values: MetricValues): number | undefined {
  const shares = Object.entries(values).filter(([name]) => splitName(name).row === "validate/success");
  return shares.length === 0 ? undefined : Math.min(...shares.map(([, share]) => share));
}

/** The run's health settings, or the defaults if the run is so old that it has none. Flags override both. */
function healthConfig(run: string, overrides: readonly Override[]): HealthConfig {
  expectOnly(/^health\./, overrides, "diagnose takes keys of health only");
  const file = join(run, "config.json");
  const kept: Layer = { source: file, values: { health: {} } };
  if (existsSync(file)) {
    const config = parsedJson(readFileSync(file, "utf8"));
    if (!isTree(config)) throw new UsageError(`cannot use the config of ${run}, ${file}: it is not a JSON object`);
    const { health } = upgraded(config);
    if (health !== undefined) kept.values["health"] = health;
  }
  const parsed = HealthConfig.safeParse(merge([kept, ...overrides.map(overrideLayer)])["health"]);
  if (parsed.success) return parsed.data;
  throw new UsageError(schemaFaults(parsed.error, "health"));
}

/** Metrics by update. The function reads the store itself, because `RecordedRun` refuses a run that never started. */
function readValues(run: string): Map<number, MetricValues> {
  if (!hasRecord(run)) throw new UsageError(`no run in ${run}: there is no run.sqlite`);
  using store = recordOf(run);
  const envs = envNames(store.run()?.env ?? "").map((env) => partName("validate/success", "env", env));
  return valuesByUpdate(seriesOf(store, [...MEASURED, "validate/success", ...envs, "health/rollbacks"]));
}

function described({ run, updates, verdict, notices, earlyStops, log }: ReturnType<typeof diagnose>): string {
  if (verdict === null) return `${run}: the record has no update that diagnose can judge`;
  const line = ({ update, kind, text }: UpdateNotice) =>
    `  update ${update}: ${kind === "health" ? "" : `${kind}: `}${text}`;
  return [
    `${run}: ${verdict} after ${updates} ${log === null ? "updates" : `points of ${log.kind}`}`,
    ...(notices.length === 0 ? ["  healthy all the time"] : notices.map(line)),
    ...earlyStops.map(({ update, text }) => `  RAGEN-2 would have stopped the run at update ${update}: ${text}`),
    ...(log === null ? [] : logLines(log)),
  ].join("\n");
}

function logLines({ columns, unseen, notFinite }: LogFacts): string[] {
  const read = Object.entries(columns).map(([quantity, name]) => `${quantity} = ${name}`);
  const lines = [`  read: ${read.join(", ")}`];
  if (unseen.length > 0)
    lines.push(`  not in the log, so the signs that need these quantities are missing: ${unseen.join(", ")}`);
  if (!("success" in columns))
    lines.push(
      "  without the success, diagnose cannot distinguish a solved task from a collapse; name its column: --column success=NAME",
    );
  if (notFinite > 0) lines.push(`  ${notFinite} values are NaN or infinite; they are left out`);
  return lines;
}

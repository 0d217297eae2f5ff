/**
 * The table of a sweep: for each group and figure the mean over its finished runs, with its 95 % interval. Printed, and written as
 * Parquet and CSV, besides a table of the single runs.
 */
import { existsSync, readFileSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { type MetricName, metric } from "../../actors/metrics/metrics.ts";
import { RecordedRun } from "../../actors/record/recorded-run.ts";
import type { Report } from "../../actors/training/report.ts";
import { aligned } from "../cli/aligned.ts";
import { reportFile } from "../cli/run-folder.ts";
import { type Columns, named, type Row, writeCsv, writeParquet } from "../export/tables.ts";
import { type Mean, meanOf } from "./interval.ts";
import type { PlannedRun, Sweep } from "./plan.ts";

interface Figure {
  readonly name: string;
  /** Of the printed table; it has percentages for shares. */
  readonly head: string;
  readonly isShare: boolean;
  /** null if the run did not measure it. */
  readonly of: (run: Measured) => number | null;
}

interface Measured {
  readonly report: Report;
  readonly record: RecordedRun;
  readonly latest: ReadonlyMap<string, number>;
}

const share = (name: string, head: string, of: Figure["of"]): Figure => ({ name, head, of, isShare: true });

/** Success is of the validation boards, at the temperature of validation unless it says T 1. */
const FIGURES: readonly Figure[] = [
  share("random", "random", ({ report }) => report.success.random),
  share("taught", "taught", ({ report }) => report.success.taught),
  share("taught_t1", "taught T 1", ({ report }) => report.successAtOne.taught),
  share("before", "before", ({ report }) => report.success.before),
  share("after", "after", ({ report }) => report.success.after),
  share("after_t1", "after T 1", ({ report }) => report.successAtOne.after),
  share("highest", "highest", ({ record }) => {
    const curve = record.curve("validate/success");
    return curve === null ? null : Math.max(...curve.values);
  }),
  share("best", "best possible", ({ report }) => report.success.best),
  share("well_formed", "well-formed", ({ latest }) => {
    const malformed = latest.get("validate/format_errors");
    return malformed === undefined ? null : 1 - malformed;
  }),
  { name: "updates", head: "updates", isShare: false, of: ({ report }) => report.updates },
  // From the start of the run to its end, all its sessions; the warm start too, unless an earlier run had cached it.
  { name: "minutes", head: "minutes", isShare: false, of: ({ record }) => minutesOf(record) },
];

function minutesOf({ facts }: RecordedRun): number {
  return (facts.earlierMs + facts.seenMs - facts.startedMs) / 60_000;
}

const latestOf = (name: MetricName): Figure => ({
  name,
  head: name,
  isShare: metric(name).unit === "share",
  of: ({ latest }) => latest.get(name) ?? null,
});

/** The figures of one finished run, by name. */
export interface RunFigures {
  readonly run: PlannedRun;
  readonly figures: Readonly<Record<string, number | null>>;
}

export interface GroupFigure extends Mean {
  readonly group: string;
  readonly figure: string;
}

export interface SweepTable {
  readonly figures: readonly Figure[];
  readonly runs: readonly RunFigures[];
  readonly groups: readonly GroupFigure[];
}

export const isFinished = (run: PlannedRun): boolean => existsSync(reportFile(run));

/** Of the finished runs. */
export function sweepTable(sweep: Sweep): SweepTable {
  const figures = [...FIGURES, ...sweep.metrics.map(latestOf)];
  const runs = sweep.runs.filter(isFinished).map((run) => ({ run, figures: measure(run, figures) }));
  const groups = sweep.groups.flatMap((group) =>
    figures.flatMap(({ name }) => {
      const own = runs.filter(({ run }) => run.group === group).map((run) => run.figures[name]!);
      const values = own.filter((value) => value !== null);
      return values.length === 0 ? [] : [{ group, figure: name, ...meanOf(values) }];
    }),
  );
  return { figures, runs, groups };
}

function measure(run: PlannedRun, figures: readonly Figure[]): RunFigures["figures"] {
  const report = JSON.parse(readFileSync(reportFile(run), "utf8")) as Report;
  const record = new RecordedRun(run.folder);
  try {
    const latest = new Map(record.latest().map(({ name, value }) => [name, value]));
    return Object.fromEntries(figures.map(({ name, of }) => [name, of({ report, record, latest })]));
  } finally {
    record.close();
  }
}

/** One row a group: mean ± half of the 95 % interval; n is the number of finished runs. Figures that no run measured are left out. */
export function tableText({ groups: names, seeds }: Sweep, { figures, groups, runs }: SweepTable): string {
  const measured = figures.filter(({ name }) => groups.some(({ figure }) => figure === name));
  const rows = names.map((group) => [
    group,
    `${runs.filter(({ run }) => run.group === group).length}/${seeds.length}`,
    ...measured.map((figure) => {
      return cell(
        figure,
        groups.find((one) => one.group === group && one.figure === figure.name),
      );
    }),
  ]);
  return aligned([["", "n", ...measured.map(({ head }) => head)], ...rows]);
}

function cell({ isShare }: Figure, mean: GroupFigure | undefined): string {
  if (mean === undefined) return "–";
  const text = (value: number) => (isShare ? (100 * value).toFixed(1) : Number(value.toPrecision(3)).toString());
  const half = mean.high === null || mean.std === 0 ? "" : ` ± ${text(mean.high - mean.mean)}`;
  return `${text(mean.mean)}${half}${isShare ? " %" : ""}`;
}

const GROUP_COLUMNS: Columns = [
  ...named("STRING", "group", "figure"),
  ...named("INT32", "n"),
  ...named("DOUBLE", "mean", "low", "high", "std"),
];

/** Writes table.parquet and table.csv (a row for each group and figure), runs.parquet and runs.csv (a row for each run). */
export async function writeTables(folder: string, { figures, groups, runs }: SweepTable): Promise<void> {
  const runColumns: Columns = [
    ...named("STRING", "group", "run"),
    ...named("DOUBLE", "seed", ...figures.map(({ name }) => name)),
  ];
  const runRows = runs.map(({ run, figures }) => ({ group: run.group, run: run.folder, seed: run.seed, ...figures }));
  await replaceTable(join(folder, "table"), GROUP_COLUMNS, [...groups]);
  await replaceTable(join(folder, "runs"), runColumns, runRows);
}

async function replaceTable(path: string, columns: Columns, rows: readonly (Row | GroupFigure)[]): Promise<void> {
  const write = { parquet: writeParquet, csv: writeCsv };
  for (const [kind, writeTo] of Object.entries(write)) {
    const pending = `${path}.${kind}.writing`;
    rmSync(pending, { force: true });
    await writeTo(pending, columns, rows as readonly Row[]);
    renameSync(pending, `${path}.${kind}`);
  }
}

/**
 * The table of a sweep. A group is a preset with the settings of one variant; it has one run for each seed. A figure is a number of one run, such
 * as its success at the end. For each group and figure the table has the mean over the group's finished runs, with the 95 % interval.
 * `bun run sweep` prints the table, and writes it as Parquet and CSV. It also writes a table with the figures of each run.
 */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { writeWhole } from "../../actors/checkpoint/disk.ts";
import { type MetricName, metric } from "../../actors/metrics/metrics.ts";
import { RecordedRun } from "../../actors/record/recorded-run.ts";
import type { Report } from "../../actors/training/report.ts";
import { reportFile } from "../../library/run-folder.ts";
import { type Mean, meanOf } from "../../model/interval.ts";
import { type Columns, named, type Row, writeCsv, writeParquet } from "../export/tables.ts";
import type { PlannedRun, Sweep } from "./plan.ts";

interface Figure {
  readonly name: string;
  /** Head of the column in the printed table, which shows shares as percentages. */
  readonly head: string;
  readonly isShare: boolean;
  /** null if the run did not measure the figure. */
  readonly of: (run: Measured) => number | null;
}

interface Measured {
  readonly report: Report;
  readonly record: RecordedRun;
  readonly latest: ReadonlyMap<string, number>;
}

const share = (name: string, head: string, of: Figure["of"]): Figure => ({ name, head, of, isShare: true });

/**
 * Shares of the validation boards that a player solves: the random player (`random`), the optimal player (`best`), or the policy after the first
 * stage of the warm start (`taught`), before the first update (`before`), after the last update (`after`) and at its best validation
 * (`highest`). The policy plays at the temperature `validate.temperature`; at temperature 1 in columns whose head says T 1.
 */
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
  // The time of all sessions of the run, the warm start included. A run that takes its warm start from the cache needs almost no time for it.
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

export interface GroupFigure extends Mean {
  readonly group: string;
  readonly figure: string;
  /**
   * Comparison with the first group. A difference is this group's value minus the first group's value at the same seed. `change` is the mean of
   * the differences, and `change_low` to `change_high` is its 95 % interval. Runs of equal seeds begin with equal random draws, so the
   * differences often vary less than the values of a group. All three are null for the first group, and for a group that shares no seed with
   * the first group.
   */
  readonly change: number | null;
  readonly change_low: number | null;
  readonly change_high: number | null;
}

export type SweepTable = ReturnType<typeof sweepTable>;

export const isFinished = (run: PlannedRun): boolean => existsSync(reportFile(run));

export function sweepTable(sweep: Sweep) {
  const figures = [...FIGURES, ...sweep.metrics.map(latestOf)];
  const runs = sweep.runs.filter(isFinished).map((run) => ({ run, figures: measure(run, figures) }));
  const bySeed = (group: string, figure: string) =>
    new Map(
      runs.flatMap(({ run, figures }) => {
        const value = run.group === group ? figures[figure]! : null;
        return value === null ? [] : [[run.seed, value] as const];
      }),
    );
  const [first] = sweep.groups;
  const groups = sweep.groups.flatMap((group) =>
    figures.flatMap(({ name }): GroupFigure[] => {
      const own = bySeed(group, name);
      if (own.size === 0) return [];
      const reference = bySeed(first!, name);
      const pairs = group === first ? [] : [...own].filter(([seed]) => reference.has(seed));
      const changes = pairs.map(([seed, value]) => value - reference.get(seed)!);
      const change = changes.length === 0 ? null : meanOf(changes);
      const ends = { change_low: change?.low ?? null, change_high: change?.high ?? null };
      return [{ group, figure: name, ...meanOf([...own.values()]), change: change?.mean ?? null, ...ends }];
    }),
  );
  return { figures, runs, groups };
}

function measure(run: PlannedRun, figures: readonly Figure[]): Record<string, number | null> {
  const report = JSON.parse(readFileSync(reportFile(run), "utf8")) as Report;
  using record = new RecordedRun(run.folder);
  const measured = { report, record, latest: record.latest() };
  return Object.fromEntries(figures.map(({ name, of }) => [name, of(measured)]));
}

/** One row for each group: means ± half of the 95 % interval. n is finished runs / planned runs. A figure that no run measured has no column. */
export function tableRows({ groups: names, seeds }: Sweep, { figures, groups, runs }: SweepTable): string[][] {
  const measured = figures.filter(({ name }) => groups.some(({ figure }) => figure === name));
  const after = figures.find(({ name }) => name === "after")!;
  const rows = names.map((group) => {
    const own = groups.filter((one) => one.group === group);
    const of = (name: string) => own.find(({ figure }) => figure === name);
    const { change = null, change_high = null } = of("after") ?? {};
    return [
      group,
      `${runs.filter(({ run }) => run.group === group).length}/${seeds.length}`,
      ...measured.map((figure) => cell(figure, of(figure.name)?.mean ?? null, of(figure.name)?.high ?? null)),
      ...(names.length > 1 ? [cell(after, change, change_high)] : []),
    ];
  });
  const heads = [
    "",
    "n",
    ...measured.map(({ head }) => head),
    ...(names.length > 1 ? [`after minus ${names[0]}`] : []),
  ];
  return [heads, ...rows];
}

/** @param high  upper end of the interval; null for one value */
function cell({ isShare }: Figure, mean: number | null, high: number | null): string {
  if (mean === null) return "–";
  const text = (value: number) => (isShare ? (100 * value).toFixed(1) : Number(value.toPrecision(3)).toString());
  const half = high === null || high === mean ? "" : ` ± ${text(high - mean)}`;
  return `${text(mean)}${half}${isShare ? " %" : ""}`;
}

const GROUP_COLUMNS: Columns = [
  ...named("STRING", "group", "figure"),
  ...named("INT32", "n"),
  ...named("DOUBLE", "mean", "low", "high", "std", "change", "change_low", "change_high"),
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
    await writeWhole(`${path}.${kind}`, (pending) => writeTo(pending, columns, rows as readonly Row[]));
  }
}

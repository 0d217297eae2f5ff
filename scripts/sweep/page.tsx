/** @jsxImportSource hono/jsx */
/** A sweep as one page in one file: its table, curves, the settings that differ between groups, and its runs. The page has no script. */
import { raw } from "hono/html";
import { differingSettings } from "../../actors/config/layers.ts";
import type { MetricName } from "../../actors/metrics/metrics.ts";
import { percent } from "../../actors/number-text.ts";
import { shellWord } from "../cli/texts.ts";
import { type Entry, readRun } from "../curves/entries.ts";
import { BASELINES, ENTRIES_MAX, picture, SUCCESS } from "../curves/picture.ts";
import type { Sweep } from "./plan.ts";
import { type SweepTable, tableRows } from "./table.ts";

export const INTERVAL_TEXT =
  "n: finished / planned runs. Mean ± half of the 95 % interval over the finished runs (Student's t). Differences are paired by seed";

/** Metrics that the page of every sweep shows as curves. The page also shows the metrics that the sweep's file names. */
const METRICS: readonly MetricName[] = [SUCCESS, "train/in_group_std", "train/entropy", "train/grad_norm"];

const STYLE = `body{font:14px/1.5 system-ui,"Noto Sans",sans-serif;margin:24px;background:#f5f2ec;color:#211f1b}
h1{font-size:20px}h2{font-size:16px;margin-top:32px}section{overflow-x:auto}svg{max-width:100%;height:auto}
table{border-collapse:collapse;background:#fffdf9;font-variant-numeric:tabular-nums}
th,td{padding:4px 10px;border:1px solid #e6e0d4;text-align:right;white-space:nowrap}th:first-child,td:first-child{text-align:left}
pre{white-space:pre-wrap}`;

export function sweepPage(title: string, sweep: Sweep, table: SweepTable): string {
  const first = sweep.groups.map((group) => sweep.runs.find((run) => run.group === group)!);
  const differences = Object.entries(differingSettings(first.map(({ config }) => config)));
  const page = (
    <html lang="en">
      <head>
        <meta charset="utf-8" />
        <meta name="viewport" content="width=device-width, initial-scale=1" />
        <title>{`${title} · Bunraku`}</title>
        <style>{raw(STYLE)}</style>
      </head>
      <body>
        <h1>{title}</h1>
        <p>{`${table.runs.length} of ${sweep.runs.length} runs have finished; seeds ${sweep.seeds.join(", ")}`}</p>
        <Table rows={tableRows(sweep, table)} />
        <p>{INTERVAL_TEXT}</p>
        <h2>Curves</h2>
        {picturesOf(sweep, table).map((svg) => (
          <section>{raw(svg)}</section>
        ))}
        <h2>Settings that differ</h2>
        <Table
          rows={[
            ["", ...sweep.groups],
            ...differences.map(([path, values]) => [path, ...values.map((value) => JSON.stringify(value))]),
          ]}
        />
        <h2>Runs</h2>
        <Table
          rows={[
            ["run", "seed", "before", "after", "after T 1"],
            ...table.runs.map(({ run, figures }) => {
              const shares = ["before", "after", "after_t1"].map((name) => percent(figures[name] ?? null));
              return [run.folder, String(run.seed), ...shares];
            }),
          ]}
        />
        <p>The first run of each group as a command:</p>
        <pre>{first.map(({ flags }) => `bun run cluster ${flags.map(shellWord).join(" ")}`).join("\n")}</pre>
      </body>
    </html>
  );
  return `<!doctype html>\n${page}\n`;
}

const Table = ({ rows: [head, ...rows] }: { rows: readonly (readonly string[])[] }) => (
  <section>
    <table>
      <tr>
        {head!.map((text) => (
          <th>{text}</th>
        ))}
      </tr>
      {rows.map((row) => (
        <tr>
          {row.map((text) => (
            <td>{text}</td>
          ))}
        </tr>
      ))}
    </table>
  </section>
);

/** Makes pictures of at most `ENTRIES_MAX` groups each, because a picture has only `ENTRIES_MAX` colors. */
function picturesOf(sweep: Sweep, { runs }: SweepTable): string[] {
  const metrics = [...new Set([...METRICS, ...sweep.metrics])];
  const drawn = [...metrics, ...Object.values(BASELINES)];
  const entries = sweep.groups.flatMap((label): Entry[] => {
    const own = runs.filter(({ run }) => run.group === label);
    const read = own.map(({ run }) => readRun(run.folder, `${label} seed ${run.seed}`, drawn));
    return read.length === 0 ? [] : [{ label, isGroup: true, isDashed: false, runs: read }];
  });
  const pictures = Map.groupBy(entries, (_, i) => Math.floor(i / ENTRIES_MAX));
  return [...pictures.values()].map((some) => picture(some, metrics, null));
}

/**
 * `bun run sweep`: plays the runs of a YAML file (presets × variants × seeds) and prints one table. A group here is a
 * preset with a variant; the table has each group's mean over its seeds, with the 95 % interval.
 *
 * - A signal may kill the command and its runs at any time. The next call keeps the finished runs and continues the other runs. A run
 *   that is still in progress in another process counts as failed.
 */
import { basename, join } from "node:path";
import { writeWhole } from "../actors/checkpoint/disk.ts";
import { runKeys } from "../actors/config/config.ts";
import { visible } from "../actors/dashboard/client/text.ts";
import { oneLine } from "../actors/errors.ts";
import { lockRun } from "../actors/supervisor/run-lock.ts";
import { makeFolder } from "./cli/make-folder.ts";
import { type Command, flag, type Parsed, UsageError } from "./cli/options.ts";
import { runsFolder } from "./cli/presets.ts";
import { progressBar } from "./cli/run-status.ts";
import { onStopSignal } from "./cli/stop-signals.ts";
import { aligned } from "./cli/texts.ts";
import { INTERVAL_TEXT, sweepPage } from "./sweep/page.tsx";
import { type PlannedRun, planSweep, type Sweep, sweepName } from "./sweep/plan.ts";
import { checkFolder, SweepPlay, shareDone } from "./sweep/play.ts";
import { isFinished, sweepTable, tableRows, writeTables } from "./sweep/table.ts";

export const command = {
  words: {
    show: "FILE",
    text: "YAML file with presets, seeds, set, variants and metrics; see configs/sweeps/",
    max: 1,
  },
  flags: {
    "at-once": flag.positive("N", "Runs at the same time (default: 1)"),
    out: flag.text(
      "DIR",
      "Folder of the sweep (default: the file's name, in runs/ or in runsFolder of bunraku.config.ts)",
    ),
    table: flag.switch("Start no run; write the table and the page of the finished runs"),
    json: flag.switch("End standard output with one JSON object"),
  },
  examples: [
    "bun run sweep configs/sweeps/filter-ratio.yaml",
    "bun run sweep configs/sweeps/filter-ratio.yaml --at-once 2 --out runs/filter-ratio-fast --learner.updates=50",
    "bun run sweep configs/sweeps/filter-ratio.yaml --table",
  ],
  overrides: runKeys,
} as const satisfies Command;

const REDRAW_MS = 2000;

export async function main({ flags, words, overrides }: Parsed<typeof command>): Promise<number> {
  const [file] = words;
  if (file === undefined) throw new UsageError("name the sweep: a YAML file, such as configs/sweeps/filter-ratio.yaml");
  const {
    "at-once": atOnce = 1,
    out = join(runsFolder(), sweepName(file)),
    table: onlyTable = false,
    json = false,
  } = flags;
  if (onlyTable && flags["at-once"] !== undefined)
    throw new UsageError("--table starts no run, and --at-once counts runs; leave one out");
  const sweep = await planSweep(file, out, overrides);
  for (const run of sweep.runs) checkFolder(run);
  makeFolder(out);
  const failed = onlyTable ? [] : await playSweep(sweep, out, atOnce);
  const table = sweepTable(sweep);
  await writeTables(out, table);
  const page = join(out, "index.html");
  const html = sweepPage(sweepName(file), sweep, table);
  await writeWhole(page, (pending) => Bun.write(pending, html));
  console.log(aligned(tableRows(sweep, table)));
  console.log(`\n${INTERVAL_TEXT}\nthis table with curves: ${page}; as data: ${join(out, "table.csv")}, …`);
  if (json) {
    const runs = table.runs.map(({ run: { group, seed, folder }, figures }) => ({ group, seed, run: folder, figures }));
    console.log(JSON.stringify({ out, groups: table.groups, runs, failed }));
  }
  return failed.length === 0 ? 0 : 1;
}

/** @returns the runs that failed */
async function playSweep(sweep: Sweep, out: string, atOnce: number): Promise<{ run: string; reason: string }[]> {
  const lock = lockRun(out);
  const failed: { run: string; reason: string }[] = [];
  const view = new SweepView(sweep.runs);
  const name = ({ folder }: PlannedRun) => basename(folder);
  const playing = new SweepPlay({
    said: (run, line) => view.note(`${name(run)}: ${line}`),
    ended(run, reason) {
      if (reason !== null) failed.push({ run: run.folder, reason });
      const finished = `has finished (${sweep.runs.filter(isFinished).length} of ${sweep.runs.length} runs)`;
      view.note(`${name(run)} ${reason === null ? finished : `failed: ${reason}`}`);
    },
  });
  onStopSignal((signal) => {
    view.note(
      `${signal}: the runs save and stop; the same command continues them later. Press Ctrl-C again to leave at once`,
    );
    playing.stop(signal);
  });
  const redrawing = setInterval(() => view.draw(playing.going), REDRAW_MS);
  const unfinished = sweep.runs.filter((run) => !isFinished(run));
  await playing.play(unfinished, atOnce);
  clearInterval(redrawing);
  view.clear();
  lock.release();
  return failed;
}

const doneOf = (runs: readonly PlannedRun[]) => runs.reduce((sum, run) => sum + shareDone(run), 0);

/** Prints lines on standard error. On a terminal it redraws the last line, which shows the finished share and the time left. */
class SweepView {
  readonly #runs: readonly PlannedRun[];
  readonly #startedMs = performance.now();
  /** Sum of the runs' finished shares when this process started. */
  readonly #doneBefore: number;
  #foot = "";

  constructor(runs: readonly PlannedRun[]) {
    this.#runs = runs;
    this.#doneBefore = doneOf(runs);
    const finished = runs.filter(isFinished).length;
    if (finished > 0) this.note(`${finished} of ${runs.length} runs had finished before`);
  }

  note(text: string): void {
    const foot = this.#foot;
    this.clear();
    process.stderr.write(`${visible(oneLine(text))}\n`);
    this.#write(foot);
  }

  draw(going: readonly PlannedRun[]): void {
    if (process.stderr.isTTY !== true) return;
    const { length } = this.#runs;
    const done = doneOf(this.#runs);
    const pace = (done - this.#doneBefore) / (performance.now() - this.#startedMs);
    const names = going.map(({ folder }) => basename(folder)).join(", ");
    const text = `${this.#runs.filter(isFinished).length}/${length} runs: ${names}`;
    const minutesLeft = pace > 0 ? (length - done) / pace / 60_000 : null;
    this.clear();
    this.#write(progressBar(done / length, text, minutesLeft).slice(0, (process.stderr.columns ?? 120) - 1));
  }

  clear(): void {
    if (this.#foot !== "") process.stderr.write("\r\u001b[J");
    this.#foot = "";
  }

  #write(foot: string): void {
    process.stderr.write(foot);
    this.#foot = foot;
  }
}

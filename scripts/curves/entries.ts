/** Reads the runs of a picture from the runs' folders. A run may still be in progress. */
import { resolve, sep } from "node:path";
import type { Points } from "../../actors/dashboard/client/curve.ts";
import { isMetricName, METRIC_NAMES, type MetricName, metric } from "../../actors/metrics/metrics.ts";
import { RecordedRun } from "../../actors/record/recorded-run.ts";
import { didYouMean, nearest } from "../../envs/text/nearest.ts";
import { firstRepeated } from "../../envs/text/repeats.ts";
import { UsageError } from "../cli/options.ts";

export interface Run {
  readonly name: string;
  readonly env: string;
  /** null if the run did not record the metric. */
  curve(name: MetricName): Points | null;
}

/** One line of a picture: a run, or runs that differ only in their seeds. */
export interface Entry {
  readonly label: string;
  readonly isGroup: boolean;
  readonly isDashed: boolean;
  readonly runs: readonly Run[];
}

/**
 * Reads single runs, then groups, in the order of the command line.
 *
 * @param groups  each "LABEL=RUN,RUN"
 * @param dashed  labels of the dashed lines
 * @throws {UsageError} if a group has no label, if two lines have the same label, if a group or the list of single runs names a run twice, or if
 *   no line has a label of `dashed`
 * @throws {Error} if a folder has no run
 */
export function readEntries(
  folders: readonly string[],
  groups: readonly string[],
  dashed: readonly string[],
  metrics: readonly MetricName[],
): Entry[] {
  const split = groups.map(splitGroup);
  const paths = [...folders, ...split.flatMap((group) => group.folders)].map((folder) => resolve(folder));
  refuseRepeated(folders, (folder) => `the run ${folder} is named twice`);
  const runs = new Map([...new Set(paths)].map((path) => [path, readRun(path, shortName(path, paths), metrics)]));
  const runOf = (folder: string) => runs.get(resolve(folder))!;
  const entryOf = (label: string, isGroup: boolean, runs: readonly Run[]): Entry => {
    return { label, isGroup, isDashed: dashed.includes(label), runs };
  };
  const entries = [
    ...folders.map((folder) => entryOf(runOf(folder).name, false, [runOf(folder)])),
    ...split.map(({ label, folders }) => entryOf(label, true, folders.map(runOf))),
  ];
  const labels = entries.map(({ label }) => label);
  const repeated = firstRepeated(labels);
  if (repeated !== undefined)
    throw new UsageError(`two lines would have the label "${repeated}"; rename one: --group LABEL=RUN`);
  const unknown = dashed.find((label) => !labels.includes(label));
  if (unknown !== undefined)
    throw new UsageError(`--dashed names "${unknown}", but the lines are ${labels.join(", ")}`);
  return entries;
}

function splitGroup(text: string): { label: string; folders: string[] } {
  const at = text.indexOf("=");
  const label = text.slice(0, Math.max(at, 0)).trim();
  const folders = text.slice(at + 1).split(",");
  if (label === "" || folders.includes("")) {
    throw new UsageError(`--group takes LABEL=RUN,RUN with the folders of runs, got "${text}"`);
  }
  refuseRepeated(folders, (folder) => `--group ${label} names the run ${folder} twice`);
  return { label, folders };
}

function refuseRepeated(folders: readonly string[], message: (folder: string) => string): void {
  const repeated = firstRepeated(folders.map((folder) => resolve(folder)));
  if (repeated !== undefined) throw new UsageError(message(repeated));
}

/** The folder's name, with parent folders where they are needed to distinguish the run from the other runs. */
function shortName(path: string, others: readonly string[]): string {
  const name = (of: string, parts: number) => of.split(sep).slice(-parts).join("/");
  let parts = 1;
  while (others.some((other) => other !== path && name(other, parts) === name(path, parts))) parts++;
  return name(path, parts);
}

/** @param source  what names the metric. @throws {UsageError} if there is no such metric, or if a run has no single curve of it */
export function runMetric(name: string, source: string): MetricName {
  if (!isMetricName(name)) {
    const hint = didYouMean(nearest(name, METRIC_NAMES)) || "; `bun run metrics` lists them";
    throw new UsageError(`${source}: no metric named "${name}"${hint}`);
  }
  if (metric(name).perActor)
    throw new UsageError(`${source}: ${name} has a value for each actor, and none for the run; leave it out`);
  return name;
}

/** @throws {Error} if the folder has no run. */
export function readRun(folder: string, name: string, metrics: readonly MetricName[]): Run {
  using run = new RecordedRun(folder);
  const curves = new Map(metrics.map((metric) => [metric, run.curve(metric)]));
  return { name, env: run.facts.env, curve: (metric) => curves.get(metric) ?? null };
}

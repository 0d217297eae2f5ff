/**
 * The runs that a picture shows: found by folder, read from `run.sqlite`, named so that no two look alike.
 * Only reads; a run that is still going may be drawn. Knows nothing of drawing.
 */
import { existsSync } from "node:fs";
import { basename, join, resolve, sep } from "node:path";
import type { MetricName } from "../../actors/metrics/metrics.ts";
import type { StoredRun } from "../../actors/metrics-sink/records.ts";
import { Store } from "../../actors/metrics-sink/store.ts";
import { UsageError } from "../cli/options.ts";
import type { Curve } from "./curve.ts";

export interface Run {
  readonly name: string;
  readonly facts: StoredRun;
  /** null if the run never recorded it. */
  curve(name: MetricName): Curve | null;
}

/** What has one colour and one label: a run, or several that differ in their seeds. */
export interface Entry {
  readonly label: string;
  /** Asked for as a group, even if of one. */
  readonly group: boolean;
  readonly runs: readonly Run[];
}

/**
 * Read the runs of the command line, in its order: single runs, then groups.
 *
 * @param groups each "LABEL=RUN,RUN"
 * @throws {UsageError} if a folder has no run, a label is missing or used twice, or a run is named twice in one place.
 */
export function readEntries(
  folders: readonly string[],
  groups: readonly string[],
  wanted: readonly MetricName[],
): Entry[] {
  const split = groups.map(splitGroup);
  const all = [...new Set([...folders, ...split.flatMap((group) => group.folders)].map((folder) => resolve(folder)))];
  const names = shortNames(all);
  const runs = new Map(all.map((folder) => [folder, readRun(folder, names.get(folder)!, wanted)]));
  const runOf = (folder: string) => runs.get(resolve(folder))!;
  refuseTwice(
    folders.map((folder) => resolve(folder)),
    (folder) => `the run ${folder} is named twice`,
  );
  const entries = [
    ...folders.map((folder): Entry => ({ label: runOf(folder).name, group: false, runs: [runOf(folder)] })),
    ...split.map(({ label, folders }): Entry => ({ label, group: true, runs: folders.map(runOf) })),
  ];
  refuseTwice(
    entries.map(({ label }) => label),
    (label) => `two lines would have the label "${label}"; rename one: --group LABEL=RUN`,
  );
  return entries;
}

function splitGroup(text: string): { label: string; folders: string[] } {
  const at = text.indexOf("=");
  const label = text.slice(0, Math.max(at, 0)).trim();
  const folders = text.slice(at + 1).split(",");
  if (label === "" || folders.includes("")) {
    throw new UsageError(`--group takes LABEL=RUN,RUN with the folders of runs, got "${text}"`);
  }
  refuseTwice(
    folders.map((folder) => resolve(folder)),
    (folder) => `--group ${label} names the run ${folder} twice`,
  );
  return { label, folders };
}

function refuseTwice(words: readonly string[], message: (word: string) => string): void {
  const twice = words.find((word, index) => words.indexOf(word) !== index);
  if (twice !== undefined) throw new UsageError(message(twice));
}

/** A folder's own name, with as many of its parents as tell it from the others. */
function shortNames(folders: readonly string[]): Map<string, string> {
  const name = (folder: string, parts: number) => folder.split(sep).slice(-parts).join("/") || basename(folder);
  return new Map(
    folders.map((folder) => {
      let parts = 1;
      while (folders.some((other) => other !== folder && name(other, parts) === name(folder, parts))) parts++;
      return [folder, name(folder, parts)];
    }),
  );
}

function readRun(folder: string, name: string, wanted: readonly MetricName[]): Run {
  const path = join(folder, "run.sqlite");
  if (!existsSync(path)) throw new UsageError(`no run in ${folder}: there is no run.sqlite`);
  const store = new Store({ path, durability: "normal", wallClock: Date.now, readOnly: true });
  try {
    const facts = store.run();
    if (facts === null) throw new UsageError(`no run in ${folder}: its run.sqlite is of a run that never started`);
    const curves = new Map(wanted.map((metric) => [metric, oneCurve(store, metric, folder)]));
    return { name, facts, curve: (metric) => curves.get(metric) ?? null };
  } finally {
    store.close();
  }
}

function oneCurve(store: Store, name: MetricName, folder: string): Curve | null {
  const [curve = null, other] = store.series([name], 0);
  if (other === undefined) return curve;
  throw new Error(
    `cannot draw ${name} of ${folder}: both ${curve!.actor} and ${other.actor} recorded it, and a run has one line`,
  );
}

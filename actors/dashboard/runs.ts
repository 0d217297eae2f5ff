/**
 * Reads other runs in the same parent folder, for comparisons. A run that cannot be read is listed with the reason.
 *
 * - A requested name is looked up in the list of folders and never joined to a path unchecked.
 */
import { existsSync, readdirSync, statSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import type { MetricName } from "../metrics/metrics.ts";
import { Store } from "../metrics-sink/store.ts";
import type { OtherRun, Series } from "./answers.ts";

/** Most folders that are read, newest first; there may be thousands. */
const RUNS_MAX = 100;

export class NearbyRuns {
  readonly #folder: string;

  /** @param folder  of this run, which is not listed */
  constructor(folder: string) {
    this.#folder = folder;
  }

  list(): { runs: OtherRun[]; unreadable: { name: string; reason: string }[] } {
    const runs: OtherRun[] = [];
    const unreadable: { name: string; reason: string }[] = [];
    for (const name of this.#names()) {
      try {
        const found = this.#read(name, (store) => summaryOf(name, store));
        if (found !== null) runs.push(found);
      } catch (error) {
        unreadable.push({ name, reason: (error as Error).message });
      }
    }
    return { runs: runs.sort((a, b) => b.startedMs - a.startedMs), unreadable };
  }

  /** Null if there is no such run. @throws {Error} if the run cannot be read */
  series(name: string, names: readonly MetricName[]): Series[] | null {
    if (!this.#names().includes(name)) return null;
    return this.#read(name, (store) => store.series(names, 0));
  }

  #names(): string[] {
    const parent = dirname(this.#folder);
    const own = basename(this.#folder);
    if (!existsSync(parent)) return [];
    const folders = readdirSync(parent, { withFileTypes: true })
      // Links are not followed: they may lead anywhere.
      .filter(
        (entry) => entry.isDirectory() && entry.name !== own && existsSync(join(parent, entry.name, "run.sqlite")),
      )
      .map(({ name }) => ({ name, changedMs: statSync(join(parent, name, "run.sqlite")).mtimeMs }));
    return folders
      .sort((a, b) => b.changedMs - a.changedMs)
      .slice(0, RUNS_MAX)
      .map(({ name }) => name);
  }

  #read<T>(name: string, read: (store: Store) => T): T {
    const path = join(dirname(this.#folder), name, "run.sqlite");
    const store = new Store({ path, durability: "normal", wallClock: Date.now, readOnly: true });
    try {
      return read(store);
    } finally {
      store.close();
    }
  }
}

function summaryOf(name: string, store: Store): OtherRun | null {
  const facts = store.run();
  if (facts === null) return null;
  const latest = new Map(store.latest().map((point) => [point.name, point.value]));
  return {
    name,
    run: facts.name,
    env: facts.env,
    startedMs: facts.startedMs,
    update: latest.get("total/updates") ?? null,
    success: latest.get("validate/success") ?? null,
  };
}

/** Reads the record of a run in pages of rows. Lists begin with the oldest row. The run may still write to the record. */
import { existsSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import type { Series, StoredEvent } from "../dashboard/answers.ts";
import type { MetricName } from "../metrics/metrics.ts";
import type { EpisodeFilter, RecordedEpisode, StoredRun } from "../metrics-sink/records.ts";
import { recordOf, type Store } from "../metrics-sink/store.ts";
import { type Costs, costsOf } from "./costs.ts";
import { latestOf, newestUpdate, seriesOf } from "./newest-update.ts";

const PAGE_ROWS = 1000;

export const hasRecord = (folder: string): boolean => existsSync(join(folder, "run.sqlite"));

export class RecordedRun {
  readonly facts: StoredRun;
  readonly store: Store;

  /** @throws {Error} if this folder holds no run. */
  constructor(folder: string) {
    if (!hasRecord(folder)) throw new Error(`no run in ${folder}: there is no run.sqlite${runsWithin(folder)}`);
    this.store = recordOf(folder);
    try {
      const facts = this.store.run();
      if (facts === null) throw new Error(`no run in ${folder}: its run.sqlite is of a run that never started`);
      this.facts = facts;
    } catch (error) {
      this.store.close();
      throw error;
    }
  }

  /** The latest value of each metric up to the newest update. A metric with a value per actor has the value of one actor. */
  latest(): Map<string, number> {
    return new Map(latestOf(this.store).map(({ name, value }) => [name, value]));
  }

  /** Steps and values up to the newest update, of a metric that has no value per actor; null if the record has no value. */
  curve(name: MetricName): Series | null {
    return seriesOf(this.store, [name])[0] ?? null;
  }

  costs(): Costs {
    return costsOf((name) => this.store.series([name], 0), newestUpdate(this.store));
  }

  events(): StoredEvent[] {
    const read = (before: number | undefined) => this.store.events({ before, limit: PAGE_ROWS });
    return backwards(read, (event) => event);
  }

  *episodes(filter: EpisodeFilter): Generator<RecordedEpisode> {
    const pages = (before: number | undefined) => this.store.episodes(filter, { before, limit: PAGE_ROWS }).rows;
    const ids = backwards(pages, ({ id }) => id);
    for (const id of ids) {
      const found = this.store.episode(id);
      // A resumed run may have replaced the episode since `backwards` read its id.
      if (found !== null) yield found;
    }
  }

  [Symbol.dispose](): void {
    this.store.close();
  }
}

/** Reads all pages of a list whose newest row is first. @param keep  the part of a row to return. @returns the rows, oldest first */
function backwards<T extends { readonly id: number }, K>(
  read: (before: number | undefined) => readonly T[],
  keep: (row: T) => K,
): K[] {
  const all: K[] = [];
  for (let before: number | undefined; ; ) {
    const page = read(before);
    for (const row of page) all.push(keep(row));
    if (page.length < PAGE_ROWS) return all.reverse();
    before = page.at(-1)!.id;
  }
}

/** @returns text that ends an error message and names a run in the folder; empty if the folder holds no run */
export function runsWithin(folder: string): string {
  const isFolder = statSync(folder, { throwIfNoEntry: false })?.isDirectory() === true;
  const names = isFolder ? readdirSync(folder, { withFileTypes: true }) : [];
  const runs = names.filter((entry) => entry.isDirectory() && existsSync(join(folder, entry.name, "config.json")));
  const first = runs.map(({ name }) => name).sort()[0];
  return first === undefined ? "" : `; the folder holds runs: name one, such as ${join(folder, first)}`;
}

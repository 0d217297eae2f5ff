/**
 * Reads the runs of a folder, for the list of runs and for comparisons. If a run cannot be read, the list gives the reason.
 *
 * - Only a name in the list of folders becomes part of a path, so that no request reaches a file outside the parent folder.
 */
import { createHash } from "node:crypto";
import { existsSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import type { MetricName } from "../metrics/metrics.ts";
import { recordOf, type Store } from "../metrics-sink/store.ts";
import { readRunConfig } from "../policy/saved-policy.ts";
import { seriesOf } from "../record/newest-update.ts";
import type { OtherRun, RunsAnswer, Series } from "./answers.ts";
import { overviewOf } from "./overview.ts";

/** Maximum number of runs of a folder that the page reads. A folder may have thousands of runs; the page reads those that changed last. */
const RUNS_MAX = 100;

export class NearbyRuns {
  readonly parent: string;
  /** Folder name of the page's own run, which the list leaves out; null if the list has all runs. */
  readonly own: string | null;

  constructor(parent: string, own: string | null) {
    this.parent = parent;
    this.own = own;
  }

  list(): RunsAnswer {
    const runs: OtherRun[] = [];
    const unreadable: { name: string; reason: string }[] = [];
    for (const name of this.#names()) {
      try {
        using store = recordOf(join(this.parent, name));
        const found = summaryOf(this.parent, name, store);
        if (found !== null) runs.push(found);
      } catch (error) {
        unreadable.push({ name, reason: (error as Error).message });
      }
    }
    const settings = this.own === null ? null : settingsDigest(join(this.parent, this.own));
    return { settings, runs: runs.sort((a, b) => b.startedMs - a.startedMs), unreadable };
  }

  /** The store of a run, which the caller must close; null if there is no such run. @throws {Error} if the run cannot be read */
  open(name: string): Store | null {
    return this.#names().includes(name) ? openRecord(join(this.parent, name)) : null;
  }

  /** Values of these metrics; null if there is no such run. @throws {Error} if the run cannot be read */
  series(name: string, names: readonly MetricName[]): Series[] | null {
    if (!this.#names().includes(name)) return null;
    using store = recordOf(join(this.parent, name));
    return seriesOf(store, names);
  }

  #names(): string[] {
    const { parent, own } = this;
    if (!existsSync(parent)) return [];
    const folders = readdirSync(parent, { withFileTypes: true })
      // `isDirectory` is false for a symbolic link, which may lead to any folder.
      .filter((entry) => entry.isDirectory() && entry.name !== own)
      .flatMap(({ name }) => {
        const changedMs = changedMsOf(join(parent, name, "run.sqlite"));
        return changedMs === null ? [] : [{ name, changedMs }];
      });
    return folders
      .sort((a, b) => b.changedMs - a.changedMs)
      .slice(0, RUNS_MAX)
      .map(({ name }) => name);
  }
}

/** When a record last changed; null if the folder has no record, may not be read, or has been removed meanwhile. */
function changedMsOf(record: string): number | null {
  try {
    return statSync(record).mtimeMs;
  } catch {
    return null;
  }
}

/** Opens the record of a run for all pages of the run. @throws {Error} if the file is no record, or the record is too old for the page */
export function openRecord(folder: string): Store {
  const store = recordOf(folder);
  if (store.isCurrent) return store;
  store.close();
  throw new Error(
    `cannot show ${folder}: an older version recorded it, and its record lacks data that the page needs; use that version`,
  );
}

function summaryOf(parent: string, name: string, store: Store): OtherRun | null {
  const facts = store.run();
  const overview = overviewOf(store);
  if (facts === null || overview === null) return null;
  const { seed, startedMs } = facts;
  const { run, env, phase, update, success } = overview;
  const settings = settingsDigest(join(parent, name));
  return { name, run, env, seed, settings, phase, startedMs, update, success: success.now };
}

/** A text that is equal for runs that differ only in seed, addresses and supervision; null if the config cannot be read. */
function settingsDigest(folder: string): string | null {
  try {
    const { seed: _, metrics: __, join: ___, transport: ____, supervisor: _____, ...settings } = readRunConfig(folder);
    return createHash("sha256").update(JSON.stringify(settings)).digest("hex").slice(0, 16);
  } catch {
    // The run's metrics can be read without its config.
    return null;
  }
}

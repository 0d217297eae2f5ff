/** Inspects a finished run: compares its recorded episodes with those that it must have, and counts the processes and files that remain. */
import { Database } from "bun:sqlite";
import { existsSync, readdirSync } from "node:fs";
import { basename, join } from "node:path";
import { GROUP_SIZE, GROUPS } from "./chaos-run.ts";
import { isAlive, weightFiles } from "./watch.ts";

interface Row {
  readonly episode: string;
  readonly trainedIn: number;
  readonly digest: string;
  readonly version: number;
  readonly atMs: number;
}

/** @param updates  number of finished updates. @param learnerStartsMs  when each learner started, in milliseconds since the epoch */
export function inspect(
  folder: string,
  run: { readonly updates: number; readonly pids: readonly number[]; readonly learnerStartsMs: readonly number[] },
) {
  const { updates, pids, learnerStartsMs } = run;
  const rows = trainedRows(join(folder, "run.sqlite"));
  /** Number of the learner process that trained on the row. */
  const learnerOf = ({ atMs }: Row) => learnerStartsMs.filter((startMs) => startMs <= atMs).length;
  const count = <T>(groups: Map<string, readonly T[]>, of: (group: readonly T[]) => boolean) =>
    [...groups.values()].filter(of).length;
  const distinct = <T>(group: readonly T[], of: (one: T) => unknown) => new Set(group.map(of)).size;
  const trained = new Set(rows.map(({ episode, trainedIn }) => `${trainedIn} ${episode}`));
  let episodesLost = 0;
  for (let update = 1; update <= updates; update++) {
    for (let i = 0; i < GROUPS * GROUP_SIZE; i++) {
      const episode = `u${update - 1}.g${Math.floor(i / GROUP_SIZE)}.m${i % GROUP_SIZE}`;
      if (!trained.has(`${update} ${episode}`)) episodesLost++;
    }
  }
  return {
    /** Episodes of finished updates that are missing from the record. */
    episodesLost,
    /** Episodes that two updates used, or that one learner trained on twice. */
    duplicatesTrained: count(
      Map.groupBy(rows, ({ episode }) => episode),
      // A resumed learner repeats the updates after its checkpoint. Then two learner processes may train on the same episode, but both in the
      // same update.
      (group) => distinct(group, ({ trainedIn }) => trainedIn) > 1 || distinct(group, learnerOf) < group.length,
    ),
    /** Updates for which one learner used episodes of more than one policy version. Sync mode allows only one version in an update. */
    mixedVersions: count(
      Map.groupBy(rows, (row) => `${row.trainedIn} ${learnerOf(row)}`),
      (group) => distinct(group, ({ digest, version }) => `${version} ${digest}`) > 1,
    ),
    /** Processes, files in shared memory and unfinished checkpoints that the run left behind. */
    orphans: pids.filter(isAlive).length + weightFiles(basename(folder)).length + unfinishedCheckpoints(folder),
  };
}

function trainedRows(path: string): Row[] {
  if (!existsSync(path)) return [];
  using db = new Database(path, { readonly: true });
  const sql = `SELECT episode, trained_in AS trainedIn, digest, version, at_ms AS atMs FROM episodes
    WHERE trained_in IS NOT NULL ORDER BY id`;
  return db.query(sql).all() as Row[];
}

function unfinishedCheckpoints(folder: string): number {
  const checkpoints = join(folder, "checkpoints");
  return existsSync(checkpoints) ? readdirSync(checkpoints).filter((name) => name.startsWith(".")).length : 0;
}

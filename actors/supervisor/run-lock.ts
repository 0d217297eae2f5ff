/**
 * A lock for a run's folder: two supervisors would write the same checkpoints and the same store.
 *
 * - The lock is a transaction on a SQLite file of the folder. The system ends it when its process dies, so no lock is ever stale.
 *   The file names its process for people only.
 * - It does not work on file systems without locks, such as some network file systems.
 */
import { Database, SQLiteError } from "bun:sqlite";
import { join } from "node:path";

const FILE = "lock.sqlite";

export interface RunLock {
  release(): void;
}

/** @throws {Error} in one line, with the process that holds the lock */
export function lockRun(folder: string): RunLock {
  const file = join(folder, FILE);
  const db = new Database(file);
  try {
    db.run("BEGIN IMMEDIATE");
    db.run("CREATE TABLE IF NOT EXISTS holder (pid INTEGER, since TEXT)");
    db.run("DELETE FROM holder");
    db.run("INSERT INTO holder VALUES (?, datetime('now'))", [process.pid]);
    // Committed, so that others can read it. If another process comes between the transactions, it gets the lock.
    db.run("COMMIT");
    db.run("BEGIN IMMEDIATE");
  } catch (error) {
    if (!(error instanceof SQLiteError) || error.code !== "SQLITE_BUSY") throw error;
    const holder = db.query<{ pid: number; since: string }, []>("SELECT pid, since FROM holder").get();
    db.close();
    const who = holder === null ? "another process" : `process ${holder.pid} since ${holder.since} UTC`;
    throw new Error(`the run in ${folder} is being run by ${who}; stop that one first`);
  }
  return { release: () => db.close() };
}

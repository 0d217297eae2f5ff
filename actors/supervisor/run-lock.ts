/**
 * One supervisor per run folder: two would write the same checkpoints and the same store.
 *
 * - The lock is a transaction on a sqlite file of the folder, which the system ends when its holder dies, however it dies. So there
 *   is no stale lock to be judged; the file names its holder for people only.
 * - Not on file systems without locks, as some of the network.
 */
import { Database, SQLiteError } from "bun:sqlite";
import { join } from "node:path";

const FILE = "lock.sqlite";

export interface RunLock {
  release(): void;
}

/** @throws {Error} in one line naming the process that has it */
export function lockRun(folder: string): RunLock {
  const file = join(folder, FILE);
  const db = new Database(file);
  try {
    db.run("BEGIN IMMEDIATE");
    db.run("CREATE TABLE IF NOT EXISTS holder (pid INTEGER, since TEXT)");
    db.run("DELETE FROM holder");
    db.run("INSERT INTO holder VALUES (?, datetime('now'))", [process.pid]);
    // Others can read what is committed; between the two transactions another may come first, and then it has the lock.
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

/**
 * A lock for the folder of a run or a sweep. Without the lock, two supervisors could write the same checkpoints and the same store.
 *
 * - The lock is a transaction on a SQLite file in the folder. The operating system ends the transaction when the process dies, so no
 *   lock outlives its process. The file also names the process, for the error text only.
 * - The lock does not work on file systems without locks, such as some network file systems.
 */
import { Database, SQLiteError } from "bun:sqlite";
import { statSync } from "node:fs";
import { join } from "node:path";
import { messageOf } from "../errors.ts";

const FILE = "lock.sqlite";

/** @throws {Error} in one line that names the process that holds the lock, if known, or the file that cannot hold a lock */
export function lockRun(folder: string): { release(): void } {
  const file = join(folder, FILE);
  let db: Database | null = null;
  try {
    db = new Database(file);
    take(db);
    const locked = db;
    return { release: () => locked.close() };
  } catch (error) {
    if (!(error instanceof SQLiteError)) throw error;
    const reason = error.code === "SQLITE_BUSY" && db !== null ? busy(folder, db) : unusable(folder, file, error);
    db?.close();
    throw new Error(reason, { cause: error });
  }
}

function take(db: Database): void {
  db.run("BEGIN IMMEDIATE");
  db.run("CREATE TABLE IF NOT EXISTS holder (pid INTEGER, since TEXT)");
  db.run("DELETE FROM holder");
  db.run("INSERT INTO holder VALUES (?, datetime('now'))", [process.pid]);
  // COMMIT lets other processes read the holder. If another process takes the lock before the next BEGIN, that BEGIN fails.
  db.run("COMMIT");
  db.run("BEGIN IMMEDIATE");
}

function busy(folder: string, db: Database): string {
  const holder = holderOf(db);
  const who = holder === null ? "another process" : `process ${holder.pid} (since ${holder.since} UTC)`;
  return `${folder} is in use by ${who}; stop that process first`;
}

/**
 * The process that holds the lock, or just held it; null until the first process that locks this folder has written its pid, and while a
 * process writes its pid.
 */
function holderOf(db: Database): { pid: number; since: string } | null {
  try {
    const isThere = db.query("SELECT name FROM sqlite_master WHERE name = 'holder'").get() !== null;
    return isThere ? db.query<{ pid: number; since: string }, []>("SELECT pid, since FROM holder").get() : null;
  } catch (error) {
    if (error instanceof SQLiteError && error.code === "SQLITE_BUSY") return null;
    throw error;
  }
}

const unusable = (folder: string, file: string, error: SQLiteError): string =>
  `cannot lock ${folder}: ${file} cannot be used as a lock (${messageOf(error)}); ${adviceOn(file, error)}`;

function adviceOn(file: string, { code = "" }: SQLiteError): string {
  const isFolder = statSync(file, { throwIfNoEntry: false })?.isDirectory() === true;
  if (isFolder || code === "SQLITE_NOTADB" || code.startsWith("SQLITE_CORRUPT"))
    return `delete ${FILE} if no command uses the folder, and try again`;
  if (code === "SQLITE_FULL") return "free space on its disk, and try again";
  return "a run writes into its folder: make the folder writable for this account, or copy it to a disk where this account can write";
}

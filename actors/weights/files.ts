/**
 * Files of weights in a folder of shared memory: their names, and the removal of those that nobody owns any more.
 *
 * - A name says whose it is: run, process (in its pid namespace, with its start time, as pids are used again) and version.
 * - Only a file whose owner is known to be dead is removed; one of another pid namespace is not ours to judge.
 */
import { accessSync, constants, readdirSync, readFileSync, readlinkSync, unlinkSync } from "node:fs";
import { join } from "node:path";

/** A process that can be told from every other one on this host. */
export interface Owner {
  readonly pid: number;
  /** Clock ticks since boot; 0 where the system has no /proc. */
  readonly startTime: number;
  /** Inode of its pid namespace; 0 where there is none. */
  readonly namespace: number;
}

export const SHARED_MEMORY = "/dev/shm";

/** What a file is called until its bytes are complete. */
const UNFINISHED = ".part";

const NAME = /^bunraku-.+-(\d+)\.(\d+)\.(\d+)-v\d+(\.part)?$/;

/** A name never ends up in another folder, whatever the run is called. */
const safe = (run: string) => run.replaceAll(/[^A-Za-z0-9_-]/g, "_");

export function weightsPath(
  folder: string,
  run: string,
  { namespace, pid, startTime }: Owner,
  version: number,
): string {
  return join(folder, `bunraku-${safe(run)}-${namespace}.${pid}.${startTime}-v${version}`);
}

export const unfinished = (path: string): string => path + UNFINISHED;

/**
 * Where weights go: shared memory where there is some, else a folder of the run.
 *
 * @param notice  told once, in a sentence, if it is the folder
 */
export function weightsFolder(runFolder: string, notice: (text: string) => void, shared = SHARED_MEMORY): string {
  try {
    accessSync(shared, constants.W_OK | constants.X_OK);
    return shared;
  } catch {
    notice(`there is no ${shared} that can be written, so weights go through ${runFolder}; slower on a slow disk`);
    return runFolder;
  }
}

/**
 * Remove what dead learners left behind.
 *
 * @returns names of the files that were removed.
 */
export function sweep(folder: string, isAlive: (owner: Owner) => boolean): string[] {
  const left = readdirSync(folder).filter((name) => {
    const [, namespace, pid, startTime] = NAME.exec(name) ?? [];
    if (namespace === undefined) return false;
    return !isAlive({ namespace: Number(namespace), pid: Number(pid), startTime: Number(startTime) });
  });
  return left.filter((name) => {
    try {
      unlinkSync(join(folder, name));
      return true;
    } catch {
      // Another account's file, or somebody else was sweeping too.
      return false;
    }
  });
}

/** This very process. */
export function thisProcess(): Owner {
  return { pid: process.pid, startTime: runningSince(process.pid) ?? 0, namespace: pidNamespace() };
}

/** False only for a process of our pid namespace that is gone, or a zombie, or whose pid is another process's now. */
export function isAlive({ pid, startTime, namespace }: Owner): boolean {
  if (namespace !== pidNamespace()) return true;
  if (namespace !== 0) return runningSince(pid) === startTime;
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}

/** Inode of this process's pid namespace; 0 on systems without. */
function pidNamespace(): number {
  try {
    return Number(/\d+/.exec(readlinkSync("/proc/self/ns/pid"))?.[0] ?? 0);
  } catch {
    return 0;
  }
}

/** Field 22 of /proc/PID/stat; null if no such process runs. Source: proc_pid_stat(5). */
function runningSince(pid: number): number | null {
  let stat: string;
  try {
    stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  } catch {
    return null;
  }
  // The name of the program, in parentheses, may hold spaces and parentheses; what follows the last one is regular.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const state = fields[0]!;
  return state === "Z" || state === "X" ? null : Number(fields[19]);
}

/**
 * Files of weights in a folder of shared memory: their names, and the removal of files whose owner is dead.
 *
 * - A name contains the run, the owner process (pid namespace, pid, and start time, because the system reuses pids) and the version.
 * - `sweep` removes files whose owner is certainly dead, and files of a run that has ended, if the caller names this run. `sweep` cannot
 *   check a process of another pid namespace, so the files of such a process stay.
 */
import { accessSync, constants, readdirSync, readFileSync, readlinkSync, unlinkSync } from "node:fs";
import { join, resolve } from "node:path";

/** Identifies one process of this host. */
export interface Owner {
  readonly pid: number;
  /** Clock ticks since boot; 0 where the system has no /proc. */
  readonly startTime: number;
  /** Inode of the process's pid namespace; 0 where the system has no such namespaces. */
  readonly namespace: number;
}

const SHARED_MEMORY = "/dev/shm";

const NAME = /^bunraku-.+-(\d+)\.(\d+)\.(\d+)-v\d+(\.part)?$/;

/** Replaces every character that could make a run's name a path to another folder. */
const safe = (run: string) => run.replaceAll(/[^A-Za-z0-9_-]/g, "_");

export const weightsPath = (folder: string, run: string, owner: Owner, version: number): string =>
  join(folder, `bunraku-${safe(run)}-${ownerText(owner)}-v${version}`);

/** The part of a file's name that identifies its owner. */
export const ownerText = ({ namespace, pid, startTime }: Owner): string => `${namespace}.${pid}.${startTime}`;

/** True if the owner in the name is certainly dead. @param form  matches names with an owner; its groups are the numbers of `ownerText` */
export function isOfDead(name: string, form: RegExp): boolean {
  const [, namespace, pid, startTime] = form.exec(name) ?? [];
  if (namespace === undefined) return false;
  return !isAlive({ namespace: Number(namespace), pid: Number(pid), startTime: Number(startTime) });
}

/** The path of a file while its bytes are incomplete. */
export const unfinished = (path: string): string => `${path}.part`;

/**
 * The folder for weights: shared memory if this process can write there, else the run's folder.
 *
 * @param notice  called if the result is the run's folder
 */
export function weightsFolder(runFolder: string, notice: (text: string) => void, shared = SHARED_MEMORY): string {
  try {
    accessSync(shared, constants.W_OK | constants.X_OK);
    return shared;
  } catch {
    notice(`${shared} cannot be written, so weights go through ${runFolder}, which is slower on a slow disk`);
    return runFolder;
  }
}

/** The name of a run in its files of weights. It depends on the folder, because two runs of one process may have the same name. */
export const weightsName = (run: string, runFolder: string): string =>
  `${run}-${Bun.hash(resolve(runFolder)).toString(36).slice(0, 8)}`;

/**
 * Removes the files of dead learners.
 *
 * @param ended  `weightsName` of a run whose learner ran in this process and has ended; `sweep` removes the files of this run too
 * @returns the names of the removed files
 */
export function sweep(folder: string, ended: string | null = null): string[] {
  const endedFile = ended === null ? null : /^.*-v/.exec(weightsPath("", ended, thisProcess(), 0))![0];
  const isEnded = (name: string) => endedFile !== null && name.startsWith(endedFile);
  const left = readdirSync(folder).filter((name) => isEnded(name) || isOfDead(name, NAME));
  return left.filter((name) => {
    try {
      unlinkSync(join(folder, name));
      return true;
    } catch {
      // The file belongs to another account, or another process has removed it first.
      return false;
    }
  });
}

export function thisProcess(): Owner {
  return { pid: process.pid, startTime: runningSince(process.pid) ?? 0, namespace: pidNamespace() };
}

/** False only if the owner is in this process's pid namespace and has ended or is a zombie. A new process with the same pid is not the owner. */
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

/** Inode of this process's pid namespace; 0 where the system has no such namespaces. */
function pidNamespace(): number {
  try {
    return Number(/\d+/.exec(readlinkSync("/proc/self/ns/pid"))?.[0] ?? 0);
  } catch {
    return 0;
  }
}

/** Start time in clock ticks, field 22 of /proc/PID/stat; null if no such process runs. Source: proc_pid_stat(5). */
export function runningSince(pid: number): number | null {
  let stat: string;
  try {
    stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  } catch {
    return null;
  }
  // The program's name is in parentheses and may contain spaces and parentheses. The fields after it contain neither.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const state = fields[0]!;
  return state === "Z" || state === "X" ? null : Number(fields[19]);
}

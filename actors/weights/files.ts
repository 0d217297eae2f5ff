/**
 * Files of weights in a folder of shared memory: their names, and the removal of files whose owner is dead.
 *
 * - A name contains the run, the owner process (pid namespace, pid, start time, because pids are reused) and the version.
 * - Only a file whose owner is known to be dead is removed. Processes of another pid namespace cannot be judged, so their files stay.
 */
import { accessSync, constants, readdirSync, readFileSync, readlinkSync, unlinkSync } from "node:fs";
import { join, resolve } from "node:path";

/** Identifies one process of this host. */
export interface Owner {
  readonly pid: number;
  /** Clock ticks since boot; 0 where the system has no /proc. */
  readonly startTime: number;
  /** Inode of its pid namespace; 0 where the system has none. */
  readonly namespace: number;
}

const SHARED_MEMORY = "/dev/shm";

const NAME = /^bunraku-.+-(\d+)\.(\d+)\.(\d+)-v\d+(\.part)?$/;

/** Replaces the characters with which a run name could lead to another folder. */
const safe = (run: string) => run.replaceAll(/[^A-Za-z0-9_-]/g, "_");

export const weightsPath = (folder: string, run: string, owner: Owner, version: number): string =>
  join(folder, `bunraku-${safe(run)}-${ownerText(owner)}-v${version}`);

/** The part of a file's name that identifies its owner. */
export const ownerText = ({ namespace, pid, startTime }: Owner): string => `${namespace}.${pid}.${startTime}`;

/** True if the owner in a name is known to be dead. @param form  of such names; its groups are the numbers of `ownerText` */
export function isOfDead(name: string, form: RegExp): boolean {
  const [, namespace, pid, startTime] = form.exec(name) ?? [];
  if (namespace === undefined) return false;
  return !isAlive({ namespace: Number(namespace), pid: Number(pid), startTime: Number(startTime) });
}

/** The file's name until its bytes are complete. */
export const unfinished = (path: string): string => `${path}.part`;

/**
 * The folder for weights: shared memory if it can be written, else a folder of the run.
 *
 * @param notice  called if it is the run's folder
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

/** A name for the weights of a run: two runs of one process may have the same name, but not the same folder. */
export const weightsName = (run: string, runFolder: string): string =>
  `${run}-${Bun.hash(resolve(runFolder)).toString(36).slice(0, 8)}`;

/**
 * Removes the files of dead learners.
 *
 * @param ended  `weightsName` of a run of this process whose learner has ended: the learner was a worker, and the process lives on
 * @returns their names
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
      // Another account's file, or another learner swept it first.
      return false;
    }
  });
}

export function thisProcess(): Owner {
  return { pid: process.pid, startTime: runningSince(process.pid) ?? 0, namespace: pidNamespace() };
}

/** False only for a process of our pid namespace that has ended, is a zombie, or whose pid belongs to another process now. */
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

/** Start time in clock ticks, field 22 of /proc/PID/stat; null if no such process runs. Source: proc_pid_stat(5). */
export function runningSince(pid: number): number | null {
  let stat: string;
  try {
    stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  } catch {
    return null;
  }
  // The program's name, in parentheses, may contain spaces and parentheses; no field after the last parenthesis does.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const state = fields[0]!;
  return state === "Z" || state === "X" ? null : Number(fields[19]);
}

/** The faults that inject.ts causes in a run. For each fault, the log shows when the supervisor noticed it and when the actor served again. */
import { type ChaosRun, ENV_SERVERS, isStart, SAMPLERS } from "./chaos-run.ts";
import { isAlive, type LogEntry } from "./watch.ts";

export interface Target {
  readonly actor: string;
  readonly fault: "SIGKILL" | "SIGSTOP";
}

export interface Fault extends Target {
  readonly pid: number;
  readonly atMs: number;
  /** Number of lines that the log had at `atMs`. */
  readonly line: number;
  /** Milliseconds until the supervisor noticed; after a fault of the supervisor, until its last actor had ended. */
  noticedMs: number | null;
  /** Milliseconds until the actor served again; after a fault of learner or supervisor, until the next update. */
  recoveredMs: number | null;
}

const numbered = (kind: string, count: number, fault: Target["fault"]): Target[] =>
  Array.from({ length: count }, (_, i) => ({ actor: `${kind}-${i}`, fault }));

/** All entries have the same probability. The learner and each env server have two entries, and so fail twice as often as other actors. */
export const TARGETS: readonly Target[] = [
  ...numbered("sampler", SAMPLERS, "SIGKILL"),
  ...numbered("env-server", ENV_SERVERS, "SIGKILL"),
  ...numbered("env-server", ENV_SERVERS, "SIGSTOP"),
  { actor: "learner", fault: "SIGKILL" },
  { actor: "learner", fault: "SIGKILL" },
  { actor: "metrics-sink", fault: "SIGKILL" },
  { actor: "supervisor", fault: "SIGKILL" },
];

/** The kind of an actor: "sampler" for "sampler-1". */
export const kindOf = (actor: string): string => actor.replace(/-\d+$/, "");
export const KINDS: readonly string[] = [...new Set(TARGETS.map(({ actor }) => kindOf(actor)))];

export function newFault(run: ChaosRun, target: Target, pid: number): Fault {
  return { ...target, pid, atMs: performance.now(), line: run.log.length, noticedMs: null, recoveredMs: null };
}

/** Searches the log for the notice of each fault and for the recovery of its actor. */
export function observe(run: ChaosRun, faults: readonly Fault[]): void {
  for (const fault of faults) {
    if (fault.recoveredMs === null) observeOne(fault, run.log.slice(fault.line), faults);
  }
}

function observeOne(fault: Fault, since: readonly LogEntry[], faults: readonly Fault[]): void {
  const { actor, pid, atMs } = fault;
  const now = performance.now();
  const isNotice = (entry: LogEntry) =>
    fault.fault === "SIGSTOP"
      ? entry.kind === "silent" && entry.child === actor
      : entry.kind === "exited" && entry.pid === pid;
  // If the supervisor was killed after the fault, the process `pid` may end with the supervisor, and no line of the log reports this end.
  const endedWithSupervisor = () =>
    !isAlive(pid) && faults.some((other) => other.actor === "supervisor" && other.line > fault.line);
  if (since.some(isNotice) || endedWithSupervisor()) fault.noticedMs ??= now - atMs;
  if (fault.noticedMs === null) return;
  const started = actor === "supervisor" ? 0 : since.findIndex((entry) => entry.child === actor && isStart(entry));
  if (started !== -1 && since.slice(started).some((entry) => serves(actor, entry))) fault.recoveredMs = now - atMs;
}

function serves(actor: string, { kind, child, text }: LogEntry): boolean {
  if (actor === "learner" || actor === "supervisor") return kind === "update";
  if (actor.startsWith("sampler")) return kind === "joined" && text === `${actor} joined`;
  return kind === "ready" && child === actor;
}

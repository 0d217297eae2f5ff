/**
 * Starts a tiny training run, injects faults, and measures the time until the run notices each fault and recovers, as its log shows. The seed
 * decides the faults and their times. A fault kills an actor of any kind (SIGKILL), or freezes an env server (SIGSTOP).
 */
import { rmSync } from "node:fs";
import { messageOf } from "../../actors/errors.ts";
import { sequence } from "../../model/rng.ts";
import { ChaosRun, ENV_SERVERS, isStart, SAMPLERS } from "./chaos-run.ts";
import { isAlive, type LogEntry } from "./watch.ts";

interface Target {
  readonly actor: string;
  readonly signal: "SIGKILL" | "SIGSTOP";
}

interface Fault extends Target {
  readonly pid: number;
  readonly atMs: number;
  /** Number of lines that the log had at `atMs`. */
  readonly line: number;
  /** Milliseconds until the supervisor noticed; after a fault of the supervisor, until its last actor had ended. */
  noticedMs: number | null;
  /** Milliseconds until the actor served again; after a fault of learner or supervisor, until the next update. */
  recoveredMs: number | null;
}

const numbered = (kind: string, count: number, signal: Target["signal"]): Target[] =>
  Array.from({ length: count }, (_, i) => ({ actor: `${kind}-${i}`, signal }));

/** All entries have the same probability. The learner and each env server have two entries, and so fail twice as often as other actors. */
const TARGETS: readonly Target[] = [
  ...numbered("sampler", SAMPLERS, "SIGKILL"),
  ...numbered("env-server", ENV_SERVERS, "SIGKILL"),
  ...numbered("env-server", ENV_SERVERS, "SIGSTOP"),
  ...["learner", "learner", "metrics-sink", "supervisor"].map((actor): Target => ({ actor, signal: "SIGKILL" })),
];

/** The kind of an actor: "sampler" for "sampler-1". */
const kindOf = (actor: string): string => actor.replace(/-\d+$/, "");
export const KINDS: readonly string[] = [...new Set(TARGETS.map(({ actor }) => kindOf(actor)))];

export type ChaosResult = Awaited<ReturnType<typeof injectFaults>>;
export type Percentiles = ReturnType<typeof percentiles>;

interface ChaosOptions {
  /** Folder of the run. The folder must not exist yet. */
  readonly folder: string;
  /** Folder for the config and the warm start, outside of the run's folder. */
  readonly scratch: string;
  readonly minutes: number;
  readonly seed: number;
  readonly say: (text: string) => void;
  /** The only kind of actor that gets faults; null for all kinds. */
  readonly only: string | null;
}

const PAUSE_MS = { min: 5000, max: 20_000 };
/** Time for all actors to recover after the last fault, in milliseconds. */
const RECOVERY_MS_MAX = 60_000;
const WARM_START_MS_MAX = 300_000;

/** `kills`, a number of faults, and `longestMs` are by kind of actor and signal, such as "sampler SIGKILL". */
export async function injectFaults(options: ChaosOptions) {
  const { folder, scratch, seed } = options;
  const run = new ChaosRun(folder, scratch, seed);
  const faults: Fault[] = [];
  const problems: string[] = [];
  const end = () => {
    run.kill();
    rmSync(scratch, { recursive: true, force: true, maxRetries: 3 });
  };
  // Without this handler, a signal could end this process while the run goes on and its files remain.
  process.once("exit", end);
  try {
    await inject(run, options, faults);
  } catch (error) {
    problems.push(messageOf(error));
    run.kill();
  }
  process.off("exit", end);
  const groups = Map.groupBy(faults, ({ actor, signal }) => `${kindOf(actor)} ${signal}`);
  const ofEach = <T>(of: (faults: readonly Fault[]) => T) =>
    Object.fromEntries(groups.entries().map(([name, those]) => [name, of(those)]));
  const noticed = (those: readonly Fault[]) => percentiles(those.map(({ noticedMs }) => noticedMs));
  const recovered = (those: readonly Fault[]) => percentiles(those.map(({ recoveredMs }) => recoveredMs));
  return {
    kills: ofEach(({ length }) => length),
    problems,
    updates: run.updates,
    learnerStartsMs: run.learnerStartsMs,
    pids: run.pids,
    detectionMs: noticed(faults),
    recoveryMs: recovered(faults),
    longestMs: ofEach((those) => ({ noticed: noticed(those).max, recovered: recovered(those).max })),
    unrecovered: faults.filter(({ recoveredMs }) => recoveredMs === null).length,
  };
}

/** Adds each fault to `faults` immediately, so that the caller knows the faults even if this function throws. */
async function inject(run: ChaosRun, options: ChaosOptions, faults: Fault[]): Promise<void> {
  const { minutes, seed, say, only } = options;
  const look = () => {
    for (const fault of faults) observe(run, fault, faults);
  };
  const targets = TARGETS.filter(({ actor }) => only === null || kindOf(actor) === only);
  run.start(false);
  await run.until(() => run.updates >= 1, WARM_START_MS_MAX, "the first update");
  const draw = sequence(seed, "chaos");
  const endsAtMs = performance.now() + minutes * 60_000;
  for (;;) {
    const pauseMs = PAUSE_MS.min + (PAUSE_MS.max - PAUSE_MS.min) * draw();
    const target = targets[Math.floor(draw() * targets.length)]!;
    if (performance.now() + pauseMs > endsAtMs) break;
    await run.wait(pauseMs, look);
    await kill(run, target, faults, say);
  }
  const allRecovered = () => {
    look();
    return faults.every(({ recoveredMs }) => recoveredMs !== null);
  };
  await run.until(allRecovered, RECOVERY_MS_MAX, "the recovery of every actor");
  await run.stop();
}

async function kill(run: ChaosRun, target: Target, faults: Fault[], say: (text: string) => void): Promise<void> {
  const { actor, signal } = target;
  const pid = run.pid(actor);
  if (pid === null || !isAlive(pid)) return;
  const [atMs, line] = [performance.now(), run.log.length];
  const fault: Fault = { ...target, pid, atMs, line, noticedMs: null, recoveredMs: null };
  process.kill(pid, signal);
  faults.push(fault);
  say(`${signal} ${actor} (update ${run.updates})`);
  if (actor !== "supervisor") return;
  await run.until(() => !run.pids.some(isAlive), RECOVERY_MS_MAX, "the end of the killed supervisor's actors");
  fault.noticedMs = performance.now() - fault.atMs;
  run.start(true);
}

/** Searches the log for the notice of a fault and for the recovery of its actor. */
function observe(run: ChaosRun, fault: Fault, faults: readonly Fault[]): void {
  if (fault.recoveredMs !== null) return;
  const { actor, pid, atMs, signal } = fault;
  const since = run.log.slice(fault.line);
  const now = performance.now();
  const isNotice = (entry: LogEntry) =>
    signal === "SIGSTOP"
      ? entry.kind === "silent" && entry.child === actor
      : entry.kind === "exited" && entry.pid === pid;
  // If the supervisor was killed after the fault, the process `pid` may end together with the supervisor. Then no line of the log reports this end.
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

/** null if no time was measured. */
function percentiles(times: readonly (number | null)[]) {
  const sorted = times.filter((ms) => ms !== null).sort((a, b) => a - b);
  const at = (share: number) => {
    const value = sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)];
    return value === undefined ? null : Math.round(value);
  };
  return { p50: at(0.5), p99: at(0.99), max: at(1) };
}

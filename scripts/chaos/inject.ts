/**
 * Starts a tiny training run, injects faults, and measures the time until the run notices each fault and recovers.
 *
 * - The seed decides which fault comes when. A fault kills an actor of any kind (SIGKILL), or freezes an env server (SIGSTOP).
 */
import { rmSync } from "node:fs";
import { messageOf } from "../../actors/errors.ts";
import { sequence } from "../../model/rng.ts";
import { ChaosRun } from "./chaos-run.ts";
import { type Fault, kindOf, newFault, observe, TARGETS, type Target } from "./faults.ts";
import { isAlive } from "./watch.ts";

export interface ChaosResult {
  /** Number of faults, by kind of actor and signal, such as "sampler SIGKILL". */
  readonly kills: Readonly<Record<string, number>>;
  readonly detectionMs: Percentiles;
  readonly recoveryMs: Percentiles;
  /** The longest times, by kind of actor and signal; null if there was no time to measure. */
  readonly longestMs: Readonly<Record<string, { readonly noticed: number | null; readonly recovered: number | null }>>;
  readonly unrecovered: number;
  /** Number of updates that the run had made at its end. */
  readonly updates: number;
  /** When each learner started, in milliseconds since the epoch. */
  readonly learnerStartsMs: readonly number[];
  readonly pids: readonly number[];
  readonly problems: readonly string[];
}

export interface Percentiles {
  readonly p50: number | null;
  readonly p99: number | null;
  readonly max: number | null;
}

export interface ChaosOptions {
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

export async function injectFaults(options: ChaosOptions): Promise<ChaosResult> {
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
  const groups = Map.groupBy(faults, ({ actor, fault }) => `${kindOf(actor)} ${fault}`);
  const ofEach = <T>(of: (faults: readonly Fault[]) => T) =>
    Object.fromEntries([...groups].map(([name, those]) => [name, of(those)]));
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
  const look = () => observe(run, faults);
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
  const { actor, fault: signal } = target;
  const pid = run.pid(actor);
  if (pid === null || !isAlive(pid)) return;
  const fault = newFault(run, target, pid);
  process.kill(pid, signal);
  faults.push(fault);
  say(`${signal} ${actor} (update ${run.updates})`);
  if (actor !== "supervisor") return;
  await run.until(() => !run.pids.some(isAlive), RECOVERY_MS_MAX, "the end of the killed supervisor's actors");
  fault.noticedMs = performance.now() - fault.atMs;
  run.start(true);
}

function percentiles(times: readonly (number | null)[]): Percentiles {
  const sorted = times.filter((ms) => ms !== null).sort((a, b) => a - b);
  const at = (share: number) => {
    const value = sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)];
    return value === undefined ? null : Math.round(value);
  };
  return { p50: at(0.5), p99: at(0.99), max: at(1) };
}

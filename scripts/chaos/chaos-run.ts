/** A tiny training run in several processes. This file observes the run through its log and process ids. The supervisor is a child process. */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { type LogEntry, LogTail } from "./watch.ts";

export const GROUPS = 4;
export const GROUP_SIZE = 4;
export const SAMPLERS = 2;
export const ENV_SERVERS = 2;
const STOP_MS_MAX = 20_000;
const POLL_MS = 20;

/** The supervisor replaces an actor that sends no heartbeat for this time. */
const HEARTBEAT_DEADLINE_MS = 4000;

/** A policy of one layer on small lakes. The run continues until `stop`. */
const config = (seed: number, warmStarts: string) => ({
  seed,
  env: { tag: "FrozenLake", options: { successRate: 0.8 }, turnsMax: 3, actionsMax: 6, actionsPerTurnMax: 3 },
  rollout: { groups: GROUPS, groupSize: GROUP_SIZE, leaseMs: 20_000, attemptsMax: 20 },
  sampler: { count: SAMPLERS, slots: 8 },
  envServer: { count: ENV_SERVERS },
  model: { width: 32, layers: 1, heads: 2, kvHeads: 1, hidden: 64 },
  learner: { updates: 1_000_000, filter: { strategy: "all" }, learningRate: 1e-4 },
  validate: { episodes: 16, everyUpdates: 50 },
  checkpoint: { everyUpdates: 5, keep: 3 },
  metrics: { port: 0 },
  supervisor: { heartbeatDeadlineMs: HEARTBEAT_DEADLINE_MS, restartsMax: 1000 },
  warmStart: {
    boards: 100,
    cacheDir: warmStarts,
    stages: [
      {
        name: "learn",
        babble: 0.3,
        noise: 0.1,
        steps: 100,
        batch: 16,
        learningRate: 1e-2,
        finalFraction: 1,
        warmUpSteps: 0,
      },
    ],
  },
});

export class ChaosRun {
  readonly #folder: string;
  readonly #configFile: string;
  readonly #tail: LogTail;
  readonly #supervisors: number[] = [];
  /** When each learner started, in milliseconds since the epoch. */
  readonly learnerStartsMs: number[] = [];
  #child: Bun.Subprocess<"ignore", "ignore", "pipe"> | null = null;
  #stderr: Promise<string> = Promise.resolve("");
  #linesRead = 0;
  updates = 0;

  /** @param scratch  folder for the config and the warm start, outside of the run's folder */
  constructor(folder: string, scratch: string, seed: number) {
    this.#folder = folder;
    this.#configFile = join(scratch, "config.json");
    this.#tail = new LogTail(join(folder, "log.jsonl"));
    writeFileSync(this.#configFile, JSON.stringify(config(seed, join(scratch, "warm-start"))));
  }

  start(resume: boolean): void {
    const how = resume ? ["--resume", this.#folder] : ["--config", this.#configFile, "--run-dir", this.#folder];
    const entry = join(import.meta.dir, "..", "run.ts");
    this.#child = Bun.spawn([process.execPath, entry, "cluster", "--quiet", ...how], {
      stdio: ["ignore", "ignore", "pipe"],
    });
    this.#stderr = this.#child.stderr.text();
    this.#supervisors.push(this.#child.pid);
  }

  get log(): readonly LogEntry[] {
    return this.#tail.entries;
  }

  get pids(): number[] {
    return [...this.#supervisors, ...this.log.filter(isStart).map(({ pid }) => pid!)];
  }

  /** Process id of an actor's newest process; null if there was none. */
  pid(actor: string): number | null {
    if (actor === "supervisor") return this.#child?.pid ?? null;
    return this.log.findLast((entry) => entry.child === actor && isStart(entry))?.pid ?? null;
  }

  /** Reads the log repeatedly during this time, and calls `look` after each reading. */
  async wait(ms: number, look: () => void): Promise<void> {
    const endsAtMs = performance.now() + ms;
    while (performance.now() < endsAtMs) {
      await this.#poll();
      look();
    }
  }

  /** @param what  names the event in the error. @throws {Error} if `happened` is not true in time. If the run ends first, the error says how. */
  async until(happened: () => boolean, withinMs: number, what: string): Promise<void> {
    const endsAtMs = performance.now() + withinMs;
    for (;;) {
      await this.#poll();
      if (happened()) return;
      if (performance.now() > endsAtMs) throw new Error(`${what} did not happen in ${withinMs} ms`);
    }
  }

  /** @throws {Error} if the run ends with an error, or not in time. */
  async stop(): Promise<void> {
    const child = this.#child!;
    child.kill("SIGTERM");
    const late = setTimeout(() => child.kill("SIGKILL"), STOP_MS_MAX);
    const code = await child.exited;
    clearTimeout(late);
    if (code !== 0) throw new Error(`stopped by SIGTERM, ${await this.#howItEnded()}`);
    this.#read();
  }

  kill(): void {
    this.#child?.kill("SIGKILL");
  }

  async #poll(): Promise<void> {
    // Polls, because some systems do not report that another process appended to a file.
    await Bun.sleep(POLL_MS);
    this.#read();
    const { exitCode, signalCode } = this.#child!;
    // SIGKILL is one of the faults.
    if (exitCode !== null || (signalCode !== null && signalCode !== "SIGKILL"))
      throw new Error(await this.#howItEnded());
  }

  #read(): void {
    this.#tail.read();
    for (const entry of this.log.slice(this.#linesRead)) {
      const [, update] = entry.kind === "update" ? (/^update (\d+)\//.exec(entry.text ?? "") ?? []) : [];
      if (update !== undefined) this.updates = Number(update);
      if (entry.child === "learner" && isStart(entry)) this.learnerStartsMs.push(Date.now());
    }
    this.#linesRead = this.log.length;
  }

  async #howItEnded(): Promise<string> {
    const { signalCode, exitCode } = this.#child!;
    const lastLines = (await this.#stderr).trim().split("\n").slice(-3).join(" / ");
    return `the run ended with ${signalCode ?? exitCode}: ${lastLines}`;
  }
}

/** True for the log's line on the start of an actor's process. */
export const isStart = ({ kind }: LogEntry): boolean => kind === "started" || kind === "restarted";

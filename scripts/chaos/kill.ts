/**
 * Starts a tiny training run, kills its processes, and measures until each kill was noticed and made good. Knows the run as
 * anybody does: by its log and its process ids.
 *
 * - What is killed when follows from the seed. SIGKILL for everybody; env servers are also frozen (SIGSTOP).
 * - With hosts elsewhere, their network is cut first of all, and now and then from there on.
 * - Noticed: the supervisor says so; for the supervisor itself, the last actor is gone. Made good: the actor serves
 *   again; for learner and supervisor, the next update is made; for whoever was cut off, from the moment that the network is whole.
 */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { sequence } from "../../model/rng.ts";
import { Memory } from "../cli/memory.ts";
import type { Elsewhere } from "./elsewhere.ts";
import { alive, type Entry, LogTail, rssBytes } from "./watch.ts";

export interface Killing {
  /** By actor and signal: "sampler SIGKILL". */
  readonly kills: Readonly<Record<string, number>>;
  readonly detectionMs: Percentiles;
  readonly recoveryMs: Percentiles;
  /** The longest of each, by actor and signal; null if there is none. */
  readonly longestMs: Readonly<Record<string, { readonly noticed: number | null; readonly recovered: number | null }>>;
  readonly unrecovered: number;
  /** Updates of the run at its end. */
  readonly updates: number;
  /** Moments at which a learner began, in milliseconds since the epoch. */
  readonly learnersBeganAtMs: readonly number[];
  /** Every process that there was. */
  readonly pids: readonly number[];
  /** By actor: of the process that lived longest; null if none lived long enough to say. */
  readonly rssBytesPerMinute: Readonly<Record<string, number | null>>;
  /** What went wrong beside that. */
  readonly problems: readonly string[];
}

interface Percentiles {
  readonly p50: number | null;
  readonly p99: number | null;
  readonly max: number | null;
}

export interface KillOptions {
  /** Must not exist. */
  readonly folder: string;
  /** For what a run needs beside its folder. */
  readonly scratch: string;
  readonly minutes: number;
  readonly seed: number;
  readonly say: (text: string) => void;
  /** Whose network is cut, and for how long. */
  readonly elsewhere: Elsewhere | null;
  readonly cutMs: number;
  /** Whoever else is left alone; null: nobody is. */
  readonly only: string | null;
}

const EVERY_MS = { least: 5000, most: 20_000 };
/** A kill that is not made good by then never is. */
const RECOVERY_MS_MAX = 60_000;
const WARM_START_MS_MAX = 300_000;
const STOP_MS_MAX = 20_000;
const LOOK_MS = 20;
const MEMORY_MS = 1000;

export const GROUPS = 4;
export const GROUP_SIZE = 4;
const SAMPLERS = 2;
const ENV_SERVERS = 2;

/** A policy of one layer on small lakes, that goes on until it is stopped. */
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
  supervisor: { heartbeatMs: 200, heartbeatDeadlineMs: 4000, restartsMax: 1000 },
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

type Signal = "SIGKILL" | "SIGSTOP" | "cut";
interface Victim {
  readonly actor: string;
  readonly signal: Signal;
}
const NETWORK: Victim = { actor: "network", signal: "cut" };
const VICTIMS: readonly Victim[] = [
  ...Array.from({ length: SAMPLERS }, (_, i) => ({ actor: `sampler-${i}`, signal: "SIGKILL" }) as const),
  ...Array.from({ length: ENV_SERVERS }, (_, i) => ({ actor: `env-server-${i}`, signal: "SIGKILL" }) as const),
  ...Array.from({ length: ENV_SERVERS }, (_, i) => ({ actor: `env-server-${i}`, signal: "SIGSTOP" }) as const),
  { actor: "learner", signal: "SIGKILL" },
  { actor: "learner", signal: "SIGKILL" },
  { actor: "metrics-sink", signal: "SIGKILL" },
  { actor: "supervisor", signal: "SIGKILL" },
];
/** "sampler" of "sampler-1". */
const kindOf = (actor: string): string => actor.replace(/-\d+$/, "");
export const KINDS: readonly string[] = [...new Set(VICTIMS.map(({ actor }) => kindOf(actor)))];

/** One kill, until it is made good. */
interface Wound extends Victim {
  /** null of somebody on another host. */
  readonly pid: number | null;
  /** When it was done, and for what was noticed of it. */
  readonly atMs: number;
  /** From when on it could be made good. */
  healsAtMs: number;
  /** Line of the log at which it happened. */
  readonly line: number;
  noticedMs: number | null;
  curedMs: number | null;
}

export async function kill(options: KillOptions): Promise<Killing> {
  const { folder, scratch, minutes, seed, say, elsewhere, cutMs, only } = options;
  const run = new Run(folder, scratch, seed, elsewhere);
  const victims = [...VICTIMS, ...(elsewhere === null ? [] : [NETWORK])].filter(
    ({ actor }) => only === null || kindOf(actor) === only,
  );
  const draw = sequence(seed, "chaos");
  const wounds: Wound[] = [];
  const problems: string[] = [];
  try {
    run.start(false);
    await run.until(() => run.log.some(({ kind }) => kind === "open"), WARM_START_MS_MAX, "the gate");
    await elsewhere?.join();
    await run.until(() => run.updates >= 1, WARM_START_MS_MAX, "the first update");
    if (elsewhere !== null) await cut(run, elsewhere, cutMs, wounds, say);
    const endsAtMs = performance.now() + minutes * 60_000;
    for (;;) {
      const pauseMs = EVERY_MS.least + (EVERY_MS.most - EVERY_MS.least) * draw();
      const victim = victims[Math.floor(draw() * victims.length)]!;
      if (performance.now() + pauseMs > endsAtMs) break;
      await run.pass(pauseMs, () => examine(run, wounds));
      if (victim.signal === "cut") {
        await cut(run, elsewhere!, cutMs, wounds, say);
        continue;
      }
      const pid = run.pid(victim.actor);
      if (pid === null || !alive(pid)) continue;
      const wound = woundOf(run, victim, pid);
      process.kill(pid, victim.signal);
      wounds.push(wound);
      say(`${victim.signal} ${victim.actor} (update ${run.updates})`);
      if (victim.actor !== "supervisor") continue;
      await run.until(
        () => run.pids.every((one) => !alive(one)),
        RECOVERY_MS_MAX,
        "the end of a dead supervisor's actors",
      );
      Object.assign(wound, { noticedMs: performance.now() - wound.atMs });
      run.start(true);
    }
    const isCured = () => {
      examine(run, wounds);
      return wounds.every(({ curedMs }) => curedMs !== null);
    };
    await run.until(isCured, RECOVERY_MS_MAX, "every actor to serve again");
    await run.stop();
    await elsewhere?.left(STOP_MS_MAX);
  } catch (error) {
    problems.push(error instanceof Error ? error.message : String(error));
    run.kill();
  }
  elsewhere?.remove();
  const byKind = Map.groupBy(wounds, ({ actor, signal, pid }) =>
    pid === null ? "guest cut off" : `${kindOf(actor)} ${signal}`,
  );
  const ofEach = <T>(of: (wounds: readonly Wound[]) => T) =>
    Object.fromEntries([...byKind].map(([kind, those]) => [kind, of(those)]));
  const noticed = (those: readonly Wound[]) => percentiles(those.map(({ noticedMs }) => noticedMs));
  const recovered = (those: readonly Wound[]) => percentiles(those.map(({ curedMs }) => curedMs));
  return {
    kills: ofEach(({ length }) => length),
    problems,
    updates: run.updates,
    learnersBeganAtMs: run.learnersBeganAtMs,
    pids: [...run.pids, ...(elsewhere?.pids ?? [])],
    detectionMs: noticed(wounds),
    recoveryMs: recovered(wounds),
    longestMs: ofEach((those) => ({ noticed: noticed(those).max, recovered: recovered(those).max })),
    unrecovered: wounds.filter(({ curedMs }) => curedMs === null).length,
    rssBytesPerMinute: run.rssBytesPerMinute(),
  };
}

const woundOf = (run: Run, victim: Victim, pid: number | null): Wound => {
  const atMs = performance.now();
  return { ...victim, pid, atMs, healsAtMs: atMs, line: run.log.length, noticedMs: null, curedMs: null };
};

/** For so long nothing passes between the run and its guests; each of them is a wound. */
async function cut(run: Run, elsewhere: Elsewhere, cutMs: number, wounds: Wound[], say: KillOptions["say"]) {
  say(`network cut for ${cutMs} ms (update ${run.updates})`);
  const guests = elsewhere.names.map((actor) => woundOf(run, { actor, signal: "cut" }, null));
  wounds.push(...guests);
  elsewhere.cut();
  await run.pass(cutMs, () => examine(run, wounds));
  elsewhere.heal();
  for (const guest of guests) guest.healsAtMs = performance.now();
}

/** What the log says of the wounds that are still open. */
function examine(run: Run, wounds: readonly Wound[]): void {
  for (const wound of wounds) {
    if (wound.curedMs !== null) continue;
    const { actor, signal, pid, atMs, healsAtMs } = wound;
    const since = run.log.slice(wound.line);
    if (pid === null) {
      const left = since.findIndex(({ kind, child }) => kind === "left" && child === actor);
      if (left !== -1) wound.noticedMs ??= performance.now() - atMs;
      const back = left !== -1 && since.slice(left).some(({ kind, child }) => kind === "joined" && child === actor);
      if (back) wound.curedMs = performance.now() - healsAtMs;
      continue;
    }
    const noticed = ({ kind, child, pid: its }: Entry) =>
      signal === "SIGSTOP" ? kind === "wedged" && child === actor : kind === "exited" && its === pid;
    if (since.some(noticed)) wound.noticedMs ??= performance.now() - atMs;
    // Of a supervisor that died meanwhile nobody hears; whoever it left is gone, and that was noticed.
    else if (!alive(pid) && wounds.some((other) => other.actor === "supervisor" && other.line > wound.line))
      wound.noticedMs ??= performance.now() - atMs;
    if (wound.noticedMs === null) continue;
    const begun = actor === "supervisor" ? 0 : since.findIndex((one) => one.child === actor && isStart(one));
    if (begun !== -1 && since.slice(begun).some((entry) => serves(actor, entry)))
      wound.curedMs = performance.now() - atMs;
  }
}

const isStart = ({ kind }: Entry): boolean => kind === "started" || kind === "restarted";

function serves(actor: string, { kind, child, text }: Entry): boolean {
  if (actor === "learner" || actor === "supervisor") return kind === "update";
  return actor.startsWith("sampler")
    ? kind === "joined" && text === `${actor} joined`
    : kind === "ready" && child === actor;
}

function percentiles(times: readonly (number | null)[]): Percentiles {
  const sorted = times.filter((ms) => ms !== null).sort((a, b) => a - b);
  const at = (share: number) => {
    const value = sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)];
    return value === undefined ? null : Math.round(value);
  };
  return { p50: at(0.5), p99: at(0.99), max: at(1) };
}

/** The run as processes: its supervisor is our child. */
class Run {
  readonly #folder: string;
  readonly #config: string;
  readonly #tail: LogTail;
  readonly #memory = new Memory();
  readonly #elsewhere: Elsewhere | null;
  readonly learnersBeganAtMs: number[] = [];
  #child: Bun.Subprocess<"ignore", "ignore", "pipe"> | null = null;
  #said: Promise<string> = Promise.resolve("");
  #seen = 0;
  #updates = 0;
  #sampledAtMs = 0;
  readonly #supervisors: number[] = [];

  constructor(folder: string, scratch: string, seed: number, elsewhere: Elsewhere | null) {
    this.#folder = folder;
    this.#elsewhere = elsewhere;
    this.#config = join(scratch, "config.json");
    this.#tail = new LogTail(join(folder, "log.jsonl"));
    writeFileSync(this.#config, JSON.stringify(config(seed, join(scratch, "warm-start"))));
  }

  start(resume: boolean): void {
    const how = resume ? ["--resume", this.#folder] : ["--config", this.#config, "--run-dir", this.#folder];
    const entry = join(import.meta.dir, "..", "run.ts");
    const { wrap = [], flags = [], env = {} } = this.#elsewhere ?? {};
    this.#child = Bun.spawn([...wrap, process.execPath, entry, "cluster", "--quiet", ...how, ...flags], {
      stdio: ["ignore", "ignore", "pipe"],
      env: { ...process.env, ...env },
    });
    this.#said = this.#child.stderr.text();
    this.#supervisors.push(this.#child.pid);
  }

  get log(): readonly Entry[] {
    return this.#tail.entries;
  }

  get updates(): number {
    return this.#updates;
  }

  get pids(): number[] {
    return [...this.#supervisors, ...this.log.filter(isStart).map(({ pid }) => pid!)];
  }

  /** Of an actor's newest process; null if there was none. */
  pid(actor: string): number | null {
    if (actor === "supervisor") return this.#child?.pid ?? null;
    return this.log.findLast((entry) => entry.child === actor && isStart(entry))?.pid ?? null;
  }

  /** Let time pass, with a look at the log now and then. */
  async pass(ms: number, look: () => void): Promise<void> {
    const endsAtMs = performance.now() + ms;
    while (performance.now() < endsAtMs) {
      await this.#look();
      look();
    }
  }

  /** @throws {Error} if it does not come in time, or the run ends before. */
  async until(happened: () => boolean, withinMs: number, what: string): Promise<void> {
    const endsAtMs = performance.now() + withinMs;
    for (;;) {
      await this.#look();
      if (happened()) return;
      if (performance.now() > endsAtMs) throw new Error(`${what} did not come in ${withinMs} ms`);
    }
  }

  /** @throws {Error} if it does not end well, or not in time. */
  async stop(): Promise<void> {
    const child = this.#child!;
    child.kill("SIGTERM");
    const late = setTimeout(() => child.kill("SIGKILL"), STOP_MS_MAX);
    const code = await child.exited;
    clearTimeout(late);
    if (code !== 0)
      throw new Error(`asked to stop, the run ended with ${child.signalCode ?? code}: ${await this.#lastSaid()}`);
    this.#read();
  }

  kill(): void {
    this.#child?.kill("SIGKILL");
  }

  rssBytesPerMinute(): Record<string, number | null> {
    const longest = new Map<string, { samples: number; slope: number | null }>();
    for (const { actor, slopeBytesPerMinute, samples } of this.#memory.report()) {
      const name = actor.split(" ")[0]!;
      if (samples > (longest.get(name)?.samples ?? 0)) longest.set(name, { samples, slope: slopeBytesPerMinute });
    }
    return Object.fromEntries(
      [...longest].map(([name, { slope }]) => [name, slope === null ? null : Math.round(slope)]),
    );
  }

  async #look(): Promise<void> {
    // A file that another process appends to has no event that is there on every system.
    await Bun.sleep(LOOK_MS);
    this.#read();
    const child = this.#child!;
    const killed = child.signalCode === "SIGKILL";
    if (child.exitCode !== null || (child.signalCode !== null && !killed))
      throw new Error(`the run ended with ${child.signalCode ?? child.exitCode}: ${await this.#lastSaid()}`);
    const now = performance.now();
    if (now - this.#sampledAtMs < MEMORY_MS) return;
    this.#sampledAtMs = now;
    const actors = new Map(this.log.filter(isStart).map(({ child: name, pid }) => [name!, pid!]));
    for (const [actor, pid] of [["supervisor", child.pid] as const, ...actors]) {
      this.#memory.sample(`${actor} ${pid}`, now, rssBytes(pid));
    }
  }

  #read(): void {
    this.#tail.read();
    for (const entry of this.log.slice(this.#seen)) {
      const [, update] = entry.kind === "update" ? (/^update (\d+)\//.exec(entry.text ?? "") ?? []) : [];
      if (update !== undefined) this.#updates = Number(update);
      if (entry.child === "learner" && isStart(entry)) this.learnersBeganAtMs.push(Date.now());
    }
    this.#seen = this.log.length;
  }

  async #lastSaid(): Promise<string> {
    return (await this.#said).trim().split("\n").slice(-3).join(" / ");
  }
}

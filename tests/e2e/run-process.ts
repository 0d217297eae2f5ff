/** `bun run cluster` as a process, observed by its log, its streams and its files. */
import { Database } from "bun:sqlite";
import { expect } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { latestCheckpoint } from "../../actors/checkpoint/checkpoint.ts";
import { isTimeIndependent } from "../../actors/metrics/metrics.ts";
import { isAlive, type LogEntry, LogTail, weightFiles } from "../../scripts/chaos/watch.ts";
import { CommandProcess, commandHere, type Ended, expectSuccess, type StartOptions } from "../scripts/command.ts";
import { sharedWarmStarts, temporaryFolder } from "../scripts/temporary.ts";

/** Time for one test; a run takes a few seconds of it on an idle machine. */
export const LONG = 300_000;

/** A policy of one layer on small lakes: several turns an episode, slippery ice, and a second or two for all of it. */
const TINY = {
  env: { tag: "FrozenLake", options: { successRate: 0.8 }, turnsMax: 3, actionsMax: 6, actionsPerTurnMax: 3 },
  rollout: { groups: 4, groupSize: 4 },
  sampler: { count: 1, slots: 8 },
  model: { width: 32, layers: 1, heads: 2, kvHeads: 1, hidden: 64 },
  learner: { updates: 6, filter: { strategy: "top_ratio", value: 0.5 }, learningRate: 1e-3 },
  validate: { episodes: 32, everyUpdates: 3 },
  checkpoint: { everyUpdates: 2 },
  metrics: { port: 0 },
};
const stage = { batch: 16, finalFraction: 1, warmUpSteps: 0 };
const warmStart = {
  imitate: "demonstrator",
  boards: 100,
  stages: [
    { ...stage, name: "learn", babble: 0.3, noise: 0.1, steps: 100, learningRate: 1e-2 },
    { ...stage, name: "blur", babble: 0.9, noise: 0.2, steps: 20, learningRate: 2e-3 },
  ],
};

/** Folder of a test file's runs. The runs share their warm starts. */
export class Runs {
  readonly folder = temporaryFolder();
  readonly #warmStarts: string;
  #count = 0;

  /** @param warmStarts  "shared" for a file whose tests begin after the warm start: another file may have made it */
  constructor(warmStarts: "own" | "shared") {
    this.#warmStarts = warmStarts === "shared" ? sharedWarmStarts(this.folder) : join(this.folder, "warm-start");
  }

  /** `--config` and `--run-dir` of a new run; `changed` goes over the tiny config, section by section. */
  fresh(changed: Record<string, object> = {}): { folder: string; args: string[] } {
    // No test file that runs at the same time may have a run of this name: the run's name is in the names of weights in shared memory.
    const name = `${basename(this.folder)}-r${++this.#count}`;
    const sections: Record<string, object> = {
      ...TINY,
      warmStart: { ...warmStart, cacheDir: this.#warmStarts },
    };
    for (const [section, values] of Object.entries(changed)) sections[section] = { ...sections[section], ...values };
    const config = join(this.folder, `${name}.yaml`);
    writeFileSync(config, JSON.stringify(sections));
    const folder = join(this.folder, name);
    return { folder, args: ["--config", config, "--run-dir", folder] };
  }

  /** Runs to the end without faults. @returns the folder. */
  async undisturbed(changed: Record<string, object> = {}): Promise<string> {
    const { folder, args } = this.fresh(changed);
    expectSuccess(await commandHere(["cluster", ...args, "--actors=one-thread"]));
    return folder;
  }
}

/** Lines of a run's log, for `RunProcess.next`. */
export const exited = (child: string) => (entry: LogEntry) => entry.kind === "exited" && entry.child === child;
export const silent = (child: string) => (entry: LogEntry) => entry.kind === "silent" && entry.child === child;
/** An env server or the metrics sink listens, and serves again. */
export const ready = (child: string) => (entry: LogEntry) => entry.kind === "ready" && entry.child === child;
/** A sampler has joined the learner. */
export const joined = (sampler: string) => (entry: LogEntry) =>
  entry.kind === "joined" && entry.text === `${sampler} joined`;
export const updated = ({ kind }: LogEntry) => kind === "update";

export class RunProcess {
  readonly folder: string;
  readonly process: CommandProcess;
  readonly ended: Promise<Ended>;
  readonly #tail: LogTail;
  #hasEnded = false;

  constructor(folder: string, args: readonly string[], options: StartOptions = {}) {
    this.folder = folder;
    this.#tail = new LogTail(join(folder, "log.jsonl"));
    this.process = new CommandProcess(["cluster", ...args], options);
    this.ended = this.process.ended.finally(() => {
      this.#hasEnded = true;
    });
  }

  kill(signal: NodeJS.Signals): void {
    this.process.kill(signal);
  }

  get log(): readonly LogEntry[] {
    this.#tail.read();
    return this.#tail.entries;
  }

  /** The first matching entry of the log, after `skip` matching entries. @throws {Error} with what the run wrote, if the run ends before. */
  async entry(what: (entry: LogEntry) => boolean, skip = 0): Promise<LogEntry> {
    for (;;) {
      const ended = this.#hasEnded;
      const found = this.log.filter(what)[skip];
      if (found !== undefined) return found;
      if (ended) throw new Error(`the run ended before it logged what was waited for:\n${(await this.ended).err}`);
      // No event tells on every system that another process appended to a file.
      await Bun.sleep(10);
    }
  }

  /** For each wanted entry: milliseconds from now until the log's next such entry. */
  async next(...wanted: readonly ((entry: LogEntry) => boolean)[]): Promise<number[]> {
    const began = performance.now();
    const before = wanted.map((what) => this.log.filter(what).length);
    return Promise.all(
      wanted.map(async (what, i) => {
        await this.entry(what, before[i]);
        return performance.now() - began;
      }),
    );
  }

  /** Resolves when update `update` has been made. */
  async updated(update: number): Promise<void> {
    await this.entry(({ kind, text }) => kind === "update" && text!.startsWith(`update ${update}/`));
  }

  /** Process id of an actor's newest process. */
  pid(child: string): number {
    const starts = this.log.filter((entry) => entry.child === child && entry.pid !== undefined);
    return starts.findLast(({ kind }) => kind === "started" || kind === "restarted")!.pid!;
  }

  /** Id of every process that was started in this run. */
  get pids(): number[] {
    return this.log.flatMap(({ kind, pid }) => (pid !== undefined && kind !== "exited" ? [pid] : []));
  }
}

/** Every metric that must not depend on time, as the run stored it. */
export function timeIndependentMetrics(folder: string): string[] {
  const db = new Database(join(folder, "run.sqlite"), { readonly: true });
  const rows = db.query("SELECT name, actor, step, value FROM metrics ORDER BY name, actor, step").values();
  db.close();
  const timeIndependent = rows.filter(([name]) => isTimeIndependent(String(name)));
  // The run that makes the warm start measures it. Other runs find the warm start in the cache.
  return timeIndependent.filter(([name]) => !String(name).startsWith("warm/")).map((row) => JSON.stringify(row));
}

/**
 * The newest checkpoint: sha256 of parameters and moments; optimizer steps, counters and cursors. The result leaves out the run's time, the
 * counts of tickets, and the number of the last published version, because a warm start and a learner that resumes publish too.
 */
export async function learnt(folder: string): Promise<string[]> {
  const { found } = await latestCheckpoint(join(folder, "checkpoints"));
  const sums = readFileSync(join(found!, "SHA256SUMS"), "utf8").split("\n");
  const state = JSON.parse(readFileSync(join(found!, "state.json"), "utf8"));
  const { minutes: _, minutesInAll: __, version: ___, tickets: ____, ...progress } = state.state;
  return [...sums.filter((line) => line.endsWith(".safetensors")), JSON.stringify({ ...state, state: progress })];
}

export async function expectSameLearnt(folder: string, other: string): Promise<void> {
  expect(timeIndependentMetrics(folder)).toEqual(timeIndependentMetrics(other));
  expect(await learnt(folder)).toEqual(await learnt(other));
}

/** Expects that a run that has ended, and its guests, left no process and no file of weights. */
export function expectNothingLeft(run: RunProcess, guests: readonly { readonly pid: number }[] = []): void {
  expect([...run.pids, ...guests.map(({ pid }) => pid)].filter(isAlive)).toEqual([]);
  expect(weightFiles(basename(run.folder))).toEqual([]);
}

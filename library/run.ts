/**
 * A run in this program: its actors, its record, and how it ends. `train` returns such a run, and `bun run cluster` shows its progress.
 *
 * - A run holds nothing global: a program may have several at once, each with a folder of its own.
 * - Updates and episodes come from the run's store, so a program that reads late misses none. No update or episode stays in memory.
 */
import { existsSync, readFileSync } from "node:fs";
import { basename, join, resolve } from "node:path";
import { checkpointsIn } from "../actors/checkpoint/checkpoint.ts";
import { pause, realClock } from "../actors/clock.ts";
import type { RunConfig } from "../actors/config/config.ts";
import type { MetricName } from "../actors/metrics/metrics.ts";
import type { Cursor } from "../actors/metrics-sink/records.ts";
import { recordOf, type Store } from "../actors/metrics-sink/store.ts";
import type { ActorView, Outcome, PlayedOutcome, Ticket } from "../actors/protocol.ts";
import { newestUpdate } from "../actors/record/newest-update.ts";
import { hasRecord } from "../actors/record/recorded-run.ts";
import { type Cluster, type ClusterOptions, startCluster } from "../actors/supervisor/cluster.ts";
import { lockRun } from "../actors/supervisor/run-lock.ts";
import type { Report } from "../actors/training/report.ts";
import type { Message } from "../model/text/dialogue.ts";
import { loadPolicy, type Policy, type ReplyOptions } from "./policy.ts";
import { type RunFolder, reportFile } from "./run-folder.ts";

export interface Update {
  /** The number of the update, from 1. */
  readonly update: number;
  /** Share of the update's episodes that ended in success; null if the update trained on no episode, because all were stale. */
  readonly success: number | null;
  /** Values that the learner reported since the previous update, on this update and on validations. docs/metrics.md lists the names. */
  readonly metrics: Readonly<Partial<Record<MetricName, number>>>;
}

/** One episode of the record. */
export interface Episode {
  /** A name that is unique in the run, such as "u3.g0.m1". */
  readonly name: string;
  /** Name of the episode's env in the run. */
  readonly env: string;
  readonly purpose: Ticket["purpose"];
  /** Layout seed of the episode's board. */
  readonly seed: number;
  /** Policy version that the episode's ticket asked for. */
  readonly version: number;
  /** Turns, tokens and rewards of the episode, or why the episode could not be played. */
  readonly outcome: Outcome;
}

/** How a run ended. */
export interface RunResult {
  readonly reason: string;
  /** null if the run was stopped before its last update; `bun run cluster --resume FOLDER` continues the run. */
  readonly report: Report | null;
}

export type RunOptions = RunFolder & Partial<Pick<ClusterOptions, "event" | "output">>;

/** The metric that the learner reports last for each update. */
const UPDATE_DONE: MetricName = "total/updates";

/** Milliseconds between two checks for new rows or a new checkpoint. */
const POLL_MS = 100;
/** Rows read at once. */
const PAGE = 256;

/**
 * Starts the run in a folder that holds its config, from the folder's newest checkpoint if there is one.
 *
 * @throws {Error} in one line, if the folder is in use or the actors cannot be started
 */
export async function startRun({ folder, config, event = () => {}, output = () => {} }: RunOptions): Promise<Run> {
  const lock = lockRun(folder);
  try {
    const before = fromRecord(folder, (store) => store.cursor()) ?? { points: 0, events: 0, episodes: 0 };
    const cluster = await startCluster({ run: basename(resolve(folder)), folder, config, event, output });
    return new Run({ folder, config }, cluster, before, () => lock.release());
  } catch (error) {
    lock.release();
    throw error;
  }
}

export class Run {
  readonly folder: string;
  readonly config: RunConfig;
  /** Rejects if the run failed, naming the first cause. */
  readonly ended: Promise<RunResult>;
  readonly policy: NewestPolicy;
  readonly #cluster: Cluster;
  /** The end of the record when this program started or resumed the run. */
  readonly #before: Cursor;
  #isOver = false;

  /** Call `train` or `startRun` instead. */
  constructor({ folder, config }: RunFolder, cluster: Cluster, before: Cursor, over: () => void) {
    this.folder = folder;
    this.config = config;
    this.policy = new NewestPolicy(folder);
    this.#cluster = cluster;
    this.#before = before;
    const isOver = () => {
      this.#isOver = true;
      over();
    };
    this.ended = cluster.ended.finally(isOver).then(({ ok, reason }): RunResult => {
      if (!ok) throw new Error(`the run ended: ${reason}`);
      const file = reportFile(this);
      return { reason, report: existsSync(file) ? (JSON.parse(readFileSync(file, "utf8")) as Report) : null };
    });
    // A program may read only `updates`, which throws the same error. This handler prevents an unhandled rejection of `ended`.
    this.ended.catch(() => {});
  }

  /** The run's actors at this moment. */
  get actors(): readonly ActorView[] {
    return this.#cluster.children();
  }

  /** Address of the run's page; null while no actor serves the page yet. */
  get pageUrl(): string | null {
    const sink = this.actors.find(({ role }) => role === "metrics-sink");
    return /^http\S+/.exec(sink?.doing ?? "")?.[0] ?? null;
  }

  /**
   * Each update since this program started or resumed the run, even before this call. The iterator ends with the run.
   * After a restart of the learner, the updates since the last checkpoint come again, with equal values in sync mode.
   *
   * @throws {Error} if the run failed
   */
  async *updates(): AsyncGenerator<Update, void> {
    let metrics: Record<string, number> = {};
    const read = (store: Store, since: number) => {
      const rows = store.points(since, PAGE);
      return { rows, since: rows.at(-1)?.id ?? since };
    };
    for await (const { actor, name, step, value } of this.#rows(this.#before.points, read)) {
      if (actor !== "learner") continue;
      metrics[name] = value;
      if (name !== UPDATE_DONE) continue;
      yield { update: step, success: metrics["train/success"] ?? null, metrics };
      metrics = {};
    }
  }

  /**
   * Each episode since this program started or resumed the run, in the order in which the store got them. The iterator ends with the run.
   *
   * @throws {Error} if the run failed
   */
  async *episodes(): AsyncGenerator<Episode, void> {
    const read = (store: Store, since: number) => {
      const end = Math.min(since + PAGE, store.cursor().episodes);
      const { rows } = store.episodes({}, { since, before: end + 1, limit: PAGE });
      return { rows: rows.reverse().flatMap(({ id }) => store.episode(id)?.row ?? []), since: end };
    };
    for await (const { ticket, outcome } of this.#rows(this.#before.episodes, read)) {
      const { episode: name, env, purpose, layoutSeed: seed, version } = ticket;
      yield { name, env, purpose, seed, version, outcome };
    }
  }

  /**
   * Makes the learner write a checkpoint after its current update.
   *
   * @returns the checkpoint's folder. The checkpoint includes every update that `updates` has given
   * @throws {Error} if the run failed, or ended before its first checkpoint
   */
  async save(): Promise<string> {
    const checkpoints = join(this.folder, "checkpoints");
    const made = this.#updatesMade();
    this.#cluster.save();
    for (;;) {
      // Read `#isOver` before the folder, because a run writes its last checkpoint before it ends.
      const isOver = this.#isOver;
      const [newest] = checkpointsIn(checkpoints);
      // After a roll-back the run has fewer updates than `made`.
      if (newest !== undefined && (newest.update >= Math.min(made, this.#updatesMade()) || isOver))
        return join(checkpoints, newest.name);
      if (isOver) {
        await this.ended;
        throw new Error(`the run in ${this.folder} ended before its first checkpoint`);
      }
      await pause(realClock, POLL_MS);
    }
  }

  /**
   * Number of the newest update since this program started or resumed the run. Updates of an earlier program do not count: after a kill,
   * this program repeats the updates after the last checkpoint.
   */
  #updatesMade(): number {
    const isAny = (store: Store) => store.series([UPDATE_DONE], this.#before.points).length > 0;
    return fromRecord(this.folder, (store) => (isAny(store) ? newestUpdate(store) : 0)) ?? 0;
  }

  /** Yields each new row of the record, until the run has ended. */
  async *#rows<Row>(
    from: number,
    read: (store: Store, since: number) => { readonly rows: readonly Row[]; readonly since: number },
  ): AsyncGenerator<Row, void> {
    let store: Store | null = null;
    try {
      for (let since = from; ; ) {
        // Read `#isOver` before the rows, so that the loop does not miss rows from just before the end.
        const isOver = this.#isOver;
        store ??= recordIn(this.folder);
        const page = store === null ? { rows: [], since } : read(store, since);
        yield* page.rows;
        const isEmpty = page.since === since;
        since = page.since;
        if (!isEmpty) continue;
        if (isOver) break;
        await pause(realClock, POLL_MS);
      }
      await this.ended;
    } finally {
      store?.close();
    }
  }

  /** Saves a checkpoint and ends the run. A second call changes nothing. */
  async stop(reason = "stopped by the program"): Promise<RunResult> {
    await this.#cluster.stop(reason);
    return this.ended;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.policy.close();
    await this.#cluster.stop("stopped by the program");
  }
}

/** A policy with the number of its calls in progress. */
interface Loaded {
  readonly name: string;
  readonly policy: Promise<Policy>;
  calls: number;
}

/**
 * The policy of the run's newest checkpoint. Each call checks for a newer checkpoint and then uses that checkpoint. The old policy first
 * finishes its replies and episodes in progress.
 */
export class NewestPolicy {
  readonly #folder: string;
  #loaded: Loaded | null = null;
  #isClosed = false;

  constructor(folder: string) {
    this.#folder = folder;
  }

  /** `Policy.reply` of the newest checkpoint. @throws {Error} also if there is no checkpoint yet; `save` writes a checkpoint */
  async reply(messages: readonly Message[], options?: ReplyOptions): Promise<string> {
    return this.#use((policy) => policy.reply(messages, options));
  }

  /** `Policy.episode` of the newest checkpoint. @throws {Error} also if there is no checkpoint yet; `save` writes a checkpoint */
  async episode(env: string | null, seed: number): Promise<PlayedOutcome> {
    return this.#use((policy) => policy.episode(env, seed));
  }

  /** The newest checkpoint as a policy. The policy stays open until the caller closes it. @throws {Error} the errors of `loadPolicy` */
  newest(): Promise<Policy> {
    return loadPolicy(this.#folder);
  }

  /** Ends the policy after its calls in progress have ended. */
  close(): void {
    this.#isClosed = true;
    if (this.#loaded?.calls === 0) end(this.#loaded);
    this.#loaded = null;
  }

  #newest(): Loaded {
    if (this.#isClosed)
      throw new Error(`the run is closed; loadPolicy(${JSON.stringify(this.#folder)}) loads its policy`);
    const name = checkpointsIn(join(this.#folder, "checkpoints"))[0]?.name ?? "";
    const before = this.#loaded;
    if (before?.name === name) return before;
    const loaded = { name, policy: loadPolicy(this.#folder), calls: 0 };
    this.#loaded = loaded;
    // After a failure, the next call loads the checkpoint again.
    loaded.policy.catch(() => {
      if (this.#loaded === loaded) this.#loaded = null;
    });
    if (before?.calls === 0) end(before);
    return loaded;
  }

  async #use<T>(call: (policy: Policy) => Promise<T>): Promise<T> {
    const loaded = this.#newest();
    loaded.calls++;
    try {
      return await call(await loaded.policy);
    } finally {
      loaded.calls--;
      if (loaded.calls === 0 && loaded !== this.#loaded) end(loaded);
    }
  }
}

const end = ({ policy }: Loaded) => void policy.then((loaded) => loaded.close()).catch(() => {});

/** The store of the run in this folder; null if the run has not made its store yet. */
const recordIn = (folder: string): Store | null => (hasRecord(folder) ? recordOf(folder) : null);

function fromRecord<T>(folder: string, read: (store: Store) => T): T | null {
  using store = recordIn(folder);
  return store && read(store);
}

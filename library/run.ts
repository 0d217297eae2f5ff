/**
 * A run in this program: its actors, what it records, and how it ends. `bun run cluster` shows a run; `train` returns one.
 *
 * - A run holds nothing global: a program may have several at once, each with a folder of its own.
 * - Updates and episodes are read from the run's store: a program that reads late loses none and keeps none in memory.
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

/** One update. */
export interface Update {
  /** The first is 1. */
  readonly update: number;
  /** Share of its training episodes that ended in success; null if it trained on none, because all were too old. */
  readonly success: number | null;
  /** Values that the learner reported since the update before, of this update and of validations. docs/metrics.md lists the names. */
  readonly metrics: Readonly<Partial<Record<MetricName, number>>>;
}

/** One episode of the record. */
export interface Episode {
  /** Unique in the run: "u3.g0.m1". */
  readonly name: string;
  /** Name of its env in the run. */
  readonly env: string;
  readonly purpose: Ticket["purpose"];
  /** Layout seed of its board. */
  readonly seed: number;
  /** Policy version that its ticket asked for. */
  readonly version: number;
  /** Its turns, tokens and rewards; or why it could not be played. */
  readonly outcome: Outcome;
}

/** How a run ended. */
export interface RunResult {
  readonly reason: string;
  /** null if the run was stopped before its last update; `bun run cluster --resume FOLDER` continues it. */
  readonly report: Report | null;
}

export type RunOptions = RunFolder & Partial<Pick<ClusterOptions, "event" | "output">>;

/** The last value that the learner reports of an update. */
const UPDATE_DONE: MetricName = "total/updates";

/** Time between two looks for new rows or a new checkpoint. */
const POLL_MS = 100;
/** Rows read at once. */
const PAGE = 256;

/**
 * Starts the run in a folder that holds its config. A folder with checkpoints is resumed.
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
    // Not an unhandled rejection: a program may use only `updates`, which throws the same error.
    this.ended.catch(() => {});
  }

  /** Its actors now. */
  get actors(): readonly ActorView[] {
    return this.#cluster.children();
  }

  /** Address of its page; null before the page is served. */
  get pageUrl(): string | null {
    const sink = this.actors.find(({ role }) => role === "metrics-sink");
    return /^http\S+/.exec(sink?.doing ?? "")?.[0] ?? null;
  }

  /**
   * Each update since this program started or resumed the run, including those made before the call. Ends with the run. After a
   * restart of the learner, updates since its last checkpoint come again, with equal values in sync mode.
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
   * Each episode since this program started or resumed the run, in the order of storing. Ends with the run.
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
   * Writes a checkpoint after the update that is being made.
   *
   * @returns the checkpoint's folder. The checkpoint includes every update that `updates` has given
   * @throws {Error} if the run failed, or ended before its first checkpoint
   */
  async save(): Promise<string> {
    const checkpoints = join(this.folder, "checkpoints");
    const made = this.#updatesMade();
    this.#cluster.save();
    for (;;) {
      // Read `#isOver` before the folder: a run writes its last checkpoint before it ends.
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

  /** If the run was killed earlier, updates after its last checkpoint do not count: this program makes them again. */
  #updatesMade(): number {
    const made = fromRecord(this.folder, (store) => {
      const isAny = store.series([UPDATE_DONE], this.#before.points).length > 0;
      return isAny ? newestUpdate(store) : 0;
    });
    return made ?? 0;
  }

  /** Rows of the record as they come, until the run has ended. */
  async *#rows<Row>(
    from: number,
    read: (store: Store, since: number) => { readonly rows: readonly Row[]; readonly since: number },
  ): AsyncGenerator<Row, void> {
    let store: Store | null = null;
    try {
      for (let since = from; ; ) {
        // Read `#isOver` before the rows, so that rows written just before the end are not missed.
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

  /** Saves and ends the run. A second call changes nothing. */
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
 * The run's newest checkpoint as a policy; a newer one replaces it at the next call. A replaced policy first ends its replies and
 * episodes in progress.
 */
export class NewestPolicy {
  readonly #folder: string;
  #loaded: Loaded | null = null;
  #isClosed = false;

  constructor(folder: string) {
    this.#folder = folder;
  }

  /** As `Policy.reply`. @throws {Error} also if there is no checkpoint yet: `save` writes one */
  async reply(messages: readonly Message[], options?: ReplyOptions): Promise<string> {
    return this.#use((policy) => policy.reply(messages, options));
  }

  /** As `Policy.episode`. @throws {Error} also if there is no checkpoint yet: `save` writes one */
  async episode(env: string | null, seed: number): Promise<PlayedOutcome> {
    return this.#use((policy) => policy.episode(env, seed));
  }

  /** The newest checkpoint as a policy. Only the caller closes it, not a newer checkpoint or the run's end. @throws {Error} as `loadPolicy` */
  newest(): Promise<Policy> {
    return loadPolicy(this.#folder);
  }

  /** Ends the policy as soon as its calls in progress end. */
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
    // The next call tries again.
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

/** The store of the run in this folder; null before it is made. */
const recordIn = (folder: string): Store | null => (hasRecord(folder) ? recordOf(folder) : null);

function fromRecord<T>(folder: string, read: (store: Store) => T): T | null {
  using store = recordIn(folder);
  return store && read(store);
}

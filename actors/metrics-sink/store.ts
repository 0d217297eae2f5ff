/**
 * The record of a run, `run.sqlite`: metrics, events and episodes. The page, `replay` and the exports read the record.
 * This file handles no messages and no HTTP.
 *
 * - `write` is one transaction: it stores the whole batch or nothing. A stored batch survives the death of any process. With durability
 *   "full" the batch also survives a power cut.
 * - The store ignores an episode with the same content as a stored episode. Normally it replaces a stored episode of the same name with other
 *   content, under a new id: a resumed run has played the episode again. Two attempts of an episode both stay if they arrive in one batch, or
 *   if two updates trained on them. A correct run has no such pair; `bun run chaos` looks for one.
 * - Each new id of a point, event or episode is larger than all earlier ids. So a reader needs only a cursor, and no queue.
 */
import { Database, type Statement } from "bun:sqlite";
import { join } from "node:path";
import type { EpisodeSummary, Series, StoredEvent } from "../dashboard/answers.ts";
import { EpisodesQuery } from "../dashboard/queries.ts";
import { messageOf } from "../errors.ts";
import { LEVELS } from "../log.ts";
import type { MetricName } from "../metrics/metrics.ts";
import type { ActorView, EpisodeRow, PolicyVersion } from "../protocol.ts";
import {
  bodyColumns,
  type Columns,
  episodeColumns,
  fromColumns,
  hasSameContent,
  type SummaryRow,
  searchTextOf,
  summaryOf,
} from "./episode-columns.ts";
import type {
  Cursor,
  EpisodeFilter,
  EventFilter,
  Page,
  Point,
  RecordedEpisode,
  RunFacts,
  StoredActors,
  StoredPoint,
  StoredRun,
  WriteBatch,
} from "./records.ts";
import { DELETES, insertInto, migrate, READABLE_SCHEMA, SELECTS, schemaOf } from "./schema.ts";

export interface StoreOptions {
  readonly path: string;
  /** "full" syncs every commit to the disk; "normal" may lose the last commits in a power cut, but not the file. */
  readonly durability: "normal" | "full";
  readonly wallClock: () => number;
  /** Largest size of the file. A write that needs more fails like a write to a full disk. Default: no limit. */
  readonly bytesMax?: number;
  /** The store does not change the file, and does not migrate an older schema. Queries that need a newer schema fail. */
  readonly readOnly?: boolean;
}

const PAGE_BYTES = 4096;
/** Number of points that `pointsAfter` reads at once. */
const PAGE_ROWS = 1000;

/** The store checks no file above this size: the check reads the whole file, and an actor must start within a minute. */
const CHECKED_BYTES_MAX = 2 ** 31;

/** The record of the run in this folder, read-only. @throws {Error} if the constructor of `Store` throws */
export const recordOf = (folder: string): Store =>
  new Store({ path: join(folder, "run.sqlite"), durability: "normal", wallClock: Date.now, readOnly: true });

const DAMAGED = "; it is damaged: put a copy in its place, or move it away; a resumed run then begins a new record";

/** An error's message. If the file is damaged or has lost its tables, the text also says what to do. */
function faultOf(error: unknown): string {
  const { message, code = "" } = error as Error & { code?: string };
  const isDamaged =
    code === "SQLITE_NOTADB" || code.startsWith("SQLITE_CORRUPT") || message.startsWith("no such table");
  return isDamaged ? message + DAMAGED : message;
}

type Values = Readonly<Record<string, string | number | boolean | null | undefined>>;

/** The query of episodes without a filter. SQLite needs a value for each parameter, also for the filters that a query does not use. */
const NO_FILTER: Values = Object.fromEntries(Object.keys(EpisodesQuery.shape).map((name) => [name, null]));

export class Store {
  /** Whether the file has all columns that the page reads. A store that is not `readOnly` migrates an older file, so its value is true. */
  readonly isCurrent: boolean;
  readonly #db: Database;
  readonly #wallClock: () => number;
  readonly #listeners = new Set<() => void>();
  #session = 0;
  /** Why the last `write` of this object failed; null if it succeeded, or if there was none. */
  writeFault: string | null = null;

  /** @throws {Error} if the file cannot be opened, is damaged, is no database, or has a newer schema than this Bunraku. */
  constructor({ path, durability, wallClock, bytesMax, readOnly = false }: StoreOptions) {
    this.#wallClock = wallClock;
    let opened: Database | null = null;
    try {
      opened = new Database(path, readOnly ? { readonly: true, strict: true } : { create: true, strict: true });
      this.#db = opened;
      // Readers wait for a lock too: after a kill, the first reader recovers sqlite's log, and locks out other readers until the end of the recovery.
      this.#db.run("PRAGMA busy_timeout = 5000");
      this.#db.run(readOnly ? "PRAGMA query_only = 1" : "PRAGMA journal_mode = WAL");
      // Without this check, rows in a damaged part of the file would be lost silently, or the run would fail in the middle.
      const unchecked = readOnly || Bun.file(path).size > CHECKED_BYTES_MAX;
      const found = unchecked ? "ok" : (this.#db.query("PRAGMA quick_check(1)").values()[0]![0] as string);
      if (found !== "ok") throw new Error(`${found.replaceAll("\n", " ")}${DAMAGED}`);
      this.isCurrent = schemaOf(this.#db) >= READABLE_SCHEMA || !readOnly;
      if (!readOnly) {
        this.#db.run(`PRAGMA synchronous = ${durability}`);
        migrate(this.#db);
      }
    } catch (error) {
      opened?.close();
      throw new Error(`cannot open ${path}: ${faultOf(error)}`, { cause: error });
    }
    if (bytesMax !== undefined) this.#db.run(`PRAGMA max_page_count = ${Math.floor(bytesMax / PAGE_BYTES)}`);
  }

  startSession({ name, env, updates, seed }: RunFacts): void {
    const now = this.#wallClock();
    this.#session = this.#insert("runs", { name, env, updates, seed, started_ms: now, seen_ms: now });
  }

  /** @throws {SQLiteError} if the disk is full or fails; then the store has no part of the batch. */
  write(batch: WriteBatch): void {
    const atMs = this.#wallClock();
    try {
      this.#writeAll(batch, atMs);
      this.writeFault = null;
    } catch (error) {
      this.writeFault = messageOf(error);
      throw error;
    }
    for (const listener of this.#listeners) listener();
  }

  #writeAll(batch: WriteBatch, atMs: number): void {
    this.#db.transaction(() => {
      for (const { name, actor, step, value } of batch.points) {
        this.#insert("metrics", { name, actor, step, value, at_ms: atMs }, "INSERT OR REPLACE");
        this.#insert("latest", { name, actor, step, value }, "INSERT OR REPLACE");
      }
      for (const { actor, level, kind, text } of batch.events) {
        this.#insert("events", { actor, level, kind, text, at_ms: atMs });
      }
      const before = this.cursor().episodes;
      for (const row of batch.episodes) this.#writeEpisode(row, atMs, before);
      if (batch.actors) this.#writeActors(batch.actors, atMs);
      this.#prepared("UPDATE runs SET seen_ms = $now WHERE id = $id").run({ now: atMs, id: this.#session });
    })();
  }

  /** @param before  the largest episode id before this batch */
  #writeEpisode(row: EpisodeRow, atMs: number, before: number): void {
    const { ticket, update } = row;
    const attempts = this.#prepared(SELECTS.attempts).all({ episode: ticket.episode }) as Columns[];
    if (attempts.some((stored) => hasSameContent(stored, row))) return;
    for (const stored of attempts) {
      const trainedIn = stored["trained_in"];
      const isRepeated =
        (stored["id"] as number) <= before && (trainedIn === null || update === null || trainedIn === update);
      if (isRepeated || stored["attempt"] === ticket.attempt) this.#removeEpisode(stored);
    }
    const id = this.#insert("episodes", { ...episodeColumns(row), at_ms: atMs });
    this.#insert("bodies", { ...bodyColumns(row), id });
    this.#insert("words", { rowid: id, text: searchTextOf(row.outcome) });
  }

  #removeEpisode(stored: Columns): void {
    const id = stored["id"] as number;
    this.#prepared(DELETES.words).run({ rowid: id, text: searchTextOf(fromColumns(stored).outcome) });
    this.#prepared(DELETES.body).run({ id });
    this.#prepared(DELETES.episode).run({ id });
  }

  #writeActors(actors: readonly ActorView[], atMs: number): void {
    this.#prepared("DELETE FROM actors").run();
    for (const actor of actors) this.#insert("actors", { name: actor.name, view: JSON.stringify(actor), at_ms: atMs });
  }

  /** Calls `listener` after every commit of this object. @returns a function that unsubscribes */
  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** The run; null if no run has started in this store. */
  run(): StoredRun | null {
    const run = this.#select(SELECTS.run).get() as Omit<StoredRun, "silentMs"> | null;
    if (run === null) return null;
    const nowMs = this.#wallClock();
    // The session that this object started is alive now.
    return this.#session > 0 ? { ...run, seenMs: nowMs, silentMs: 0 } : { ...run, silentMs: nowMs - run.seenMs };
  }

  /** The largest ids of the record now. */
  cursor(): Cursor {
    return this.#select(SELECTS.cursor).get() as Cursor;
  }

  /** Values of metrics whose point id is above `since` (0 gives all), as one series for each metric and actor. */
  series(names: readonly MetricName[], since: number): Series[] {
    const read = this.#select(SELECTS.series);
    return names.flatMap((name) => {
      const byActor = new Map<string, Series>();
      for (const { actor, step, value } of read.all({ name, since }) as Point[]) {
        const { steps, values } = byActor.getOrInsertComputed(actor, () => ({ name, actor, steps: [], values: [] }));
        steps.push(step);
        values.push(value);
      }
      return [...byActor.values()];
    });
  }

  /** At most `limit` points after id `since`, in the order they were written. */
  points(since: number, limit: number): StoredPoint[] {
    return this.#select(SELECTS.points).all({ since, limit }) as StoredPoint[];
  }

  /** All points after id `since`, in the order they were written, read page by page. */
  *pointsAfter(since: number): Generator<StoredPoint> {
    let page: StoredPoint[];
    do {
      page = this.points(since, PAGE_ROWS);
      yield* page;
      since = page.at(-1)?.id ?? since;
    } while (page.length === PAGE_ROWS);
  }

  latest(): Point[] {
    return this.#select(SELECTS.latest).all() as Point[];
  }

  /** The step of the newest value of these metrics; null if they have no value. */
  newestStep(names: readonly MetricName[]): number | null {
    const newest = this.#select(SELECTS.newest).get({ names: JSON.stringify(names) }) as { step: number } | null;
    return newest?.step ?? null;
  }

  /** The supervisor's latest report of all actors; null before the first report. */
  actors(): StoredActors | null {
    const rows = this.#select(SELECTS.actors).all() as { view: string; atMs: number }[];
    if (rows.length === 0) return null;
    return { atMs: rows[0]!.atMs, actors: rows.map(({ view }) => JSON.parse(view) as ActorView) };
  }

  /** Newest first. */
  events({ before, since, limit }: Page, { kind, level = "info" }: EventFilter = {}): StoredEvent[] {
    return this.#select(SELECTS.events).all({
      before: before ?? Number.MAX_SAFE_INTEGER,
      since: since ?? 0,
      limit,
      kind,
      levels: JSON.stringify(LEVELS.slice(LEVELS.indexOf(level))),
    }) as StoredEvent[];
  }

  lastEvent(kind: string): StoredEvent | null {
    return this.#select(SELECTS.lastEvent).get({ kind }) as StoredEvent | null;
  }

  /** One page of episodes, newest first. `next` is the value of `before` for the next page; null on the last page. */
  episodes(filter: EpisodeFilter, { before, since, limit }: Page): { rows: EpisodeSummary[]; next: number | null } {
    const found = this.#select(SELECTS.episodes).all({
      ...NO_FILTER,
      ...filter,
      // A quoted phrase for FTS5. With the star, the phrase's last word may be the beginning of a longer word.
      text: filter.text && `"${filter.text.replaceAll('"', '""')}" *`,
      before: before ?? Number.MAX_SAFE_INTEGER,
      since: since ?? 0,
      // The statement asks for one row more than the page has: this row shows whether there is a next page.
      limit: limit + 1,
    }) as SummaryRow[];
    const rows = found.slice(0, limit).map(summaryOf);
    return { rows, next: found.length > limit ? rows.at(-1)!.id : null };
  }

  /** One whole episode as the learner sent it; null if the store has no episode with this id. */
  episode(id: number): RecordedEpisode | null {
    const summary = this.#select(SELECTS.summary).get({ id }) as SummaryRow | null;
    const columns = this.#select(SELECTS.episode).get({ id }) as Columns | null;
    return summary && columns && { summary: summaryOf(summary), row: fromColumns(columns) };
  }

  episodeNamed(episode: string): number | null {
    return (this.#select(SELECTS.named).get({ episode }) as { id: number } | null)?.id ?? null;
  }

  /** Policy versions that have this version number or this digest, of all episodes except `id`. */
  versionsSharing(id: number, { version, digest }: PolicyVersion): PolicyVersion[] {
    return this.#select(SELECTS.versionsSharing).all({ id, version, digest }) as PolicyVersion[];
  }

  close(): void {
    this.#db.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  /** A statement whose errors name the file, because a reader may be the first to find damage in the file. */
  #select(sql: string): { get(values?: Values): unknown; all(values?: Values): unknown[] } {
    const named = <T>(read: (statement: Statement) => T): T => {
      try {
        return read(this.#prepared(sql));
      } catch (error) {
        throw new Error(`cannot read ${this.#db.filename}: ${faultOf(error)}`, { cause: error });
      }
    };
    return {
      get: (values = {}) => named((statement) => statement.get(values)),
      all: (values = {}) => named((statement) => statement.all(values)),
    };
  }

  /** @returns the row's id */
  #insert(table: string, row: Columns, verb = "INSERT"): number {
    return Number(this.#prepared(insertInto(table, row, verb)).run(row).lastInsertRowid);
  }

  // `query` caches compiled statements by their text.
  #prepared(sql: string): Statement {
    return this.#db.query(sql);
  }
}

/**
 * Metrics sink: takes metrics, events and finished episodes from the learner, and reports of all actors from the supervisor, and writes
 * them to the store. The sink interprets only two of the numbers: the count of updates and processor time.
 *
 * - The sink answers `episodes` only after it has committed the rows, so no answered row is lost. If the store cannot be written, it
 *   answers `failed` ("capacity"), and the learner keeps the rows and asks again. For rows that can never be stored it answers `failed` ("protocol").
 * - Metrics and events are committed in one transaction, at most `flushMs` after they arrive.
 * - At most `queuedMax` metrics and events wait. Before more are taken, the waiting ones are written. If the store cannot be written,
 *   newer ones are dropped and counted, and the count is stored when writing works again.
 */
import { SQLiteError } from "bun:sqlite";
import type { Clock } from "../clock.ts";
import { EVENT_KINDS, isMetricName, type MetricName } from "../metrics/metrics.ts";
import type { ActorView, Answer, AnswerTo, Ask, Messages, Tell } from "../protocol.ts";
import type { HostHandler } from "../transport/handshake.ts";
import { failed, notTaken, refused } from "../transport/refusals.ts";
import type { Peer } from "../transport/transport.ts";
import type { Point, RunEvent, WriteBatch } from "./records.ts";

export interface MetricsSinkOptions {
  /** Stores a whole batch or throws `SQLiteError`. */
  readonly store: { write(batch: WriteBatch): void };
  /** Name of this actor, for its own metrics and events. */
  readonly actor: string;
  readonly clock: Clock;
  readonly flushMs: number;
  readonly queuedMax: number;
  /** Updates made before this sink began; 0 if left out. */
  readonly updates?: number;
}

export class MetricsSink implements HostHandler {
  readonly #options: MetricsSinkOptions;
  #points: Point[] = [];
  #events: RunEvent[] = [];
  /** Latest report of all actors, if it is not written yet. */
  #actors: readonly ActorView[] | null = null;
  readonly #unknownNames = new Set<string>();
  #cancelFlush: (() => void) | null = null;
  #stepLast = 0;
  #update: number;
  #failing = false;
  #dropped = 0;
  #droppedStored = 0;
  #storedEpisodes = 0;

  constructor(options: MetricsSinkOptions) {
    this.#options = options;
    this.#update = options.updates ?? 0;
  }

  /** Text for the heartbeat. */
  doing(): string {
    const trouble = this.#failing ? `, store not writable, ${this.#dropped} messages dropped` : "";
    return `${this.#storedEpisodes} episodes stored${trouble}`;
  }

  /** @throws {ProtocolError} for a message that is not for a sink. */
  told(_peer: Peer, message: Tell): void {
    switch (message.type) {
      case "metrics":
        this.#takeMetrics(message);
        break;
      case "event":
        this.#queue([], [message]);
        break;
      default:
        throw notTaken("to the metrics sink from the learner", message.type);
    }
  }

  asked(_peer: Peer, message: Exclude<Ask, Messages["hello"]>): Answer {
    if (message.type === "episodes") return this.#takeEpisodes(message);
    return refused("to the metrics sink from the learner", message.type);
  }

  /** Number of metrics and events that wait to be written. */
  get waiting(): number {
    return this.#points.length + this.#events.length;
  }

  /** Writes everything that waits. @returns false if the store could not be written; then everything still waits */
  flush(): boolean {
    this.#cancelFlush?.();
    this.#cancelFlush = null;
    const written = this.#commit([]) === null;
    if (!written) this.#flushLater();
    return written;
  }

  /** Writes what waits, and an event that ends the session's record. @returns false if the store could not be written */
  close(): boolean {
    const { actor } = this.#options;
    this.#events.push({
      actor,
      level: "info",
      kind: EVENT_KINDS.closed,
      text: "the record of this session is complete",
    });
    const written = this.flush();
    // The store is closed next.
    this.#cancelFlush?.();
    return written;
  }

  #takeMetrics({ actor, step, values }: Messages["metrics"]): void {
    this.#stepLast = Math.max(this.#stepLast, step);
    const updates: MetricName = "total/updates";
    if (updates in values) this.#update = step;
    const known = Object.entries(values).filter(([name]) => isMetricName(name));
    const events = Object.keys(values)
      .filter((name) => !isMetricName(name) && !this.#unknownNames.has(name))
      .map((name): RunEvent => {
        this.#unknownNames.add(name);
        const text = `metric "${name}" of ${actor} is not stored: it is not in actors/metrics/metrics.ts`;
        return { actor: this.#options.actor, level: "warning", kind: "unknown-metric", text: text.slice(0, 4096) };
      });
    this.#queue(
      known.map(([name, value]) => ({ name, actor, step, value })),
      events,
    );
  }

  /** Takes the supervisor's report. The metrics of each actor belong to the current update. */
  takeActors(actors: readonly ActorView[]): void {
    this.#actors = actors;
    const cpu: MetricName = "process/cpu_seconds";
    const rss: MetricName = "process/rss_bytes";
    const counted = new Set<number>();
    for (const { name, load: all, rssBytes, guest, pid } of actors) {
      if (!guest && pid === null) continue;
      // Actors of one process share its processor time: it counts once.
      const { [cpu]: _, ...rest } = all;
      const load = !guest && counted.has(pid!) ? rest : all;
      if (!guest) counted.add(pid!);
      // 0 until the actor's first heartbeat.
      const memory = rssBytes === 0 ? {} : { [rss]: rssBytes };
      this.#takeMetrics({ type: "metrics", actor: name, step: this.#update, values: { ...load, ...memory } });
    }
    this.#flushLater();
  }

  #takeEpisodes({ rows }: Messages["episodes"]): AnswerTo<Messages["episodes"]> {
    const error = this.#commit(rows);
    if (error !== null) {
      const what = `cannot store ${rows.length} episodes: ${error.message}`;
      // If the waiting messages cannot be stored alone either, the rows may not be at fault. Then the learner sends the rows again.
      if (isRowFault(error) && this.flush()) return failed("protocol", what);
      const advice = error.code === "SQLITE_FULL" ? "Free space on the disk of the run folder; the" : "The";
      return failed("capacity", `${what}. ${advice} learner sends them again.`);
    }
    this.#storedEpisodes += rows.length;
    return { type: "episodes.stored", count: rows.length };
  }

  #queue(points: readonly Point[], events: readonly RunEvent[]): void {
    const count = points.length + events.length;
    if (this.#points.length + this.#events.length + count > this.#options.queuedMax) {
      // While the store fails, metrics wait for the timer or for episodes: a transaction for each message would be slow.
      if (this.#failing || !this.flush()) {
        this.#dropped += count;
        return;
      }
    }
    this.#points.push(...points);
    this.#events.push(...events);
    this.#flushLater();
  }

  #flushLater(): void {
    const { clock, flushMs } = this.#options;
    this.#cancelFlush ??= clock.after(flushMs, () => this.flush());
  }

  /** Commits everything that waits, and `episodes`, in one transaction. @returns the error, or null */
  #commit(episodes: WriteBatch["episodes"]): SQLiteError | null {
    const dropped = this.#dropped - this.#droppedStored;
    const points = [...this.#points];
    const events = [...this.#events];
    if (dropped > 0) {
      const { actor } = this.#options;
      const name: MetricName = "sink/dropped_messages";
      points.push({ name, actor, step: this.#stepLast, value: this.#dropped });
      const text = `${dropped} metrics and events were dropped while the store could not be written`;
      events.push({ actor, level: "warning", kind: "dropped", text });
    }
    if (points.length + events.length + episodes.length === 0 && this.#actors === null) return null;
    try {
      this.#options.store.write({ points, events, episodes, actors: this.#actors });
    } catch (error) {
      if (!(error instanceof SQLiteError)) throw error;
      this.#failing = true;
      return error;
    }
    this.#failing = false;
    this.#points = [];
    this.#events = [];
    this.#actors = null;
    this.#droppedStored = this.#dropped;
    return null;
  }
}

/** Whether the values are at fault, and not the disk, a lock or memory. */
const isRowFault = ({ code }: SQLiteError): boolean => /^SQLITE_(CONSTRAINT|TOOBIG|MISMATCH|RANGE)/.test(code ?? "");

/**
 * Metrics sink: stores the metrics, events and finished episodes that the learner sends, and the supervisor's reports of all actors. The
 * sink interprets only three metrics: the counts of updates and of roll-backs, and the processor time.
 *
 * - The sink answers `episodes` only after it has committed the rows, so no answered row is lost. If a write fails, the sink answers
 *   `failed` ("capacity"); then the learner keeps the rows and asks again. If the store can never take the rows, the sink answers `failed`
 *   ("protocol").
 * - The sink commits metrics and events in one transaction, at most `flushMs` after they arrive.
 * - At most `waitingMax` metrics and events wait. Before the sink takes more, it writes the waiting ones. If this or the previous write
 *   failed, the sink drops and counts the new ones. It stores the count when a write succeeds again.
 */
import { SQLiteError } from "bun:sqlite";
import type { Clock } from "../clock.ts";
import { EVENT_KINDS, isMetricName, type MetricName } from "../metrics/metrics.ts";
import type { ActorView, Answer, AnswerTo, Ask, Messages, Tell } from "../protocol.ts";
import { ENDS } from "../record/newest-update.ts";
import type { HostHandler } from "../transport/handshake.ts";
import { failed, notTaken, refused } from "../transport/refusals.ts";
import type { Peer } from "../transport/transport.ts";
import type { Point, RunEvent, WriteBatch } from "./records.ts";

export interface MetricsSinkOptions {
  /** Stores a whole batch or throws `SQLiteError`. */
  readonly store: { write(batch: WriteBatch): void };
  readonly actor: string;
  readonly clock: Clock;
  readonly flushMs: number;
  readonly waitingMax: number;
  /** The update at which the record ended before this sink began; default 0. */
  readonly updates?: number;
}

export class MetricsSink implements HostHandler {
  readonly #options: MetricsSinkOptions;
  #points: Point[] = [];
  #events: RunEvent[] = [];
  /** The latest report of all actors; null if the sink has written it. */
  #actors: readonly ActorView[] | null = null;
  readonly #unknownNames = new Set<string>();
  #cancelFlush: (() => void) | null = null;
  #update: number;
  #failing = false;
  #dropped = 0;
  #droppedStored = 0;
  #storedEpisodes = 0;

  constructor(options: MetricsSinkOptions) {
    this.#options = options;
    this.#update = options.updates ?? 0;
  }

  /** What this actor does, as a text for the heartbeat. */
  doing(): string {
    const trouble = this.#failing ? `, store not writable, ${this.#dropped} messages dropped` : "";
    return `${this.#storedEpisodes} episodes stored${trouble}`;
  }

  /** @throws {ProtocolError} for a message that is not for a sink. */
  told(_peer: Peer, message: Tell): void {
    if (message.type === "metrics") this.#takeMetrics(message);
    else if (message.type === "event") this.#queue([], [message]);
    else throw notTaken("to the metrics sink from the learner", message.type);
  }

  asked(_peer: Peer, message: Exclude<Ask, Messages["hello"]>): Answer {
    if (message.type === "episodes") return this.#takeEpisodes(message);
    return refused("to the metrics sink from the learner", message.type);
  }

  get waiting(): number {
    return this.#points.length + this.#events.length;
  }

  /** Writes everything that waits. @returns false if the write failed; then everything still waits */
  flush(): boolean {
    this.#cancelFlush?.();
    this.#cancelFlush = null;
    const written = this.#commit([]) === null;
    if (!written) this.#flushLater();
    return written;
  }

  /** Writes everything that waits, and an event that ends the session's record. @returns false if the write failed */
  close(): boolean {
    const text = "the record of this session is complete";
    this.#events.push({ actor: this.#options.actor, level: "info", kind: EVENT_KINDS.closed, text });
    const written = this.flush();
    // A failed flush has set the timer again, but the caller closes the store next.
    this.#cancelFlush?.();
    return written;
  }

  #takeMetrics({ actor, step, values }: Messages["metrics"]): void {
    if (ENDS.some((name) => name in values)) this.#update = step;
    const known = Object.entries(values).filter(([name]) => isMetricName(name));
    const points = known.map(([name, value]) => ({ name, actor, step, value }));
    const events = Object.keys(values)
      .filter((name) => !isMetricName(name) && !this.#unknownNames.has(name))
      .map((name): RunEvent => {
        this.#unknownNames.add(name);
        const text = `metric "${name}" of ${actor} is not stored: it is not in actors/metrics/metrics.ts`;
        return { actor: this.#options.actor, level: "warning", kind: "unknown-metric", text: text.slice(0, 4096) };
      });
    this.#queue(points, events);
  }

  /** Takes the supervisor's report. The metrics of each actor belong to the current update. */
  takeActors(actors: readonly ActorView[]): void {
    this.#actors = actors;
    const cpu: MetricName = "process/cpu_seconds";
    const rss: MetricName = "process/rss_bytes";
    const counted = new Set<number>();
    for (const { name, load: all, rssBytes, guest, pid } of actors) {
      if (!guest && pid === null) continue;
      // Actors of one process report the same processor time, so only the first of them counts.
      const { [cpu]: _, ...rest } = all;
      const load = !guest && counted.has(pid!) ? rest : all;
      if (!guest) counted.add(pid!);
      // rssBytes is 0 until the actor's first heartbeat.
      const memory = rssBytes === 0 ? {} : { [rss]: rssBytes };
      this.#takeMetrics({ type: "metrics", actor: name, step: this.#update, values: { ...load, ...memory } });
    }
    this.#flushLater();
  }

  #takeEpisodes({ rows }: Messages["episodes"]): AnswerTo<Messages["episodes"]> {
    const error = this.#commit(rows);
    if (error !== null) {
      const what = `cannot store ${rows.length} episodes: ${error.message}`;
      // If `flush` also fails, the fault may be in the waiting messages and not in the rows. Then the learner sends the rows again.
      if (isRowFault(error) && this.flush()) return failed("protocol", what);
      const advice = error.code === "SQLITE_FULL" ? "Free space on the disk of the run folder; the" : "The";
      return failed("capacity", `${what}. ${advice} learner sends them again.`);
    }
    this.#storedEpisodes += rows.length;
    return { type: "episodes.stored", count: rows.length };
  }

  #queue(points: readonly Point[], events: readonly RunEvent[]): void {
    const count = points.length + events.length;
    // After a failed write, only the timer or new episodes start the next try: a try for each message would be slow.
    if (this.waiting + count > this.#options.waitingMax && (this.#failing || !this.flush())) {
      this.#dropped += count;
      return;
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
      points.push({ name, actor, step: this.#update, value: this.#dropped });
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

/** Whether the rows' values caused the error, and not the disk, a lock or memory. */
const isRowFault = ({ code }: SQLiteError): boolean => /^SQLITE_(CONSTRAINT|TOOBIG|MISMATCH|RANGE)/.test(code ?? "");

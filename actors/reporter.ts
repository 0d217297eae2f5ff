/**
 * An actor's way to the metrics sink. Knows no store and no page.
 *
 * - Metrics and events that cannot be sent now wait, at most `waitingMax` of them; older ones are then dropped, and counted
 *   in the next event that gets through. Episodes wait until they are stored; who reports more is made to wait.
 */
import { type MetricName, metricValues } from "./metrics.ts";
import type { EpisodeRow, Messages, Tell } from "./protocol.ts";
import type { Peer } from "./transport/transport.ts";

export interface ReporterOptions {
  readonly actor: string;
  /** The sink, or null while there is no connection. */
  readonly sink: () => Peer | null;
  readonly waitingMax: number;
  readonly rowsMax: number;
  readonly askDeadlineMs: number;
  /** Resolves when it is worth trying again. */
  readonly retry: () => Promise<void>;
}

/** Bytes waiting in the connection above which metrics wait here instead. */
const BUSY_BYTES = 1 << 20;

export class Reporter {
  readonly #options: ReporterOptions;
  #waiting: Tell[] = [];
  #dropped = 0;
  #rows: EpisodeRow[] = [];
  #storing: Promise<void> | null = null;

  constructor(options: ReporterOptions) {
    this.#options = options;
  }

  metrics(step: number, values: Partial<Record<MetricName, number>>): void {
    this.#tell({ type: "metrics", actor: this.#options.actor, step, values: metricValues(values) });
  }

  event(level: Messages["event"]["level"], kind: string, text: string): void {
    this.#tell({ type: "event", actor: this.#options.actor, level, kind, text: text.slice(0, 4096) });
  }

  /** Hand over rows for the trajectory log. Resolves at once unless too many wait to be stored. */
  async episodes(rows: readonly EpisodeRow[]): Promise<void> {
    this.#rows.push(...rows);
    this.#storing ??= this.#store();
    if (this.#rows.length > this.#options.rowsMax) await this.#storing;
  }

  /** Everything handed over is stored, or was told. */
  async drain(): Promise<void> {
    this.flush();
    await this.#storing;
  }

  /** Send what waits. Called when a connection comes up. */
  flush(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const message of waiting) this.#tell(message);
  }

  #tell(message: Tell): void {
    const sink = this.#options.sink();
    if (sink === null || sink.closed || sink.queuedBytes > BUSY_BYTES) {
      this.#waiting.push(message);
      if (this.#waiting.length > this.#options.waitingMax) this.#dropped += this.#waiting.splice(0, 1).length;
      return;
    }
    sink.tell(message);
    if (this.#dropped === 0) return;
    const text = `${this.#dropped} metrics and events of ${this.#options.actor} were dropped while the sink was away`;
    this.#dropped = 0;
    this.event("warning", "dropped", text);
  }

  async #store(): Promise<void> {
    while (this.#rows.length > 0) {
      const rows = this.#rows.slice(0, 128);
      const answer = await this.#options.sink()?.ask({ type: "episodes", rows }, this.#options.askDeadlineMs);
      if (answer?.type === "episodes.stored") this.#rows.splice(0, rows.length);
      else await this.#options.retry();
    }
    this.#storing = null;
  }
}

/**
 * Sends an actor's metrics, events and episodes to the metrics sink. Knows no store and no page.
 *
 * - Metrics and events arrive in order. While they cannot be sent, at most `waitingMax` wait; then the oldest are dropped, and an
 *   event with their count is sent as soon as the sink is back.
 * - Episodes wait until they are stored; a caller that reports more than `rowsMax` must wait. If the sink cannot store them, the
 *   caller gets one notice, and another when it can again.
 */
import type { Clock } from "../clock.ts";
import { type MetricName, metricValues } from "../metrics/metrics.ts";
import type { Answer, EpisodeRow, Messages, Tell } from "../protocol.ts";
import type { Handler, Peer } from "../transport/transport.ts";

export interface ReporterOptions {
  readonly actor: string;
  /** The sink, or null while there is no connection. */
  readonly sink: () => Peer | null;
  readonly clock: Clock;
  readonly waitingMax: number;
  readonly rowsMax: number;
  readonly askDeadlineMs: number;
  /** Wait before a retry. */
  readonly retryMs: number;
  /** Reports what cannot be sent through the sink. */
  readonly notice: (level: "info" | "warning", text: string) => void;
  /** Also gets all metrics. */
  readonly watch?: (step: number, values: Readonly<Record<string, number>>) => void;
}

/** While more bytes than this wait in the connection, metrics wait here. */
const BUSY_BYTES = 1 << 20;
/** Rows of one message. */
const ROWS_AT_ONCE = 128;

export class Reporter implements Handler {
  readonly #options: ReporterOptions;
  #waiting: Tell[] = [];
  #dropped = 0;
  #rows: EpisodeRow[] = [];
  #storing: Promise<void> | null = null;
  #refused = false;

  constructor(options: ReporterOptions) {
    this.#options = options;
  }

  /** Number of rows not stored yet, and of messages not sent yet. */
  get waiting(): { readonly rows: number; readonly messages: number } {
    return { rows: this.#rows.length, messages: this.#waiting.length };
  }

  metrics(step: number, values: Partial<Record<MetricName, number>>): void {
    const checked = metricValues(values);
    this.#tell({ type: "metrics", actor: this.#options.actor, step, values: checked });
    this.#options.watch?.(step, checked);
  }

  event(level: Messages["event"]["level"], kind: string, text: string): void {
    this.#tell({ type: "event", actor: this.#options.actor, level, kind, text: text.slice(0, 4096) });
  }

  /** Report episodes. Resolves at once unless too many wait to be stored. */
  async episodes(rows: readonly EpisodeRow[]): Promise<void> {
    this.#rows.push(...rows);
    this.#storing ??= this.#store();
    if (this.#rows.length > this.#options.rowsMax) await this.#storing;
  }

  /** Wait until everything is stored or sent. @returns what is left after `withinMs` */
  async drain(withinMs: number): Promise<{ readonly rows: number; readonly messages: number }> {
    const { clock } = this.#options;
    const deadline = Promise.withResolvers<void>();
    let late = false;
    const cancel = clock.after(withinMs, () => {
      late = true;
      deadline.resolve();
    });
    this.#flush();
    while (!late && this.#rows.length + this.#waiting.length > 0) {
      await Promise.race([this.#storing ?? this.#pause(), deadline.promise]);
      this.#flush();
    }
    cancel();
    return { rows: this.#rows.length, messages: this.#waiting.length };
  }

  opened(): void {
    this.#flush();
  }

  told(): void {}

  asked(): Answer {
    return { type: "failed", code: "protocol", detail: `${this.#options.actor} answers no requests of the sink` };
  }

  /** Send waiting messages as far as the connection takes them. */
  #flush(): void {
    const { sink: current, actor } = this.#options;
    const sink = current();
    if (sink === null) return;
    while (this.#waiting.length > 0 && !sink.closed && sink.queuedBytes <= BUSY_BYTES) {
      sink.tell(this.#waiting.shift()!);
      if (this.#dropped === 0) continue;
      const text = `${this.#dropped} metrics and events of ${actor} were dropped while the sink was away`;
      this.#dropped = 0;
      sink.tell({ type: "event", actor, level: "warning", kind: "dropped", text });
    }
  }

  #tell(message: Tell): void {
    this.#waiting.push(message);
    this.#flush();
    while (this.#waiting.length > this.#options.waitingMax) {
      this.#waiting.shift();
      this.#dropped++;
    }
  }

  async #store(): Promise<void> {
    while (this.#rows.length > 0) {
      const rows = this.#rows.slice(0, ROWS_AT_ONCE);
      const answer = await this.#options.sink()?.ask({ type: "episodes", rows }, this.#options.askDeadlineMs);
      this.#noteAnswer(answer);
      if (answer?.type === "episodes.stored") this.#rows.splice(0, rows.length);
      else await this.#pause();
    }
    this.#storing = null;
  }

  #noteAnswer(answer: Messages["episodes.stored" | "failed"] | undefined): void {
    const refused = answer?.type === "failed" && answer.code !== "closed" && answer.code !== "deadline";
    if (refused && !this.#refused) this.#options.notice("warning", `${answer.detail} Until then they wait here.`);
    if (!refused && this.#refused && answer?.type === "episodes.stored") {
      this.#options.notice("info", "episodes can be stored again");
    }
    if (refused || answer?.type === "episodes.stored") this.#refused = refused;
  }

  #pause(): Promise<void> {
    return new Promise((resolve) => void this.#options.clock.after(this.#options.retryMs, resolve));
  }
}

/**
 * Sends an actor's metrics, events and episodes to the metrics sink, which stores them.
 *
 * - Metrics and events arrive in order. While the reporter cannot send them, at most `waitingMax` of them wait. If more come, the reporter
 *   drops the oldest. When the sink is back, an event reports how many the reporter dropped.
 * - An episode waits until the sink has stored it. If more than `rowsMax` episodes wait, or if they fill more than WAITING_FRAMES_MAX frames, a
 *   caller of `episodes` waits until no episode waits. If the sink refuses episodes, the reporter gives a notice, and another notice when the
 *   sink takes them again.
 * - If the sink can never store an episode, the reporter gives a notice, counts the episode in `lost` and drops it, so that the other
 *   episodes need not wait. Such an episode is invalid or larger than a frame, or the sink refuses it, or it ends the connection repeatedly.
 */
import { z } from "zod";
import { type Clock, pause, settlesIn } from "../clock.ts";
import { schemaFaults } from "../errors.ts";
import { type MetricName, metricValues } from "../metrics/metrics.ts";
import { plural } from "../number-text.ts";
import { type Answer, type Ask, type EpisodeRow, type Messages, schemas, type Tell } from "../protocol.ts";
import { notTaken, refused } from "../transport/refusals.ts";
import type { Handler, Peer } from "../transport/transport.ts";

export interface ReporterOptions {
  readonly actor: string;
  /** The sink, or null while there is no connection. */
  readonly sink: () => Peer | null;
  readonly clock: Clock;
  readonly waitingMax: number;
  readonly rowsMax: number;
  readonly frameBytesMax: number;
  readonly askDeadlineMs: number;
  readonly retryMs: number;
  /** Takes notices about episodes that wait, are lost, or can be stored again. */
  readonly notice: (level: "info" | "warning", text: string) => void;
  /** The reporter calls this with all metrics that it gets. */
  readonly watch?: (step: number, values: Readonly<Record<string, number>>) => void;
}

/** While the connection has more unsent bytes than this, metrics and events wait in the reporter. */
const BUSY_BYTES = 1 << 20;
const ROWS_AT_ONCE = 128;
/** The rows of one message fill at most this part of a frame. The reporter sends a larger row alone. */
const FRAME_SHARE = 1 / 8;
/** A caller of `episodes` waits if the waiting episodes fill more frames than this. */
const WAITING_FRAMES_MAX = 4;
/** The reporter drops an episode if messages that hold only this episode end the connection more than `CUTS_MAX` times. */
const CUTS_MAX = 10;
/** Maximum number of lost episodes that get a notice; the reporter only counts later ones. */
const NOTICES_MAX = 20;

export class Reporter implements Handler {
  readonly #options: ReporterOptions;
  #waiting: Tell[] = [];
  #dropped = 0;
  #rows: WaitingRow[] = [];
  #storing: Promise<void> | null = null;
  #refused = false;
  /** True after the notice that callers wait for the sink. */
  #waits = false;
  /** Number of episodes that the sink can never store. */
  lost = 0;

  constructor(options: ReporterOptions) {
    this.#options = options;
  }

  /** Number of rows that the sink has not stored yet, and of messages that the reporter has not sent yet. */
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

  /** Reports episodes. The promise resolves at once. If too many episodes wait, it resolves when none waits. */
  async episodes(rows: readonly EpisodeRow[]): Promise<void> {
    for (const row of rows) {
      // Check here, because the sink closes the connection to an actor that sends an invalid message.
      const { error } = RowSchema.safeParse(row);
      if (error === undefined) this.#rows.push({ row, bytes: estimatedBytes(row) });
      else this.#lose(row, schemaFaults(error, "episode"));
    }
    if (this.#rows.length > 0) this.#storing ??= this.#store();
    const { rowsMax, frameBytesMax } = this.#options;
    const isFull = this.#rows.length > rowsMax || bytesOf(this.#rows) > WAITING_FRAMES_MAX * frameBytesMax;
    if (!isFull) return;
    if (this.#refused && !this.#waits) {
      this.#waits = true;
      this.#options.notice(
        "warning",
        `training waits until the sink can store ${plural(this.#rows.length, "episode")}`,
      );
    }
    await this.#storing;
  }

  /** Waits, at most `withinMs`, until the sink has all rows and messages. @returns how many rows and messages still wait then */
  async drain(withinMs: number): Promise<Reporter["waiting"]> {
    const { clock, retryMs } = this.#options;
    const endMs = clock.now() + withinMs;
    this.#flush();
    while (clock.now() < endMs && this.#rows.length + this.#waiting.length > 0) {
      await settlesIn(clock, endMs - clock.now(), this.#storing ?? pause(clock, retryMs));
      this.#flush();
    }
    return this.waiting;
  }

  opened(): void {
    this.#flush();
  }

  told(_: Peer, message: Tell): void {
    throw notTaken("to the learner from the metrics sink", message.type);
  }

  asked(_: Peer, message: Ask): Answer {
    return refused("to the learner from the metrics sink", message.type);
  }

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
    const { sink, askDeadlineMs, clock, retryMs } = this.#options;
    let rowsMax = ROWS_AT_ONCE;
    let cuts = 0;
    while (this.#rows.length > 0) {
      const rows = this.#batch(rowsMax);
      const message = { type: "episodes", rows: rows.map(({ row }) => row) } as const;
      const answer = await sink()?.ask(message, askDeadlineMs);
      if (answer?.type === "episodes.stored") {
        this.#noteAnswer(answer);
        this.#rows.splice(0, rows.length);
        rowsMax = Math.min(ROWS_AT_ONCE, rowsMax * 2);
        cuts = 0;
        continue;
      }
      const fault = this.#faultOf(rows, answer);
      const isCut = fault === null && answer?.type === "failed" && answer.code === "closed";
      if (fault !== null || isCut) rowsMax = Math.max(1, rows.length >> 1);
      if (isCut && rows.length === 1) cuts++;
      const reason = fault ?? (cuts > CUTS_MAX ? `it ended the connection ${cuts} times` : null);
      if (reason !== null && rows.length === 1) {
        this.#lose(this.#rows.shift()!.row, reason);
        cuts = 0;
      }
      if (fault !== null) continue;
      this.#noteAnswer(answer);
      await pause(clock, retryMs);
    }
    this.#storing = null;
  }

  /** The first waiting rows that fit into one message together; at least one row. */
  #batch(rowsMax: number): WaitingRow[] {
    const bytesMax = this.#options.frameBytesMax * FRAME_SHARE;
    let sum = 0;
    const end = this.#rows.findIndex(({ bytes }, i) => {
      sum += bytes;
      return i > 0 && (i >= rowsMax || sum > bytesMax);
    });
    return this.#rows.slice(0, end === -1 ? rowsMax : end);
  }

  /** Why these rows, or one of them, can never be stored; null if they may be stored later. */
  #faultOf(rows: readonly WaitingRow[], answer: Answer | undefined): string | null {
    if (answer?.type !== "failed") return null;
    if (answer.code === "protocol") return answer.detail;
    // "capacity" may mean a full disk: then a later try may succeed. But an episode that is larger than a frame never fits.
    const isTooLarge = rows.some(({ bytes }) => bytes > this.#options.frameBytesMax * 0.9);
    return answer.code === "capacity" && isTooLarge ? answer.detail : null;
  }

  #lose({ ticket }: EpisodeRow, reason: string): void {
    this.lost++;
    if (this.lost > NOTICES_MAX) return;
    const text = `episode ${ticket.episode} cannot be stored and is lost: ${reason}`;
    this.#options.notice("warning", text);
    this.event("warning", "lost", text);
  }

  #noteAnswer(answer: Messages["episodes.stored" | "failed"] | undefined): void {
    const refused = answer?.type === "failed" && answer.code !== "closed" && answer.code !== "deadline";
    if (refused && !this.#refused)
      this.#options.notice("warning", `${answer.detail} The learner keeps its episodes until the sink can store them.`);
    if (!refused && this.#refused && answer?.type === "episodes.stored") {
      this.#options.notice("info", "episodes can be stored again");
      this.#waits = false;
    }
    if (refused || answer?.type === "episodes.stored") this.#refused = refused;
  }
}

interface WaitingRow {
  readonly row: EpisodeRow;
  readonly bytes: number;
}

const bytesOf = (rows: readonly WaitingRow[]): number => rows.reduce((sum, { bytes }) => sum + bytes, 0);

/** A row without its outcome. The learner has checked the outcome, which is most of a row, when it arrived from a sampler. */
const RowSchema = schemas.episodes.shape.rows.element.extend({ outcome: z.unknown() });

/** Estimated size of a turn in a message, without the turn's texts. */
const TURN_BYTES = 256;

/** An estimate of a row's bytes in a message: the row's texts and arrays, without the ticket. */
function estimatedBytes({ outcome, tokenAdvantages }: EpisodeRow): number {
  if (!("trajectory" in outcome)) return Buffer.byteLength(outcome.detail);
  const { trajectory, turns, finalObservation } = outcome;
  const { tokens, written, logProbs } = trajectory;
  const arrays = tokens.byteLength + written.byteLength + logProbs.byteLength + (tokenAdvantages?.byteLength ?? 0);
  const texts = turns.flatMap(({ observation, reply, actions }) => [observation, reply, ...actions]);
  return [finalObservation, ...texts].reduce(
    (sum, text) => sum + Buffer.byteLength(text),
    arrays + turns.length * TURN_BYTES,
  );
}

/**
 * A run's metrics as a folder of TensorBoard event files: those of the run at its top, those that every actor has of its own in a folder of
 * that actor's name. Knows no store.
 */
import { appendFileSync, mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { isMetricName, metric } from "../metrics/metrics.ts";
import type { StoredPoint } from "../metrics-sink/records.ts";
import { eventFileName, fileHead, scalarEvent } from "./tensorboard.ts";

/** Bytes that wait for `flush` at the most. */
const WAITING_BYTES_MAX = 1 << 20;

export class EventFiles {
  readonly #folder: string;
  readonly #name: string;
  /** What each file waits for, by its path. */
  readonly #waiting = new Map<string, Uint8Array[]>();
  #waitingBytes = 0;
  points = 0;

  /** @param begunMs  of the session, in milliseconds since the epoch; names the files */
  constructor(folder: string, begunMs: number) {
    this.#folder = folder;
    this.#name = eventFileName(begunMs);
  }

  get files(): number {
    return this.#waiting.size;
  }

  /** @throws {Error} of the file system, also for a file that exists */
  add({ name, actor, step, value, atMs }: Omit<StoredPoint, "id">): void {
    const own = isMetricName(name) && metric(name).perActor === true;
    const path = join(this.#folder, own ? actor : "", this.#name);
    let waiting = this.#waiting.get(path);
    if (waiting === undefined) {
      mkdirSync(dirname(path), { recursive: true });
      writeFileSync(path, fileHead(atMs), { flag: "wx" });
      waiting = [];
      this.#waiting.set(path, waiting);
    }
    const event = scalarEvent(atMs, step, [[name, value]]);
    waiting.push(event);
    this.points++;
    this.#waitingBytes += event.length;
    if (this.#waitingBytes > WAITING_BYTES_MAX) this.flush();
  }

  /** What was added is in the files. */
  flush(): void {
    for (const [path, waiting] of this.#waiting) {
      if (waiting.length > 0) appendFileSync(path, Buffer.concat(waiting.splice(0)));
    }
    this.#waitingBytes = 0;
  }
}

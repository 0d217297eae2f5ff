/** Writes metrics as TensorBoard event files: the run's at the top of the folder, an actor's own in a folder named after the actor. */
import { appendFileSync, mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { isMetricName, metric } from "../metrics/metrics.ts";
import type { StoredPoint } from "../metrics-sink/records.ts";
import { eventFileName, fileHead, scalarEvent } from "./tensorboard.ts";

/** Bytes buffered before a flush. */
const WAITING_BYTES_MAX = 1 << 20;

export class EventFiles {
  readonly #folder: string;
  readonly #name: string;
  /** Events to append, by path. */
  readonly #waiting = new Map<string, Uint8Array[]>();
  #waitingBytes = 0;
  pointCount = 0;

  /** @param startedMs  start of the session, in milliseconds since the epoch; names the files */
  constructor(folder: string, startedMs: number) {
    this.#folder = folder;
    this.#name = eventFileName(startedMs);
  }

  get fileCount(): number {
    return this.#waiting.size;
  }

  /** @throws {Error} if a file exists or cannot be written */
  add({ name, actor, step, value, atMs }: Omit<StoredPoint, "id">): void {
    const isPerActor = isMetricName(name) && metric(name).perActor === true;
    const path = join(this.#folder, isPerActor ? actor : "", this.#name);
    let waiting = this.#waiting.get(path);
    if (waiting === undefined) {
      mkdirSync(dirname(path), { recursive: true });
      writeFileSync(path, fileHead(atMs), { flag: "wx" });
      waiting = [];
      this.#waiting.set(path, waiting);
    }
    const event = scalarEvent(atMs, step, [[name, value]]);
    waiting.push(event);
    this.pointCount++;
    this.#waitingBytes += event.length;
    if (this.#waitingBytes > WAITING_BYTES_MAX) this.flush();
  }

  /** Writes everything that was added. */
  flush(): void {
    for (const [path, waiting] of this.#waiting) {
      if (waiting.length > 0) appendFileSync(path, Buffer.concat(waiting.splice(0)));
    }
    this.#waitingBytes = 0;
  }
}

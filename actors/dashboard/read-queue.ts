/**
 * Runs reads of the store one at a time. A read blocks its process, which also stores the run's episodes and sends heartbeats.
 *
 * - After a read, the process has as much time for its other work as the read took.
 * - At most `READS_WAITING_MAX` reads wait; the next is refused at once.
 */
import { type Clock, pause } from "../clock.ts";

export const READS_WAITING_MAX = 16;

export class ReadQueue {
  readonly #clock: Clock;
  #waiting = 0;
  /** Resolves when the next read may begin. */
  #free: Promise<unknown> = Promise.resolve();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** @returns the answer of `read`; null without calling it if too many reads wait */
  run<T>(read: () => T): Promise<T> | null {
    if (this.#waiting >= READS_WAITING_MAX) return null;
    this.#waiting++;
    let tookMs = 0;
    const rest = () => pause(this.#clock, tookMs);
    const answer = this.#free.then(() => {
      this.#waiting--;
      const start = this.#clock.now();
      try {
        return read();
      } finally {
        tookMs = this.#clock.now() - start;
      }
    });
    this.#free = answer.then(rest, rest);
    return answer;
  }
}

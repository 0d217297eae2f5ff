/**
 * A request to stop that reaches whoever waits for something else. Knows nothing of what is waited for.
 *
 * - Nothing of a finished wait is kept. (A `Promise.race` against a promise that lives as long as the run keeps every result
 *   it ever raced with: megabytes an update.)
 */

/** Thrown to whoever was asked to stop. The message is the reason. */
export class Stopped extends Error {
  override readonly name = "Stopped";
}

export class Interruption {
  /** Ends of the waits going on. */
  readonly #waits = new Set<(stopped: Stopped) => void>();
  #reason: string | null = null;

  /** For good. */
  stop(reason: string): void {
    this.#reason ??= reason;
    for (const end of this.#waits) end(new Stopped(reason));
  }

  /** @throws {Stopped} if `stop` was called. */
  check(): void {
    if (this.#reason !== null) throw new Stopped(this.#reason);
  }

  /** The result of `work`, or `Stopped` as soon as `stop` is called; the work itself goes on, and nobody hears how it ends. */
  async race<T>(work: Promise<T>): Promise<T> {
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    work.then(resolve, reject);
    this.#waits.add(reject);
    if (this.#reason !== null) reject(new Stopped(this.#reason));
    try {
      return await promise;
    } finally {
      this.#waits.delete(reject);
    }
  }
}

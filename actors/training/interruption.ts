/**
 * A request to stop that ends every wait at once.
 *
 * - Nothing of a finished wait is kept. `Promise.race` against one promise that lives as long as the run would keep every result:
 *   megabytes in each update.
 */

/** Thrown by a wait that was stopped. The message is the reason. */
export class Stopped extends Error {
  override readonly name = "Stopped";
}

export class Interruption {
  /** Reject functions of the waits that are open. */
  readonly #waits = new Set<(stopped: Stopped) => void>();
  #reason: string | null = null;

  stop(reason: string): void {
    this.#reason ??= reason;
    for (const end of this.#waits) end(new Stopped(reason));
  }

  /** @throws {Stopped} if `stop` was called */
  check(): void {
    if (this.#reason !== null) throw new Stopped(this.#reason);
  }

  /** Waits for `work`. The work itself is not cancelled. @throws {Stopped} as soon as `stop` is called */
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

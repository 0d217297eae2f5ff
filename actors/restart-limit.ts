/** How often one child may fail before restarting it is no cure. As in Erlang/OTP: so many restarts in such a window. */

interface Failure {
  readonly atMs: number;
  readonly cause: string;
}

export class RestartLimit {
  readonly #restartsMax: number;
  readonly #windowMs: number;
  #failures: Failure[] = [];

  constructor(restartsMax: number, windowMs: number) {
    this.#restartsMax = restartsMax;
    this.#windowMs = windowMs;
  }

  /**
   * Count a failure.
   *
   * @returns null if the child may be started again, or why not, naming the first cause.
   */
  failed(nowMs: number, cause: string): string | null {
    this.#failures = this.#failures.filter(({ atMs }) => nowMs - atMs <= this.#windowMs);
    this.#failures.push({ atMs: nowMs, cause });
    if (this.#failures.length <= this.#restartsMax) return null;
    const [first] = this.#failures;
    const seconds = ((nowMs - first!.atMs) / 1000).toFixed(1);
    return (
      `failed ${this.#failures.length} times in ${seconds} s, and at most ${this.#restartsMax} restarts in ` +
      `${this.#windowMs / 1000} s are allowed; first cause: ${first!.cause}`
    );
  }
}

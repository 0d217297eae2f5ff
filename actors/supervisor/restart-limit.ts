/**
 * How often one child may fail before restarting it is no cure. As in Erlang/OTP: so many restarts in such a window. And of one that
 * never gets as far as working, so many in a row, as a long start would outlast any window.
 */

interface Failure {
  readonly atMs: number;
  readonly cause: string;
}

export class RestartLimit {
  readonly #restartsMax: number;
  readonly #windowMs: number;
  #failures: Failure[] = [];
  /** Those since it last worked. */
  #starts: Failure[] = [];

  constructor(restartsMax: number, windowMs: number) {
    this.#restartsMax = restartsMax;
    this.#windowMs = windowMs;
  }

  /**
   * Count a failure.
   *
   * @param worked  it had started when it failed
   * @returns null if the child may be started again, or why not, naming the first cause.
   */
  failed(nowMs: number, cause: string, worked: boolean): string | null {
    const failure = { atMs: nowMs, cause };
    this.#failures = [...this.#failures.filter(({ atMs }) => nowMs - atMs <= this.#windowMs), failure];
    this.#starts = worked ? [] : [...this.#starts, failure];
    const window = `in ${this.#windowMs / 1000} s`;
    return this.#excess(this.#failures, "failed", window) ?? this.#excess(this.#starts, "failed to start", "in a row");
  }

  #excess(failures: readonly Failure[], what: string, when: string): string | null {
    if (failures.length <= this.#restartsMax) return null;
    const [first] = failures;
    const seconds = ((failures.at(-1)!.atMs - first!.atMs) / 1000).toFixed(1);
    return (
      `${what} ${failures.length} times in ${seconds} s, and at most ${this.#restartsMax} restarts ${when} are allowed; ` +
      `first cause: ${first!.cause}`
    );
  }
}

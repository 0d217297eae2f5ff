/**
 * Decides how often one child is restarted. As in Erlang/OTP: at most `restartsMax` times in a window. A child that fails before it
 * has started is restarted at most `restartsMax` times in a row, because a long start may outlast the window.
 */

interface ChildFailure {
  readonly atMs: number;
  readonly cause: string;
}

export class RestartLimit {
  readonly #restartsMax: number;
  readonly #windowMs: number;
  #failures: ChildFailure[] = [];
  /** Failures since the child last started. */
  #failedStarts: ChildFailure[] = [];

  constructor(restartsMax: number, windowMs: number) {
    this.#restartsMax = restartsMax;
    this.#windowMs = windowMs;
  }

  /**
   * Counts a failure.
   *
   * @param hadStarted  whether the child had started before it failed
   * @returns null if the child may be started again, else why not, with the first cause, and the last if it is of another kind
   */
  failed(nowMs: number, cause: string, hadStarted: boolean): string | null {
    const failure = { atMs: nowMs, cause };
    this.#failures = [...this.#failures.filter(({ atMs }) => nowMs - atMs <= this.#windowMs), failure];
    this.#failedStarts = hadStarted ? [] : [...this.#failedStarts, failure];
    const window = `in ${this.#windowMs / 1000} s`;
    return (
      this.#excess(this.#failures, "failed", window) ?? this.#excess(this.#failedStarts, "failed to start", "in a row")
    );
  }

  #excess(failures: readonly ChildFailure[], what: string, when: string): string | null {
    if (failures.length <= this.#restartsMax) return null;
    const [first, last] = [failures[0]!, failures.at(-1)!];
    const seconds = ((last.atMs - first.atMs) / 1000).toFixed(1);
    // A lost broker first makes an actor silent; the restarted actors then report that they cannot reach the broker.
    const other = kindOf(first.cause) === kindOf(last.cause) ? "" : `; last cause: ${last.cause}`;
    return (
      `${what} ${failures.length} times in ${seconds} s, and at most ${this.#restartsMax} restarts ${when} are allowed; ` +
      `first cause: ${first.cause}${other}`
    );
  }
}

/** A cause without its numbers. */
const kindOf = (cause: string) => cause.replaceAll(/\d+/g, "");

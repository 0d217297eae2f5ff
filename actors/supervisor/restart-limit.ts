/**
 * Decides how often one child is restarted. As in Erlang/OTP: at most `restartsMax` times in a window. A child that fails in the same
 * place each time, such as its start, is restarted at most `restartsMax` times in a row, because reaching that place may take longer than the window.
 */

import { STARTING } from "../protocol.ts";

interface ChildFailure {
  readonly atMs: number;
  readonly cause: string;
}

export class RestartLimit {
  readonly #restartsMax: number;
  readonly #windowMs: number;
  #failures: ChildFailure[] = [];
  /** The last failures, all in one place. */
  #failuresThere: ChildFailure[] = [];
  #place: string | null = null;

  constructor(restartsMax: number, windowMs: number) {
    this.#restartsMax = restartsMax;
    this.#windowMs = windowMs;
  }

  /**
   * Counts a failure.
   *
   * @param place  what the child did when it failed, such as "update 12 of 100"; null: its work has no end, so each failure is at a new place
   * @returns null if the child may be started again, else why not, with the first cause, and the last if it is of another kind
   */
  failed(nowMs: number, cause: string, place: string | null): string | null {
    const failure = { atMs: nowMs, cause };
    this.#failures = [...this.#failures.filter(({ atMs }) => nowMs - atMs <= this.#windowMs), failure];
    const again = place !== null && place === this.#place;
    this.#failuresThere = again ? [...this.#failuresThere, failure] : [failure];
    this.#place = place;
    const window = `in ${this.#windowMs / 1000} s`;
    const there = place === STARTING ? "failed to start" : `failed at "${place}"`;
    return this.#excess(this.#failures, "failed", window) ?? this.#excess(this.#failuresThere, there, "in a row");
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

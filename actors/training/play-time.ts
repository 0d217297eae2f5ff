/** How long batches take to be played, and how fast tokens come. Batches played in turn do not count each other's time. */

import { writtenTokens } from "../../model/trajectory.ts";
import type { Clock } from "../clock.ts";
import { type FinishedTicket, playedOf } from "../play/finished-ticket.ts";

export interface Rollout {
  readonly finished: readonly FinishedTicket[];
  readonly ms: number;
}

export class PlayTime {
  readonly #clock: Clock;
  /** Of all batches so far. */
  #ms = 0;
  #tokens = 0;
  #playedAtMs = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get tokensPerSecond(): number {
    return this.#ms > 0 ? this.#tokens / (this.#ms / 1000) : 0;
  }

  /** A batch with the time it took. */
  async measure(playing: Promise<readonly FinishedTicket[]>): Promise<Rollout> {
    const askedAtMs = this.#clock.now();
    const finished = await playing;
    const now = this.#clock.now();
    const ms = now - Math.max(askedAtMs, this.#playedAtMs);
    this.#playedAtMs = now;
    this.#ms += ms;
    for (const { outcome } of playedOf(finished)) this.#tokens += writtenTokens(outcome.trajectory);
    return { finished, ms };
  }
}

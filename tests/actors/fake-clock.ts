/** A clock that moves when a test moves it. */
import type { Clock } from "../../actors/clock.ts";

export class FakeClock implements Clock {
  #now = 0;
  #timers: { readonly at: number; readonly run: () => void }[] = [];

  now(): number {
    return this.#now;
  }

  after(delayMs: number, run: () => void): () => void {
    const timer = { at: this.#now + delayMs, run };
    this.#timers.push(timer);
    return () => {
      this.#timers = this.#timers.filter((other) => other !== timer);
    };
  }

  /** Delays of the timers that wait, shortest first. */
  get waitingMs(): number[] {
    return this.#timers.map(({ at }) => at - this.#now).sort((a, b) => a - b);
  }

  /** Moves the clock, and runs the timers that become due, in order. */
  advance(ms: number): void {
    const end = this.#now + ms;
    for (;;) {
      const next = this.#timers.filter(({ at }) => at <= end).sort((a, b) => a.at - b.at)[0];
      if (next === undefined) break;
      this.#timers = this.#timers.filter((other) => other !== next);
      this.#now = Math.max(this.#now, next.at);
      next.run();
    }
    this.#now = end;
  }

  /** The process slept: time passes, and timers come late. */
  jump(ms: number): void {
    this.#now += ms;
    this.advance(0);
  }
}

/** Time as an argument. Actors never read a clock of their own, so a simulated one can drive them. */
export interface Clock {
  /** Milliseconds, monotonic: immune to changes of the wall clock. */
  now(): number;
  /** Run once after `delayMs`. Returns a function that cancels it. */
  after(delayMs: number, run: () => void): () => void;
}

export const realClock: Clock = {
  now: () => performance.now(),
  after(delayMs, run) {
    const timer = setTimeout(run, delayMs);
    return () => clearTimeout(timer);
  },
};

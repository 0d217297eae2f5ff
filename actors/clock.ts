/** Time as an argument: actors read no clock of their own, so that tests and the simulator can drive them. */
export interface Clock {
  /** Milliseconds. Monotonic: changes of the wall clock do not matter. */
  now(): number;
  /** Calls `run` once after `delayMs`. @returns a function that cancels the call */
  after(delayMs: number, run: () => void): () => void;
}

export const realClock: Clock = {
  now: () => performance.now(),
  after(delayMs, run) {
    const timer = setTimeout(run, delayMs);
    return () => clearTimeout(timer);
  },
};

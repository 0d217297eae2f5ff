/** Time as an argument: actors read no clock of their own, so that tests and the simulator can drive them. */
export interface Clock {
  /** Milliseconds. Monotonic: changes of the wall clock do not matter. */
  now(): number;
  /** Calls `run` once after `delayMs`. @returns a function that cancels the call */
  after(delayMs: number, run: () => void): () => void;
}

/** Waits for `work`, but not longer than `msMax`. @returns whether `work` settled in time */
export function settlesIn(clock: Clock, msMax: number, work: Promise<unknown>): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const cancel = clock.after(msMax, () => resolve(false));
  const settled = () => resolve(true);
  work.then(settled, settled);
  return promise.finally(cancel);
}

export const pause = (clock: Clock, delayMs: number): Promise<void> =>
  new Promise((resolve) => void clock.after(delayMs, resolve));

/** 24.8 days. `setTimeout` runs a longer delay at once. */
const TIMER_MS_MAX = 2 ** 31 - 1;

export const realClock: Clock = {
  now: () => performance.now(),
  after(delayMs, run) {
    const timer = setTimeout(run, Math.min(delayMs, TIMER_MS_MAX));
    return () => clearTimeout(timer);
  },
};

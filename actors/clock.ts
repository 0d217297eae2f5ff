/** Actors get their clock as an argument, so that tests and the simulator can control the time. */
export interface Clock {
  /** Milliseconds. The time never goes back: changes of the wall clock do not matter. */
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

/** Lets other work of the event loop have its turn. */
export const nextTurn = (): Promise<void> => new Promise((resume) => setImmediate(resume));

/** 24.8 days. With a longer delay `setTimeout` does not wait at all, so `realClock` ends a longer delay after this time. */
const TIMER_MS_MAX = 2 ** 31 - 1;

export const realClock: Clock = {
  now: () => performance.now(),
  after(delayMs, run) {
    const timer = setTimeout(run, Math.min(delayMs, TIMER_MS_MAX));
    return () => clearTimeout(timer);
  },
};

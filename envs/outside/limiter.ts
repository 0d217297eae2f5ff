/** Limits how many asynchronous tasks run at once; further tasks wait in the order of their calls. */

export type Limiter = <T>(task: () => Promise<T>) => Promise<T>;

export function limiter(runningMax: number): Limiter {
  let running = 0;
  const waiting: (() => void)[] = [];
  return async (task) => {
    if (running < runningMax) running++;
    else await new Promise<void>((start) => waiting.push(start));
    try {
      return await task();
    } finally {
      // The next task takes this place directly, so that no later call overtakes it.
      const next = waiting.shift();
      if (next === undefined) running--;
      else next();
    }
  };
}

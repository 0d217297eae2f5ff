/** A request to stop ends every wait, and a finished wait keeps nothing in memory. */
import { describe, expect, test } from "bun:test";
import { Interruption, Stopped } from "../../../actors/training/context.ts";

describe("an interruption", () => {
  test("lets results and errors through until it comes", async () => {
    const interruption = new Interruption();
    interruption.check();
    expect(await interruption.race(Promise.resolve(7))).toBe(7);
    await expect(interruption.race(Promise.reject(new RangeError("no")))).rejects.toThrow(new RangeError("no"));
  });

  test("ends every wait at once, and every later one", async () => {
    const interruption = new Interruption();
    const never = new Promise<never>(() => {});
    const waits = [1, 2].map(() => interruption.race(never).catch((error) => error));
    interruption.stop("SIGTERM");
    interruption.stop("again");
    expect(await Promise.all(waits)).toEqual([new Stopped("SIGTERM"), new Stopped("SIGTERM")]);
    await expect(interruption.race(Promise.resolve(1))).rejects.toThrow(new Stopped("SIGTERM"));
    expect(() => interruption.check()).toThrow(new Stopped("SIGTERM"));
  });

  test("hears nothing of work that fails later", async () => {
    const interruption = new Interruption();
    const { promise, reject } = Promise.withResolvers<void>();
    const wait = interruption.race(promise).catch((error) => error);
    interruption.stop("SIGTERM");
    expect(await wait).toBeInstanceOf(Stopped);
    // An unhandled rejection would fail this test.
    reject(new Error("the thread was stopped"));
    await new Promise((next) => setImmediate(next));
  });

  test("keeps no result of a wait that is over", async () => {
    const interruption = new Interruption();
    let collected = 0;
    const registry = new FinalizationRegistry(() => {
      collected++;
    });
    const wait = async () => {
      const result = { played: new Float64Array(1000) };
      registry.register(result, "");
      await interruption.race(Promise.resolve(result));
    };
    for (let i = 0; i < 100; i++) await wait();
    for (let i = 0; i < 20 && collected < 90; i++) {
      Bun.gc(true);
      await new Promise((next) => setImmediate(next));
    }
    // A conservative collector may see the last few on the stack.
    expect(collected).toBeGreaterThanOrEqual(90);
    interruption.check();
  });
});

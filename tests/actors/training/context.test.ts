/** A request to stop ends every wait, and a finished wait keeps nothing in memory. The time of rollouts that overlap counts once. */
import { describe, expect, test } from "bun:test";
import { Meter } from "../../../actors/metrics/meter.ts";
import type { FinishedTicket } from "../../../actors/play/finished-ticket.ts";
import { Interruption, PlayTime, Stopped } from "../../../actors/training/context.ts";
import { aTicket } from "../../fixtures.ts";
import { FakeClock } from "../fake-clock.ts";
import { outcomeOf } from "./stage.ts";

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

describe("the time of play", () => {
  /** Plays rollouts of 40 tokens each in these spans of seconds. @returns the tokens per second, and the seconds of each rollout */
  async function played(...spans: readonly (readonly [from: number, to: number])[]) {
    const clock = new FakeClock();
    const time = new PlayTime({ clock, meter: new Meter(clock) });
    const ticket = aTicket();
    const finished = Array.from({ length: 20 }, () => ({ ticket, sampler: "s", outcome: outcomeOf(ticket) }));
    const seconds: number[] = [];
    for (const [i, [from, to]] of spans.entries()) {
      const { promise, resolve } = Promise.withResolvers<readonly FinishedTicket[]>();
      clock.after(1000 * from, () => void time.measure(promise).then(({ ms }) => (seconds[i] = ms / 1000)));
      clock.after(1000 * to, () => resolve(finished));
    }
    for (let at = 0; at < 40; at++) {
      clock.advance(1000);
      await new Promise((next) => setImmediate(next));
    }
    return { rate: time.tokensPerSecond, seconds };
  }

  test("counts the common time of two rollouts once", async () => {
    expect(await played([0, 10], [12, 22])).toEqual({ rate: 80 / 20, seconds: [10, 10] });
    expect(await played([0, 10], [5, 20])).toEqual({ rate: 80 / 20, seconds: [10, 10] });
  });

  test("counts all the time of a rollout that outlasts a later one", async () => {
    const { rate } = await played([0, 20], [5, 10], [30, 35]);
    expect(rate).toBe(120 / 25);
  });
});

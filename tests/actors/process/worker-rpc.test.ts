/** Remote methods of a thread: each call gets one answer, in any order, and rejects if the thread is gone. */
import { afterEach, describe, expect, test } from "bun:test";
import { describeError, stackOf } from "../../../actors/errors.ts";
import { inOrder, inThisThread, startThread, type Thread } from "../../../actors/process/worker-rpc.ts";
import { FakeClock } from "../fake-clock.ts";
import type { AddingMethods } from "./adding-thread.ts";

const started: Thread<AddingMethods>[] = [];
afterEach(() => {
  for (const thread of started.splice(0)) thread.stop();
});

function start() {
  const failed = Promise.withResolvers<Error>();
  const thread = startThread<AddingMethods>(new URL("./adding-thread.ts", import.meta.url), failed.resolve);
  started.push(thread);
  return { ...thread, failed: failed.promise };
}

describe("a thread", () => {
  test("answers every call, whichever is done first", async () => {
    const { methods } = start();
    const order: string[] = [];
    const calls = [
      methods.later(30, "slow").then((text) => order.push(text)),
      methods.add(2, 3).then((sum) => order.push(`${sum}`)),
    ];
    await Promise.all(calls);
    expect(order).toEqual(["5", "slow"]);
  });

  test("says how long it has gone without an answer", async () => {
    const clock = new FakeClock();
    const thread = startThread<AddingMethods>(new URL("./adding-thread.ts", import.meta.url), () => {}, clock);
    started.push(thread);
    clock.advance(500);
    expect(thread.workingMs()).toBe(0);
    void thread.methods.never().catch(() => {});
    clock.advance(700);
    expect(thread.workingMs()).toBe(700);
    await thread.methods.add(1, 2);
    clock.advance(20);
    expect(thread.workingMs()).toBe(20);
  });

  test("shares shared memory, and copies the rest", async () => {
    const { methods } = start();
    const shared = new Int32Array(new SharedArrayBuffer(8));
    await methods.fill(shared, 7);
    expect([...shared]).toEqual([7, 7]);
    const own = new Int32Array(2);
    await methods.fill(own, 7);
    expect([...own]).toEqual([0, 0]);
  });

  test("whose method throws rejects that call, with its name and words, and lives on", async () => {
    const { methods } = start();
    const error = await methods.fail("too far").catch((caught) => caught);
    expect([error.name, error.message]).toEqual(["RangeError", "too far"]);
    expect(error.stack).toContain("adding-thread.ts");
    expect(await methods.add(1, 1)).toBe(2);
    const unknown = (methods as unknown as { nothing(): Promise<void> }).nothing();
    expect((await unknown.catch((caught) => caught)).message).toBe("this thread has no method nothing");
  });

  test("that dies rejects every open call, and says so", async () => {
    const { methods, failed } = start();
    const open = methods.never().catch((error) => error);
    await methods.fall();
    const error = await failed;
    expect(describeError(error)).toBe("Error: a compute thread failed: RangeError: it fell from 3 m");
    expect(stackOf(error)).toMatch(/^at .*adding-thread\.ts:\d+/);
    expect((await open).message).toContain("it fell");
    expect((await methods.add(1, 1).catch((later) => later)).message).toContain("it fell");
  });

  test.each([0, 3])("that exits with code %p rejects every open and later call, and says so once", async (code) => {
    const faults: string[] = [];
    const thread = startThread<AddingMethods>(new URL("./adding-thread.ts", import.meta.url), ({ message }) =>
      faults.push(message),
    );
    started.push(thread);
    const reason = `a compute thread ended with code ${code}`;
    expect(await thread.methods.leave(code).catch(({ message }: Error) => message)).toBe(reason);
    expect(await thread.methods.add(1, 1).catch(({ message }: Error) => message)).toBe(reason);
    expect(faults).toEqual([reason]);
  });

  test("that is stopped rejects every open and later call", async () => {
    const { methods, stop } = start();
    await methods.add(0, 0);
    const open = methods.never().catch((error) => error);
    stop();
    expect((await open).message).toBe("the compute thread was stopped");
    expect(await methods.add(1, 1).catch(String)).toBe("Error: the compute thread was stopped");
  });
});

describe("the same methods in this thread", () => {
  test("are called later, and reject what they throw", async () => {
    const calls: string[] = [];
    const { methods } = inThisThread({
      note: (text: string) => void calls.push(text),
      fail: (): never => {
        throw new RangeError("no");
      },
    });
    const noted = methods.note("a");
    expect(calls).toEqual([]);
    await noted;
    expect(calls).toEqual(["a"]);
    await expect(methods.fail()).rejects.toThrow(new RangeError("no"));
  });
});

test("calls in order begin after the calls before them, also after one that failed", async () => {
  const log: string[] = [];
  const work = inOrder(async (name: string, waits: number) => {
    log.push(`${name} begins`);
    for (let i = 0; i < waits; i++) await null;
    log.push(`${name} ends`);
    if (name === "b") throw new Error("b failed");
    return name;
  });
  const settled = await Promise.allSettled([work("a", 9), work("b", 5), work("c", 0)]);
  expect(log).toEqual(["a begins", "a ends", "b begins", "b ends", "c begins", "c ends"]);
  expect(settled.map((one) => (one.status === "fulfilled" ? one.value : one.reason.message))).toEqual([
    "a",
    "b failed",
    "c",
  ]);
});

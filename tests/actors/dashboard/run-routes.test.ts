/** The queue of reads runs one read at a time, with pauses, and refuses a read if too many wait. */
import { expect, test } from "bun:test";
import { ReadQueue } from "../../../actors/dashboard/run-routes.tsx";
import { FakeClock } from "../fake-clock.ts";

const settle = async () => {
  for (let i = 0; i < 20; i++) await Promise.resolve();
};

test("sixteen reads wait, and the next is refused; a failed one holds up no other", async () => {
  const clock = new FakeClock();
  const queue = new ReadQueue(clock);
  const done: number[] = [];
  const reads = Array.from({ length: 17 }, (_, i) =>
    queue.run(() => {
      if (i === 0) throw new Error("boom");
      clock.jump(10 * i);
      return done.push(i);
    }),
  );
  expect(reads.map((read) => read === null)).toEqual([...Array(16).fill(false), true]);
  await expect(reads[0]).rejects.toThrow("boom");
  clock.advance(0);
  await settle();
  expect(done).toEqual([1]);
  // One has left, so one may come.
  expect([queue.run(() => 0), queue.run(() => 0), queue.run(() => 0)].map((read) => read === null)).toEqual([
    false,
    false,
    true,
  ]);
  // The process has as much time as the read took: 10 ms.
  expect(clock.waitingMs).toEqual([10]);
  clock.advance(10);
  await settle();
  expect([done, clock.waitingMs]).toEqual([[1, 2], [20]]);
});

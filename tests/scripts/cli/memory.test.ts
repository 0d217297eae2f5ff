import { expect, test } from "bun:test";
import { Memory } from "../../../scripts/cli/memory.ts";

const MIB = 2 ** 20;
/** One sample every ten seconds; the amounts in MiB. */
const reportOf = (...mib: readonly number[]) => {
  const memory = new Memory();
  for (const [i, amount] of mib.entries()) memory.sample("learner", 10_000 * i, amount * MIB);
  return memory.report();
};
const steps = (count: number, start: number, each: number) => Array.from({ length: count }, (_, i) => start + each * i);

test("the slope is that of the second half: what a process needs to start is no leak", () => {
  const [use] = reportOf(...steps(10, 0, 100), ...steps(10, 500, 1));
  // 1 MiB in ten seconds.
  expect(use!.slopeBytesPerMinute).toBeCloseTo(6 * MIB, 3);
  expect([use!.actor, use!.peakBytes]).toEqual(["learner", 900 * MIB]);
});

test("fewer than ten samples in the second half give no slope", () => {
  const slopes = [18, 19].map((count) => reportOf(...steps(count, 100, 1))[0]!.slopeBytesPerMinute);
  expect(slopes).toEqual([null, expect.closeTo(6 * MIB, 3)]);
});

test("a process that is not measured has no row, and its zeros do not count", () => {
  expect(reportOf(0, 0)).toEqual([]);
  const [use] = reportOf(...steps(10, 0, 0), ...steps(19, 100, 1));
  expect(use!.slopeBytesPerMinute).toBeCloseTo(6 * MIB, 3);
});

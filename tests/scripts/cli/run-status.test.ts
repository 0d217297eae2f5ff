import { expect, test } from "bun:test";
import { progressBar, RunStatus } from "../../../scripts/cli/run-status.ts";

const bar = (full: number) => "█".repeat(full) + "░".repeat(24 - full);

test("a bar is as full as its share, and says how long the rest takes", () => {
  expect(progressBar(0.25, "update 5/20", 3.4)).toBe(`${bar(6)} 25 % · update 5/20 · about 3 min left`);
  const left = (minutes: number) => progressBar(0, "", minutes).split(" · ").at(-1);
  expect([170, 300, 6712].map(left)).toEqual(["about 170 min left", "about 5 h left", "about 5 days left"]);
  expect(progressBar(0.999, "update 999/1000", null)).toBe(`${bar(24)} 99 % · update 999/1000`);
});

test("the time left is at the pace so far, of updates or of minutes, whichever end first", () => {
  const progress = (minutes: number | null, step: number, pace: number) => {
    const status = new RunStatus({ updates: 40, minutes });
    status.add({ step, "total/updates": step, "speed/updates_per_minute": pace });
    return status.lines(100);
  };
  // 10 of 40 updates at 2 a minute: 5 minutes, and 15 more.
  expect(progress(null, 10, 2)).toEqual([`${bar(6)} 25 % · update 10/40 · about 15 min left`]);
  // 5 of 10 minutes.
  expect(progress(10, 10, 2)).toEqual([`${bar(12)} 50 % · update 10/40 · about 5 min left`]);
  expect(progress(50, 10, 2)).toEqual([`${bar(6)} 25 % · update 10/40 · about 15 min left`]);
  expect(progress(4, 10, 2)).toEqual([`${bar(24)} 100 % · update 10/40 · less than a minute left`]);
  expect(progress(null, 10, 0)).toEqual([`${bar(6)} 25 % · update 10/40`]);
});

test("before the first update the phase stands there; metrics of no update count none", () => {
  const status = new RunStatus({ updates: 40, minutes: null });
  status.phase = "warm start 3/10";
  status.add({ step: 3, "train/entropy": 0.5 });
  status.page = "http://127.0.0.1:7001/";
  expect(status.lines(100)).toEqual(["warm start 3/10", "entropy 0.500", "http://127.0.0.1:7001/"]);
  status.alarm = "update 2: collapsed";
  expect(status.lines(12)).toEqual(["warm start 3", "entropy 0.50", "ALARM update"]);
});

test("success is beside its bounds, and only what was measured is shown", () => {
  const status = new RunStatus({ updates: 40, minutes: null });
  status.add({ step: 0, "baseline/random": 0.125 });
  expect(status.lines(100)).toEqual([]);
  status.add({ step: 0, "validate/success": 0.5, "train/success": 0.25, "baseline/best": 1 });
  status.add({ step: 0, "train/reward_mean": -0.5, "speed/tokens_per_second": 1234.5 });
  expect(status.lines(100)).toEqual([
    "success 50.0 % validated, 25.0 % trained (random 12.5 %, best 100.0 %)",
    "reward -0.50 · 1,235 tokens/s",
  ]);
});

import { expect, spyOn, test } from "bun:test";
import { realClock } from "../../actors/clock.ts";

test("a delay that no timer can hold does not end at once", () => {
  using timer = spyOn(globalThis, "setTimeout");
  realClock.after(1e10, () => {})();
  expect(timer.mock.calls.map(([, delayMs]) => delayMs)).toEqual([2 ** 31 - 1]);
});

import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import {
  STOP_START,
  STOPS,
  type Stop,
  type StopPoint,
  type StopState,
  watchForStop,
  watchValidation,
} from "../../../model/health/early-stop.ts";

const watch = (state: StopState, one: StopPoint | number) =>
  typeof one === "number" ? watchValidation(state, one) : watchForStop(state, one);

/** Feed points, and validations as plain numbers, until a stop is due: [position, kind], or null. */
function stopOf(points: (StopPoint | number)[]): [number, Stop["kind"]] | null {
  let state = STOP_START;
  for (const [i, point] of points.entries()) {
    const watched = watch(state, point);
    if (watched.stop) return [i + 1, watched.stop.kind];
    state = watched.state;
  }
  return null;
}

const point = (rewardStd: number, more: Partial<StopPoint> = {}): StopPoint => ({
  success: 0.2,
  rewardStd,
  groupsKept: 4,
  ...more,
});
const repeat = <T extends StopPoint | number>(count: number, one: T) => Array<T>(count).fill(one);

describe("watchForStop", () => {
  test("stops after ten updates in a row below a tenth of the first ten's std", () => {
    expect(stopOf([...repeat(10, point(2)), ...repeat(10, point(0.19))])).toEqual([20, "reward_variance_collapse"]);
    expect(stopOf([...repeat(10, point(2)), ...repeat(50, point(0.21))])).toBeNull();
  });

  test("a value at a limit is not below the limit, and success at solvedAt is solved", () => {
    expect(stopOf([...repeat(10, point(2)), ...repeat(50, point(0.2))])).toBeNull();
    expect(stopOf(repeat(50, 0.01))).toBeNull();
    expect(stopOf([...repeat(10, point(2)), ...repeat(50, point(0, { success: 0.9, groupsKept: 0 }))])).toBeNull();
  });

  test("updates without a std are not part of the baseline", () => {
    const { rewardStd: _, ...unknown } = point(0);
    const run = [...repeat(5, unknown), ...repeat(10, point(2)), ...repeat(10, point(0.19))];
    expect(stopOf(run)).toEqual([25, "reward_variance_collapse"]);
  });

  test("returns only the stops that are wanted, and begins to count again after a stop", () => {
    const empty = point(1, { groupsKept: 0 });
    const stops = (wanted: readonly Stop["kind"][]) => {
      let state = STOP_START;
      return repeat(12, empty).map((one) => {
        const watched = watchForStop(state, one, undefined, wanted);
        state = watched.state;
        return watched.stop !== null;
      });
    };
    expect([...stops(STOPS).keys()].filter((i) => stops(STOPS)[i])).toEqual([4, 9]);
    expect(stops(["solved"])).not.toContain(true);
  });

  test("counts on from a checkpoint of version 0.1, which has no count of solved validations", () => {
    const { solved: _, ...old } = STOP_START;
    const first = watchValidation(old, 1);
    expect(watchValidation(first.state, 1).stop?.kind).toBe("solved");
  });

  test("one update above the limit restarts the count", () => {
    const run = [...repeat(10, point(2)), ...repeat(9, point(0)), point(1), ...repeat(9, point(0))];
    expect(stopOf(run)).toBeNull();
  });

  test("does not stop a solved task", () => {
    const update = point(0, { success: 0.95, groupsKept: 0 });
    const solved = Array.from({ length: 100 }, () => [update, 0.95]).flat();
    expect(stopOf([...repeat(10, point(2)), ...solved])).toBeNull();
  });

  test("stops after five empty selections, and after five failed validations, in a row", () => {
    expect(stopOf(repeat(9, point(1, { groupsKept: 0 })))).toEqual([5, "empty_filtered_steps"]);
    // Updates neither count nor interrupt.
    expect(stopOf([...repeat(4, 0.005), ...repeat(7, point(1)), 0.005])).toEqual([12, "low_validation_success"]);
    expect(stopOf([...repeat(4, 0.005), 0.02, ...repeat(4, 0.005)])).toBeNull();
  });

  test("stops a solved task at the second validation in a row", () => {
    expect(stopOf([1, ...repeat(9, point(1)), 1])).toEqual([11, "solved"]);
    expect(stopOf([1, point(1), 0.99, point(1), 1, ...repeat(50, point(1))])).toBeNull();
  });

  test("gives the measurement and its limit", () => {
    let state = STOP_START;
    const reasons = [...repeat(10, point(2)), ...repeat(10, point(0.1))].flatMap((one) => {
      const watched = watchForStop(state, one);
      state = watched.state;
      return watched.stop ? [watched.stop.reason] : [];
    });
    expect(reasons).toEqual(["in-group reward std was below 10 % of its start (2.00) for 10 updates"]);
  });

  test("gives the same answer from a saved state", () => {
    const update = fc.record({
      success: fc.double({ min: 0, max: 1, noNaN: true }),
      rewardStd: fc.double({ min: 0, max: 3, noNaN: true }),
      groupsKept: fc.integer({ min: 0, max: 2 }),
    });
    const any = fc.oneof(update, fc.constantFrom(0, 0.5));
    fc.assert(
      fc.property(fc.array(any, { maxLength: 60 }), (points) => {
        let live = STOP_START;
        let saved = STOP_START;
        for (const one of points) {
          const a = watch(live, one);
          const b = watch(JSON.parse(JSON.stringify(saved)), one);
          expect(b).toEqual(a);
          live = a.state;
          saved = b.state;
        }
      }),
    );
  });
});

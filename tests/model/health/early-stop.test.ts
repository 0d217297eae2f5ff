import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { STOP_START, STOPS, type Stop, type StopPoint, watchForStop } from "../../../model/health/early-stop.ts";

/** Feed points until a stop is due: [update, kind], or null. */
function stopOf(points: StopPoint[]): [number, Stop["kind"]] | null {
  let state = STOP_START;
  for (const [i, point] of points.entries()) {
    const watched = watchForStop(state, point);
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
const repeat = (count: number, one: StopPoint) => Array<StopPoint>(count).fill(one);

describe("watchForStop", () => {
  test("stops after ten updates in a row below a tenth of the first ten's std", () => {
    expect(stopOf([...repeat(10, point(2)), ...repeat(10, point(0.19))])).toEqual([20, "reward_variance_collapse"]);
    expect(stopOf([...repeat(10, point(2)), ...repeat(50, point(0.21))])).toBeNull();
  });

  test("the limits themselves do not count as below them, nor as unsolved", () => {
    expect(stopOf([...repeat(10, point(2)), ...repeat(50, point(0.2))])).toBeNull();
    expect(stopOf(repeat(50, point(1, { validation: 0.01 })))).toBeNull();
    expect(stopOf([...repeat(10, point(2)), ...repeat(50, point(0, { success: 0.9, groupsKept: 0 }))])).toBeNull();
  });

  test("updates without a std are not part of the baseline", () => {
    const { rewardStd: _, ...unknown } = point(0);
    const run = [...repeat(5, unknown), ...repeat(10, point(2)), ...repeat(10, point(0.19))];
    expect(stopOf(run)).toEqual([25, "reward_variance_collapse"]);
  });

  test("looks only for the stops that are wanted, and after one begins to count again", () => {
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
    const first = watchForStop(old, point(1, { validation: 1 }));
    expect(watchForStop(first.state, point(1, { validation: 1 })).stop?.kind).toBe("solved");
  });

  test("one update above the limit restarts the count", () => {
    const run = [...repeat(10, point(2)), ...repeat(9, point(0)), point(1), ...repeat(9, point(0))];
    expect(stopOf(run)).toBeNull();
  });

  test("does not stop a solved task", () => {
    const solved = point(0, { success: 0.95, groupsKept: 0, validation: 0.95 });
    expect(stopOf([...repeat(10, point(2)), ...repeat(100, solved)])).toBeNull();
  });

  test("stops after five empty selections, and after five failed validations, in a row", () => {
    expect(stopOf(repeat(9, point(1, { groupsKept: 0 })))).toEqual([5, "empty_filtered_steps"]);
    const validated = point(1, { validation: 0.005 });
    // Updates without a validation neither count nor interrupt.
    expect(stopOf([...repeat(4, validated), ...repeat(7, point(1)), validated])).toEqual([
      12,
      "low_validation_success",
    ]);
    expect(stopOf([...repeat(4, validated), point(1, { validation: 0.02 }), ...repeat(4, validated)])).toBeNull();
  });

  test("stops a solved task after two validations in a row, before training can spoil it", () => {
    const solved = point(0, { success: 0.95, validation: 1 });
    expect(stopOf([solved, ...repeat(9, point(1)), solved])).toEqual([11, "solved"]);
    expect(stopOf([solved, point(1, { validation: 0.99 }), solved, ...repeat(50, point(1))])).toBeNull();
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
    const any = fc.record({
      success: fc.double({ min: 0, max: 1, noNaN: true }),
      rewardStd: fc.double({ min: 0, max: 3, noNaN: true }),
      groupsKept: fc.integer({ min: 0, max: 2 }),
      validation: fc.constantFrom(0, 0.5),
    });
    fc.assert(
      fc.property(fc.array(any, { maxLength: 60 }), (points) => {
        let live = STOP_START;
        let saved = STOP_START;
        for (const one of points) {
          const a = watchForStop(live, one);
          const b = watchForStop(JSON.parse(JSON.stringify(saved)), one);
          expect(b).toEqual(a);
          live = a.state;
          saved = b.state;
        }
      }),
    );
  });
});

import { describe, expect, test } from "bun:test";
import { costsOf } from "../../../actors/record/costs.ts";

type Curves = Readonly<Record<string, readonly (readonly [actor: string, steps: number[], values: number[]])[]>>;
/** @param newest  the update that was recorded last */
const costs = (curves: Curves, newest = 3) =>
  costsOf((name) => (curves[name] ?? []).map(([actor, steps, values]) => ({ name, actor, steps, values })), newest);

describe("costsOf", () => {
  // A sampler that was replaced in update 2, after 9 s: its new process counts from 0.
  const run: Curves = {
    "total/tokens": [["learner", [1, 2, 3], [500, 1000, 3000]]],
    "total/actions": [["learner", [1, 2, 3], [50, 100, 300]]],
    "process/cpu_seconds": [
      ["learner", [0, 1, 2, 3], [10, 12, 14, 16]],
      ["sampler-0", [0, 1, 2, 3], [5, 9, 1, 4]],
    ],
    "baseline/before": [["learner", [0], [0.2]]],
    "validate/success": [["learner", [0, 3], [0.2, 0.6]]],
  };

  test("adds up actors and their processes, worked by hand", () => {
    expect(costs(run)).toMatchObject({
      total: { tokens: 3000, actions: 300, cpuSeconds: 16 + 9 + 4 },
      reinforcement: { tokens: 3000, actions: 300, cpuSeconds: 6 + 4 + 4 },
    });
  });

  test("divides what reinforcement cost by the points that it gained", () => {
    const { points, perPoint } = costs(run);
    expect(points).toBeCloseTo(40, 9);
    expect(perPoint.tokens).toBeCloseTo(75, 9);
    expect(perPoint.cpuSeconds).toBeCloseTo(0.35, 9);
  });

  test("adds up what the time of reinforcement was for, without the validation before it", () => {
    const { seconds } = costs({
      ...run,
      "speed/rollout_s": [["learner", [1, 2, 3], [0.5, 0.25, 0.75]]],
      "speed/update_s": [["learner", [1, 2, 3], [0.25, 0.25, 0.5]]],
      "speed/validate_s": [["learner", [0, 3], [8, 2]]],
    });
    expect(seconds).toEqual({ rollout: 1.5, update: 1, validation: 2, checkpoints: null });
  });

  test("leaves out updates before a roll-back that were not repeated yet", () => {
    // From update 4 back to 1, then update 2 again: its tokens count on, and updates 3 and 4 are of the time before.
    const rolledBack: Curves = {
      "total/tokens": [["learner", [1, 2, 3, 4], [500, 2500, 1500, 2000]]],
      "baseline/before": [["learner", [0], [0.2]]],
      "validate/success": [["learner", [0, 2, 4], [0.2, 0.6, 0.1]]],
      "speed/update_s": [["learner", [1, 2, 3, 4], [1, 1, 1, 1]]],
    };
    const { total, points, seconds } = costs(rolledBack, 2);
    expect(total.tokens).toBe(2500);
    expect(points).toBeCloseTo(40, 9);
    expect(seconds.update).toBe(2);
  });

  test("what was not measured is null, and so is a share of a gain that there was not", () => {
    expect(costs(run).total.joules).toBeNull();
    const lost = costs({ ...run, "validate/success": [["learner", [0, 3], [0.2, 0.1]]] });
    const none = costs({ ...run, "validate/success": [["learner", [0, 3], [0.2, 0.2]]] });
    for (const { perPoint } of [lost, none])
      expect(perPoint).toEqual({ tokens: null, actions: null, cpuSeconds: null, joules: null });
    expect(costsOf(() => [], Number.POSITIVE_INFINITY)).toMatchObject({ points: null, total: { tokens: null } });
  });
});

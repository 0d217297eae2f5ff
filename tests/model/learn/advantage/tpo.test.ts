import { describe, expect, test } from "bun:test";
import { groupPolicy, tpoTarget } from "../../../../model/learn/advantage/tpo.ts";

describe("tpoTarget", () => {
  test("matches two groups worked by hand", () => {
    // Rewards 1 and 0: population std 1/2, so u is 1 and -1. Probabilities 1/4 and 3/4, tilted: e/4 and 3/(4e).
    const [e, f] = [Math.E / 4, 3 / (4 * Math.E)];
    const logProbs = [Math.log(0.1), Math.log(0.3), -700, -700];
    const target = tpoTarget([1, 0, 5, 5], logProbs, [0, 0, 1, 1]);
    expect(target[0]).toBeCloseTo(e / (e + f), 12);
    expect(target[1]).toBeCloseTo(f / (e + f), 12);
    // Equal rewards: the target is the policy itself, also where its probabilities are below the least float.
    expect([...target.slice(2)]).toEqual([0.5, 0.5]);
    expect(groupPolicy(logProbs, [0, 0, 1, 1])[0]).toBeCloseTo(0.25, 12);
  });
});

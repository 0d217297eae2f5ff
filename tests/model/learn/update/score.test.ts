import { describe, expect, test } from "bun:test";
import { scoreEpisodes } from "../../../../model/learn/update/score.ts";
import type { TrainingEpisode } from "../../../../model/learn/update/types.ts";

/** Replies of 2 and 4 tokens, after a prompt each; the second reply had no action. */
const played = (group: number, rewards: readonly [number, number]): TrainingEpisode => ({
  group,
  tag: "Bandit",
  anchors: ["first", "second"],
  success: true,
  trajectory: {
    tokens: new Int32Array(8),
    written: Uint8Array.of(0, 1, 1, 0, 1, 1, 1, 1),
    logProbs: new Float32Array(8),
    contexts: [0],
    turns: [
      { end: 2, reward: rewards[0], penalty: 0 },
      { end: 7, reward: rewards[1], penalty: -0.1 },
    ],
    version: 1,
    digest: "",
  },
});

describe("scoreEpisodes", () => {
  test("adds penalties to their turns", () => {
    const { scored, overlongMean } = scoreEpisodes(
      [played(0, [1, 2])],
      { grouping: "state", method: "identity" },
      null,
    );
    expect(scored[0]).toMatchObject({ earned: [1, 1.9], score: 2.9, scale: 1 });
    expect(overlongMean).toBeNull();
  });

  test("penalizes each reply for its own length, worked by hand", () => {
    // Free up to 1 token, all lost at 5: 2 tokens lose a quarter, 4 tokens three quarters, of 0.8.
    const overlong = { weight: 0.8, tokensMax: 5, margin: 4 };
    const { scored, overlongMean } = scoreEpisodes(
      [played(0, [1, 2])],
      { grouping: "state", method: "identity" },
      overlong,
    );
    expect(scored[0]!.earned.map((one) => one.toFixed(6))).toEqual(["0.800000", "1.300000"]);
    expect(scored[0]!.score).toBeCloseTo(2.1, 9);
    expect(overlongMean).toBeCloseTo(-0.8, 9);
    const free = { ...played(0, [1, 2]), trajectory: { ...played(0, [1, 2]).trajectory, turns: [] } };
    const both = scoreEpisodes([played(0, [1, 2]), free], { grouping: "state", method: "identity" }, overlong);
    expect(both.overlongMean).toBeCloseTo(-0.4, 9);
  });

  test("normalizes the sum of rewards and penalties within the group", () => {
    const both = [played(0, [1, 2]), played(0, [0, 1]), played(1, [5, 5]), played(1, [5, 5])];
    const { scored } = scoreEpisodes(both, { grouping: "state", method: "mean" }, null);
    expect(scored.map(({ score }) => Number(score.toFixed(9)))).toEqual([1, -1, 0, 0]);
  });
});

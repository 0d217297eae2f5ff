/** Rewards of a trajectory, with and without penalties, and the faults that make it invalid. */
import { describe, expect, test } from "bun:test";
import { penalizedReward, rawReward, type Trajectory, trajectoryFault } from "../../model/trajectory.ts";

const turns = [
  { end: 4, reward: -0.1, penalty: 0 },
  { end: 9, reward: 10.9, penalty: -0.5 },
];

test("the raw reward is the sum over turns, and the penalized reward also adds the penalties", () => {
  expect(rawReward({ turns })).toBeCloseTo(10.8, 12);
  expect(penalizedReward({ turns })).toBeCloseTo(10.3, 12);
});

test("an episode without turns has no reward", () => {
  expect([rawReward({ turns: [] }), penalizedReward({ turns: [] })]).toEqual([0, 0]);
});

describe("a trajectory", () => {
  const good: Trajectory = {
    tokens: Int32Array.of(1, 5, 9, 2, 4, 6),
    written: Uint8Array.of(0, 1, 1, 0, 1, 1),
    logProbs: Float32Array.of(0, -0.5, 0, 0, -2, -1e-7),
    contexts: [0, 3],
    turns: [
      { end: 2, reward: 0.5, penalty: -0.1 },
      { end: 5, reward: -1, penalty: 0 },
    ],
    version: 1,
    digest: "ab".repeat(32),
  };

  test("without faults is valid", () => {
    expect(trajectoryFault(good, 10)).toBeNull();
  });

  test.each<[string, Partial<Trajectory>]>([
    ["6 tokens, but 5 written marks and 6 log-probabilities", { written: new Uint8Array(5) }],
    ["6 tokens, but 6 written marks and 0 log-probabilities", { logProbs: new Float32Array(0) }],
    ["token 10 at 2; the vocabulary has 10", { tokens: Int32Array.of(1, 5, 10, 2, 4, 6) }],
    ["token -1 at 0; the vocabulary has 10", { tokens: Int32Array.of(-1, 5, 9, 2, 4, 6) }],
    ["mark 2 at 1; expected 0 or 1", { written: Uint8Array.of(0, 2, 1, 0, 1, 1) }],
    ["log-probability NaN at token 4", { logProbs: Float32Array.of(0, -0.5, 0, 0, Number.NaN, -1) }],
    ["log-probability -Infinity at token 1", { logProbs: Float32Array.of(0, -Infinity, 0, 0, -2, -1) }],
    ["contexts begin at []; they must begin at 0 and ascend within 6 tokens", { contexts: [] }],
    ["contexts begin at [1,3]; they must begin at 0 and ascend within 6 tokens", { contexts: [1, 3] }],
    ["contexts begin at [0,0]; they must begin at 0 and ascend within 6 tokens", { contexts: [0, 0] }],
    ["contexts begin at [0,6]; they must begin at 0 and ascend within 6 tokens", { contexts: [0, 6] }],
    ["context 1 does not begin with a prompt, or has no written token", { contexts: [0, 4] }],
    [
      "context 1 does not begin with a prompt, or has no written token",
      { contexts: [0, 3], written: Uint8Array.of(0, 1, 1, 0, 0, 0) },
    ],
    ["turn 0 ends at 3, which is not a written token after -1", { turns: [{ end: 3, reward: 1, penalty: 0 }] }],
    ["turn 0 ends at 6, which is not a written token after -1", { turns: [{ end: 6, reward: 1, penalty: 0 }] }],
    ["turn 1 ends at 2, which is not a written token after 5", { turns: [good.turns[1]!, good.turns[0]!] }],
    ["token 5 is written after the end of the last turn, -1", { turns: [] }],
    ["token 5 is written after the end of the last turn, 2", { turns: [good.turns[0]!] }],
    ["turn 0 has reward NaN and penalty 0", { turns: [{ end: 2, reward: Number.NaN, penalty: 0 }] }],
    ["turn 0 has reward 1 and penalty -Infinity", { turns: [{ end: 2, reward: 1, penalty: -Infinity }] }],
  ])("is refused: %s", (fault, changes) => {
    expect(trajectoryFault({ ...good, ...changes }, 10)).toBe(fault);
  });
});

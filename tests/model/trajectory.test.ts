/** What an episode earned, with and without its penalties. */
import { expect, test } from "bun:test";
import { penalisedReward, rawReward } from "../../model/trajectory.ts";

const turns = [
  { end: 4, reward: -0.1, penalty: 0 },
  { end: 9, reward: 10.9, penalty: -0.5 },
];

test("the raw reward is the sum over turns; penalties come on top", () => {
  expect(rawReward({ turns })).toBeCloseTo(10.8, 12);
  expect(penalisedReward({ turns })).toBeCloseTo(10.3, 12);
});

test("an episode without turns earned nothing", () => {
  expect([rawReward({ turns: [] }), penalisedReward({ turns: [] })]).toEqual([0, 0]);
});

import { expect, test } from "bun:test";
import { lagShares } from "../../../actors/training/update-metrics.ts";
import { Stage } from "./stage.ts";

test("lagShares gives the shares of lags, worked by hand", () => {
  expect(lagShares([0, 0, 1, 1, 1, 2, 3, 8])).toEqual({
    "train/staleness": 2,
    "train/lag_0": 0.25,
    "train/lag_1": 0.375,
    "train/lag_2": 0.125,
    "train/lag_more": 0.25,
  });
});

test("a resumed run goes on with its counts of tickets", async () => {
  const counts = ({ metrics }: Stage, update: number) =>
    ["expired_tickets", "retried_tickets", "ignored_outcomes"].map((name) => metrics.get(`total/${name} ${update}`));
  const stage = new Stage();
  Object.assign(stage.ticketCounts, { expired: 1, retried: 2, ignored: 3 });
  await stage.training.run();
  expect(counts(stage, 6)).toEqual([1, 2, 3]);
  const resumed = new Stage({}, stage.saved.find(({ update }) => update === 3)!);
  Object.assign(resumed.ticketCounts, { expired: 10, retried: 0, ignored: 20 });
  await resumed.training.run();
  expect(counts(resumed, 6)).toEqual([11, 2, 23]);
});

test("a resumed run goes on with its minutes", async () => {
  const speed = ({ metrics }: Stage) =>
    ["updates_per_minute", "tokens_per_second"].map((name) => metrics.get(`speed/${name} 6`)!);
  const stage = new Stage();
  await stage.training.run();
  // 6 updates and 3 validations of a second each; 4 episodes of 2 written tokens in a second.
  expect(speed(stage)).toEqual([40, 8]);
  const resumed = new Stage({}, stage.saved.find(({ update }) => update === 3)!);
  await resumed.training.run();
  expect(speed(resumed)).toEqual([40, 8]);
});

import { expect, test } from "bun:test";
import { lagShares } from "../../../actors/training/update-metrics.ts";

test("lagShares gives the shares of lags, worked by hand", () => {
  expect(lagShares([0, 0, 1, 1, 1, 2, 3, 8])).toEqual({
    "train/staleness": 2,
    "train/lag_0": 0.25,
    "train/lag_1": 0.375,
    "train/lag_2": 0.125,
    "train/lag_more": 0.25,
  });
});

import { describe, expect, test } from "bun:test";
import { meansOf } from "../../../../model/learn/update/means.ts";
import { update } from "../../../../model/learn/update/update.ts";
import { networks, play, rewards, settings, start } from "./stage.ts";

describe("meansOf", () => {
  test("weighs a minibatch as each number asks, worked by hand", () => {
    const minibatches = [
      { values: { entropy: 1, policyLoss: 4, gradNorm: 2 }, tokens: 30, episodes: 2 },
      { values: { entropy: 5, policyLoss: 8, gradNorm: 4 }, tokens: 10, episodes: 6 },
    ];
    expect(meansOf(minibatches, "token-mean")).toEqual({ entropy: 2, policyLoss: 5, gradNorm: 3 });
    expect(meansOf(minibatches, "seq-mean-token-mean")).toEqual({ entropy: 2, policyLoss: 7, gradNorm: 3 });
  });
});

test("the metrics of an update whose minibatches differ in size are those of one minibatch", async () => {
  const measured = async (minibatch: number) => {
    const { metrics } = await update(await networks(start), play(start, rewards, 3), {
      ...settings,
      aggregation: "seq-mean-token-mean",
      optimizer: { ...settings.optimizer, learningRate: 1e-12 },
      minibatch,
    });
    return metrics;
  };
  const [cut, whole] = [await measured(4), await measured(6)];
  // The policy stays where it is.
  for (const name of ["entropy", "policyLoss", "logProbGap", "ratioKl", "clipHigh", "clipLow"])
    expect(cut[name]!).toBeCloseTo(whole[name]!, 5);
});

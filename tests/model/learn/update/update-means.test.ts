import { describe, expect, test } from "bun:test";
import { meansOf } from "../../../../model/learn/update/update.ts";
import { play, settings, start, updated } from "./stage.ts";

describe("meansOf", () => {
  test("weighs minibatches by the rule of each number, worked by hand", () => {
    const minibatches = [
      { values: { entropy: 1, policyLoss: 4, gradNorm: 2 }, tokens: 30, episodes: 2 },
      { values: { entropy: 5, policyLoss: 8, gradNorm: 4 }, tokens: 10, episodes: 6 },
    ];
    expect(meansOf(minibatches, "token-mean")).toEqual({ entropy: 2, policyLoss: 5, gradNorm: 3 });
    expect(meansOf(minibatches, "seq-mean-token-mean")).toEqual({ entropy: 2, policyLoss: 7, gradNorm: 3 });
  });

  test("leaves out the minibatches in which a number is not finite, unless it is finite in none", () => {
    const minibatches = [
      { values: { entropy: 1, gradNorm: Number.POSITIVE_INFINITY, kl: Number.NaN }, tokens: 1, episodes: 1 },
      { values: { entropy: 3, gradNorm: 2, kl: Number.NaN }, tokens: 1, episodes: 1 },
      { values: { entropy: Number.NaN, gradNorm: 5, kl: Number.NaN }, tokens: 2, episodes: 1 },
    ];
    expect(meansOf(minibatches, "token-mean")).toEqual({ entropy: 2, gradNorm: 3.5, kl: Number.NaN });
  });
});

test("the metrics of an update whose minibatches differ in size are those of one minibatch", async () => {
  const measured = async (minibatch: number) => {
    const { metrics } = await updated({
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

test("one infinite gradient hides no metric of the other minibatches", async () => {
  const played = play(start, [1, 0, 0.5, 1e30, 0, 0], 3);
  const result = await updated({ filter: { strategy: "all" }, estimator: { kind: "dr-grpo" }, minibatch: 3 }, played);
  const alone = await updated({ estimator: { kind: "dr-grpo" } }, played.slice(0, 3));
  expect([result.steps, result.skipped]).toEqual([1, "the gradient's norm is Infinity; no step was taken"]);
  expect(result.metrics["gradNorm"]).toBe(alone.metrics["gradNorm"]!);
});

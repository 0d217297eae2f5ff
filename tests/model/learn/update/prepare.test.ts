/** The inputs of a gradient step from episodes of unequal length, with policies whose log-probabilities are known. */
import { describe, expect, test } from "bun:test";
import type { BatchLimits, Sequence } from "../../../../model/learn/batch.ts";
import type { Network } from "../../../../model/learn/network.ts";
import { prepare } from "../../../../model/learn/update/prepare.ts";
import { scoreEpisodes } from "../../../../model/learn/update/score.ts";
import type { TrainingEpisode, UpdateSettings } from "../../../../model/learn/update/types.ts";
import { settings } from "./stage.ts";

/** Token 3 has log-probability -0.3 at temperature 1. */
const policy = {
  async score(sequences: readonly Sequence[], _: BatchLimits, temperature = 1) {
    const logProbs = sequences.map(({ tokens, written }) =>
      Float32Array.from(written, (at) => -tokens[at]! / 10 / temperature),
    );
    return { logProbs, entropies: logProbs };
  },
} as unknown as Network;

/** One turn. @param logProb  recorded for each token */
const episode = (reply: number[], reward: number, logProb: (token: number) => number): TrainingEpisode => ({
  group: 0,
  tag: "Bandit",
  anchors: ["first"],
  success: reward > 0,
  trajectory: {
    tokens: Int32Array.of(0, ...reply),
    written: Uint8Array.of(0, ...reply.map(() => 1)),
    logProbs: Float32Array.of(0, ...reply.map(logProb)),
    contexts: [0],
    turns: [{ end: reply.length, reward, penalty: 0 }],
    version: 1,
    digest: "",
  },
});

const prepared = (logProb: (token: number) => number, changed: Partial<UpdateSettings>) => {
  const episodes = [episode([1, 2], 1, logProb), episode([3], 0, logProb)];
  const { scored } = scoreEpisodes(episodes, settings.normalization, null);
  const networks = { policy, critic: null, reference: policy };
  return prepare(networks, scored, 1, { ...settings, estimator: { kind: "dr-grpo" }, temperature: 2, ...changed });
};

describe("prepare", () => {
  test("measures the KL to the reference at the sampling temperature, as a mean over written tokens", async () => {
    // At temperature 2 the reference's are -0.05, -0.1 and -0.15: on average the recorded -1 are 0.9 below.
    const { metrics } = await prepared(() => -1, { klInReward: { estimator: "k1", coefficient: 0.1 } });
    expect(metrics["kl"]).toBeCloseTo(-0.9, 6);
  });

  test("multiplies advantages by every factor, and measures the products, worked by hand", async () => {
    // Every token was recorded at half of its probability now: ratio 2. Lengths 2 and 1, mean 1.5: 0.75 and 1.5.
    const { inputs, metrics } = await prepared((token) => -token / 20 - Math.LN2, {
      scaling: { ...settings.scaling, lengthWeighting: true },
      importance: { level: "token", cap: 10 },
    });
    const [first, second] = inputs["advantages"]!;
    for (const advantage of Array.from(first!)) expect(advantage).toBeCloseTo(0.5 * 0.75 * 2, 5);
    expect(second![0]).toBeCloseTo(-0.5 * 1.5 * 2, 5);
    expect(metrics["importance"]).toBeCloseTo(2, 6);
    expect(metrics["advantageAbs"]).toBeCloseTo(1, 5);
    // Advantages .75, .75, -1.5 about 0; log-probabilities .05, 0, -.05 about their mean.
    expect(metrics["covariance"]).toBeCloseTo((0.75 * 0.05 + 1.5 * 0.05) / 3, 5);
  });
});

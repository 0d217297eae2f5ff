import { describe, expect, test } from "bun:test";
import { withObservations } from "../../../../model/learn/update/update.ts";
import { play, rewards, settings, start, updated } from "./stage.ts";

// A prompt of 2 tokens, a reply, an observation of 2, a reply, an observation of 1.
const sequence = { tokens: Int32Array.of(9, 9, 1, 7, 8, 2, 6), written: Int32Array.of(2, 5) };

describe("withObservations", () => {
  test("makes targets of all tokens of the env after the first reply, worked by hand", () => {
    const { sequences, inputs, observed } = withObservations([sequence], { advantages: [[0.5, -1]] }, 0.6);
    expect(observed).toBe(3);
    expect([...sequences[0]!.written]).toEqual([2, 3, 4, 5, 6]);
    expect(Array.from(inputs["advantages"]![0]!)).toEqual([0.5, 0, 0, -1, 0]);
    const share = Math.fround(0.2);
    expect(Array.from(inputs["observationWeights"]![0]!)).toEqual([0, share, share, 0, share]);
  });

  test("gives no token a weight if the env wrote nothing after a reply", () => {
    const alone = { tokens: Int32Array.of(9, 1), written: Int32Array.of(1) };
    const { inputs, observed } = withObservations([alone], {}, 0.6);
    expect([observed, Array.from(inputs["observationWeights"]![0]!)]).toEqual([0, [0]]);
  });
});

test("the measured loss is the mean over the env's tokens of all minibatches, of which some have none", async () => {
  // The env writes nothing after the replies of the last group.
  const alone = play(start, rewards, 3, { forgetful: true });
  const played = play(start, rewards, 3).map((episode, i) => (i < 6 ? episode : alone[i]!));
  const measured = async (minibatch: number) => {
    const { metrics } = await updated(
      {
        filter: { strategy: "all" },
        observationLoss: 0.3,
        optimizer: { ...settings.optimizer, learningRate: 1e-12 },
        minibatch,
      },
      played,
    );
    return metrics["observationLoss"]!;
  };
  // The policy stays where it is.
  expect(await measured(4)).toBeCloseTo(await measured(9), 5);
  expect(await measured(6)).toBeCloseTo(await measured(9), 5);
});

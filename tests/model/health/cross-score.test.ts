/** Every reasoning is scored under every distinct prompt, at the given temperature. */
import { describe, expect, test } from "bun:test";
import { crossScores } from "../../../model/health/cross-score.ts";
import type { BatchLimits, Sequence } from "../../../model/learn/batch.ts";

const limits = { tokensMax: 16, lengthMultiple: 1, widthMultiple: 1 };
const turn = (prompt: number[], reasoning: number[]) => ({
  prompt: Int32Array.from(prompt),
  reasoning: Int32Array.from(reasoning),
});

/** Scores a token by itself, the row's first token and the temperature. */
const network = {
  async score(sequences: readonly Sequence[], _: BatchLimits, temperature = 1) {
    const logProbs = sequences.map(({ tokens, written }) =>
      Float32Array.from(written, (at) => -(100 * tokens[0]! + tokens[at]!) / temperature),
    );
    return { logProbs, entropies: logProbs };
  },
};

describe("crossScores", () => {
  test("are means over the reasoning's tokens, a column for each distinct prompt", async () => {
    const turns = [turn([1, 9], [2, 4]), turn([3], [8]), turn([1, 9], [6])];
    expect(await crossScores(network, turns, limits, 2)).toEqual({
      perToken: [
        [-103 / 2, -303 / 2],
        [-108 / 2, -308 / 2],
        [-106 / 2, -306 / 2],
      ],
      lengths: [2, 1, 1],
      own: [0, 1, 0],
    });
  });

  test("distinguish the prompts 1 23 and 12 3", async () => {
    const { own } = await crossScores(network, [turn([1, 23], [5]), turn([12, 3], [5])], limits, 1);
    expect(own).toEqual([0, 1]);
  });
});

/** Which thoughts are compared, and the metrics of policies whose thoughts depend, or do not depend, on the prompt. */
import { describe, expect, test } from "bun:test";
import { composeRunConfig } from "../../../actors/config/compose.ts";
import {
  COLLAPSE_START,
  checkCollapse,
  measureCollapse,
  reasonedTurns,
} from "../../../actors/training/measure-collapse.ts";
import { crossScores } from "../../../model/health/cross-score.ts";
import type { BatchLimits, Sequence } from "../../../model/learn/batch.ts";
import type { Trajectory } from "../../../model/trajectory.ts";
import { FakeClock } from "../fake-clock.ts";

const CLOSE = 9;

/** Turns of prompt and reply; replies are written. */
function trajectoryOf(...turns: [prompt: number[], reply: number[]][]): Trajectory {
  const tokens = turns.flatMap(([prompt, reply]) => [...prompt, ...reply]);
  const written = turns.flatMap(([prompt, reply]) => [...prompt.map(() => 0), ...reply.map(() => 1)]);
  let end = -1;
  return {
    tokens: Int32Array.from(tokens),
    written: Uint8Array.from(written),
    logProbs: new Float32Array(tokens.length),
    turns: turns.map(([prompt, reply]) => {
      end += prompt.length + reply.length;
      return { end, reward: 0, penalty: 0 };
    }),
    contexts: [0],
    version: 1,
    digest: "",
  };
}

describe("a turn's reasoning", () => {
  test("is what is written before the thought is closed, after everything seen so far", () => {
    const played = trajectoryOf(
      [
        [1, 2],
        [5, 6, CLOSE, 7],
      ],
      [[3], [8, CLOSE, 4]],
    );
    expect(reasonedTurns(played, CLOSE)).toEqual([
      { prompt: Int32Array.of(1, 2), reasoning: Int32Array.of(5, 6) },
      { prompt: Int32Array.of(1, 2, 5, 6, CLOSE, 7, 3), reasoning: Int32Array.of(8) },
    ]);
  });

  test("is none if the thought is empty or is never closed", () => {
    const played = trajectoryOf([[1], [CLOSE, 7]], [[2], [5, 6]], [[3], [4, CLOSE]]);
    expect(reasonedTurns(played, CLOSE).map((turn) => turn?.reasoning.length ?? null)).toEqual([null, null, 1]);
  });

  test("begins with its own context where earlier turns were left out", () => {
    const played = {
      ...trajectoryOf(
        [
          [1, 2],
          [5, CLOSE],
        ],
        [
          [3, 4],
          [6, CLOSE],
        ],
      ),
      contexts: [0, 4],
    };
    expect(reasonedTurns(played, CLOSE)[1]).toEqual({ prompt: Int32Array.of(3, 4), reasoning: Int32Array.of(6) });
  });
});

/** A policy that gives each token the log-probability that `of` gives, by the prompt's first token. */
const network = (of: (prompt: number, token: number) => number) => ({
  score: async (sequences: readonly Sequence[]) => ({
    logProbs: sequences.map(({ tokens, written }) => Float32Array.from(written, (at) => of(tokens[0]!, tokens[at]!))),
    entropies: [],
  }),
});

const LIMITS: BatchLimits = { tokensMax: 64, lengthMultiple: 4, widthMultiple: 4 };

test("every reasoning is scored under every distinct prompt", async () => {
  const turns = [
    { prompt: Int32Array.of(1), reasoning: Int32Array.of(3, 4) },
    { prompt: Int32Array.of(2), reasoning: Int32Array.of(5) },
    { prompt: Int32Array.of(1), reasoning: Int32Array.of(6, 6, 6) },
  ];
  const scores = await crossScores(
    network((prompt, token) => -(10 * prompt + token)),
    turns,
    LIMITS,
    1,
  );
  expect(scores).toEqual({
    perToken: [
      [-13.5, -23.5],
      [-15, -25],
      [-16, -26],
    ],
    lengths: [2, 1, 3],
    own: [0, 1, 0],
  });
});

describe("an update's collapse metrics", () => {
  const configOf = (everyUpdates: number) =>
    composeRunConfig([{ source: "test", values: { health: { collapse: { everyUpdates } } } }]);
  const context = (of: (prompt: number, token: number) => number, everyUpdates = 5) => ({
    config: configOf(everyUpdates),
    clock: new FakeClock(),
    thinkEnd: CLOSE,
    trainer: {
      crossScore: (turns: Parameters<typeof crossScores>[1], limits: BatchLimits, temperature: number) =>
        crossScores(network(of), turns, limits, temperature),
    },
  });
  // Four prompts 1 to 4, and the thought that belongs to each: 11 to 14.
  const played = [1, 2, 3, 4].map((prompt) => trajectoryOf([[prompt], [10 + prompt, CLOSE]]));

  test("find every prompt again from thoughts that depend on it", async () => {
    const depends = (prompt: number, token: number) => Math.log(token === 10 + prompt ? 0.97 : 0.01);
    const { values } = await measureCollapse(context(depends), 0, played, COLLAPSE_START);
    expect(values["collapse/retrieval_accuracy"]).toBe(1);
    expect(values["collapse/first_retrieval_chance_level_at_2"]).toBe(0.5);
    // Matched ln .97, marginal ln((.97 + .03) / 4).
    expect(values["collapse/mi_estimate"]).toBeCloseTo(Math.log(0.97) - Math.log(0.25), 6);
    expect(values["collapse/conditional_entropy_est"]).toBeCloseTo(-Math.log(0.97), 6);
  });

  test("find nothing in thoughts that are the same for all", async () => {
    const { values } = await measureCollapse(
      context(() => Math.log(0.5)),
      0,
      played,
      COLLAPSE_START,
    );
    expect(values["collapse/mi_estimate"]).toBeCloseTo(0, 9);
    expect(values["collapse/retrieval_accuracy"]).toBe(0.25);
  });

  test("come at the first update and every fifth, or never", async () => {
    const measured = async (everyUpdates: number) => {
      const found = [];
      for (let update = 0; update < 11; update++) {
        const { values } = await measureCollapse(
          context(() => -1, everyUpdates),
          update,
          played,
          COLLAPSE_START,
        );
        if ("collapse/mi_estimate" in values) found.push(update + 1);
      }
      return found;
    };
    expect(await measured(5)).toEqual([1, 5, 10]);
    expect(await measured(0)).toEqual([]);
  });

  test("need a policy whose thoughts have an end", () => {
    expect(() => checkCollapse(configOf(5), null)).toThrow(
      /tokenizer has no token that closes a thought; set this key to 0$/,
    );
    checkCollapse(configOf(5), CLOSE);
    checkCollapse(configOf(0), null);
  });

  test("are left out without a thought", async () => {
    const mute = [trajectoryOf([[1], [CLOSE]])];
    const { values, state } = await measureCollapse(
      context(() => -1),
      0,
      mute,
      COLLAPSE_START,
    );
    expect(Object.keys(values)).toEqual(["speed/collapse_s"]);
    expect(state).toEqual(COLLAPSE_START);
  });
});

/** Episodes split into samples, and values of written tokens split and joined. */
import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { joinByEpisode, samplesOf, splitBySample } from "../../../model/learn/sequences.ts";

/** Two contexts: system, question, answer; then question (with less before it), answer, answer's end. */
const episode = {
  tokens: Int32Array.of(7, 1, 20, 7, 2, 30, 31),
  written: Uint8Array.of(0, 0, 1, 0, 0, 1, 1),
  contexts: [0, 3],
};

describe("samplesOf", () => {
  test("gives each context its own tokens, and positions counted from its beginning", () => {
    expect(samplesOf(episode)).toEqual([
      { tokens: Int32Array.of(7, 1, 20), written: Int32Array.of(2) },
      { tokens: Int32Array.of(7, 2, 30, 31), written: Int32Array.of(2, 3) },
    ]);
    expect(samplesOf({ ...episode, contexts: [0] })).toEqual([
      { tokens: episode.tokens, written: Int32Array.of(2, 5, 6) },
    ]);
  });
});

test("splitBySample gives each sample the values of its tokens, and joinByEpisode puts them back", () => {
  const samples = [samplesOf(episode), samplesOf({ ...episode, contexts: [0] })];
  const values = [Float32Array.of(1, 2, 3), Float32Array.of(4, 5, 6)];
  const parts = [Float32Array.of(1), Float32Array.of(2, 3), Float32Array.of(4, 5, 6)];
  expect(splitBySample(samples, values)).toEqual(parts);
  expect(joinByEpisode(samples, parts)).toEqual(values);
});

test("wherever an episode is cut, its written tokens are in its samples once and in order", () => {
  const episodes = fc.array(fc.tuple(fc.nat(50), fc.boolean()), { minLength: 1, maxLength: 30 }).chain((tokens) =>
    fc.record({
      tokens: fc.constant(tokens),
      starts: fc.uniqueArray(fc.nat(tokens.length - 1), { maxLength: tokens.length }),
    }),
  );
  fc.assert(
    fc.property(episodes, ({ tokens, starts }) => {
      const contexts = [...new Set([0, ...starts])].sort((a, b) => a - b);
      const samples = samplesOf({
        tokens: Int32Array.from(tokens, ([token]) => token),
        written: Uint8Array.from(tokens, ([, written]) => Number(written)),
        contexts,
      });
      const said = samples.flatMap((sample) => Array.from(sample.written, (at) => sample.tokens[at]!));
      expect(said).toEqual(tokens.filter(([, written]) => written).map(([token]) => token));
    }),
  );
});

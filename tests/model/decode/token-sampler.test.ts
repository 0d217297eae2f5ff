import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { type SampleSettings, TokenSampler } from "../../../model/decode/token-sampler.ts";
import { coin, hash64 } from "../../../model/rng.ts";

const plain: SampleSettings = { temperature: 1, topP: 1, topK: 0 };
const logits = (...probabilities: number[]) => Float32Array.from(probabilities, Math.log);
/** Tokens of the coins 0, 1/n, …: the possible tokens and their shares. */
const drawn = (row: Float32Array, settings: SampleSettings, count = 1000) => {
  const sampler = new TokenSampler(row.length);
  const shares = new Array<number>(row.length).fill(0);
  for (let i = 0; i < count; i++) shares[sampler.sample(row, 0, (i + 0.5) / count, settings).token]! += 1 / count;
  return shares.map((share) => Number(share.toFixed(3)));
};

const softmax = (row: Iterable<number>, temperature: number) => {
  const scaled = [...row].map((logit) => logit / temperature);
  const highest = Math.max(...scaled);
  const weights = scaled.map((logit) => Math.exp(logit - highest));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  return weights.map((weight) => weight / total);
};

/** Slow reference: sort all, cut, renormalize, walk. Coins on an edge, where rounding decides, give null. */
function reference(row: Float32Array, draw: number, { temperature, topP, topK }: SampleSettings) {
  const ranked = softmax(row, temperature).map((p, token) => ({ p, token }));
  ranked.sort((a, b) => b.p - a.p || a.token - b.token);
  const best = ranked.slice(0, topK === 0 ? ranked.length : topK);
  const sum = (tokens: typeof ranked) => tokens.reduce((total, { p }) => total + p, 0);
  const count = best.findIndex((_, i) => sum(best.slice(0, i + 1)) >= topP * sum(best)) + 1;
  const kept = best.slice(0, count === 0 ? best.length : count);
  if (topP === 1 && (topK === 0 || topK >= row.length)) kept.sort((a, b) => a.token - b.token);
  const edges = kept.map((_, i) => sum(kept.slice(0, i + 1)) / sum(kept));
  const closest = Math.min(...edges.map((edge) => Math.abs(edge - draw)));
  const cuts = best.map((_, i) => Math.abs(sum(best.slice(0, i + 1)) / sum(best) - topP));
  if (closest < 1e-9 || (topP < 1 && Math.min(...cuts) < 1e-9)) return null;
  return kept[edges.findIndex((edge) => edge > draw)]!.token;
}

describe("TokenSampler", () => {
  test("draws each token with its probability", () => {
    const row = Float32Array.of(0.3, -1, 2, 0, 1.5, -3, 0.7, 1);
    const key = { seed: 3, episode: hash64("frequencies") };
    for (const temperature of [0.5, 1, 2]) {
      const sampler = new TokenSampler(8);
      const counts = new Float64Array(8);
      for (let i = 0; i < 40_000; i++)
        counts[sampler.sample(row, 0, coin(key, i), { ...plain, temperature }).token]! += 1;
      const chiSquare = softmax(row, temperature).reduce(
        (sum, p, token) => sum + (counts[token]! - 40_000 * p) ** 2 / (40_000 * p),
        0,
      );
      // 7 degrees of freedom: the 99.9 % quantile.
      expect(chiSquare).toBeLessThan(24.3);
    }
  });

  test("records the log-probability at the sampling temperature, worked by hand", () => {
    // At temperature 2, weights 1 and e^(-ln 9 / 2) = 1/3: probabilities 3/4 and 1/4.
    const row = Float32Array.of(0, -Math.log(9));
    const sampler = new TokenSampler(2);
    for (const [draw, token, probability] of [
      [0.74, 0, 3 / 4],
      [0.76, 1, 1 / 4],
    ] as const) {
      const sampled = sampler.sample(row, 0, draw, { ...plain, temperature: 2 });
      expect(sampled.token).toBe(token);
      // The logit -ln 9 is rounded to float32.
      expect(sampled.logProb).toBeCloseTo(Math.log(probability), 7);
    }
  });

  test("takes at temperature 0 the likeliest token with the lowest id, and records its log-probability without temperature", () => {
    const row = Float32Array.of(1, 3, 3, 2);
    const { token, logProb } = new TokenSampler(4).sample(row, 0, 0.99, { ...plain, temperature: 0 });
    expect(token).toBe(1);
    expect(logProb).toBeCloseTo(Math.log(softmax(row, 1)[1]!), 12);
  });

  test("keeps with top-p the fewest tokens whose probabilities add up to it", () => {
    const row = logits(0.15, 0.5, 0.05, 0.3);
    expect(drawn(row, { ...plain, topP: 0.79 })).toEqual([0, 0.625, 0, 0.375]);
    expect(drawn(row, { ...plain, topP: 0.81 })).toEqual([0.158, 0.526, 0, 0.316]);
    expect(drawn(row, { ...plain, topP: 0.01 })).toEqual([0, 1, 0, 0]);
  });

  test("keeps with top-k the most likely tokens, and of equally likely tokens the lowest ids", () => {
    const row = logits(0.15, 0.5, 0.05, 0.3);
    expect(drawn(row, { ...plain, topK: 2 })).toEqual([0, 0.625, 0, 0.375]);
    expect(drawn(row, { ...plain, topK: 9 })).toEqual([0.15, 0.5, 0.05, 0.3]);
    expect(drawn(new Float32Array(4), { ...plain, topK: 3 })).toEqual([0.333, 0.334, 0.333, 0]);
  });

  test("takes the second token for a coin at the boundary of two tokens, and keeps no token beyond exactly top-p", () => {
    const sampler = new TokenSampler(3);
    const row = Float32Array.of(0, 0, -9);
    expect(sampler.sample(row, 0, 0.5, { ...plain, topK: 2 }).token).toBe(1);
    expect(new TokenSampler(2).sample(new Float32Array(2), 0, 0.5, plain).token).toBe(1);
    // The first token has the weight 0.
    expect(new TokenSampler(2).sample(Float32Array.of(-1e5, 0), 0, 0, plain).token).toBe(1);
    expect(drawn(new Float32Array(4), { ...plain, topP: 0.5 })).toEqual([0.5, 0.5, 0, 0]);
  });

  test("samples again from a row as a new sampler does", () => {
    const row = fc.array(fc.float({ min: -9, max: 9, noNaN: true }), { minLength: 5, maxLength: 5 });
    const draw = fc.record({
      coin: fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }),
      temperature: fc.constantFrom(0, 0.5, 1),
      topP: fc.constantFrom(0.7, 1),
      topK: fc.constantFrom(0, 2),
    });
    fc.assert(
      fc.property(fc.array(fc.tuple(row, fc.array(draw, { minLength: 1, maxLength: 4 })), { minLength: 1 }), (rows) => {
        const sampler = new TokenSampler(5);
        for (const [values, draws] of rows) {
          const logits = Float32Array.from(values);
          for (const [i, { coin, ...settings }] of draws.entries())
            expect({ ...sampler.sample(logits, 0, coin, settings, i > 0) }).toEqual({
              ...new TokenSampler(5).sample(logits, 0, coin, settings),
            });
        }
      }),
    );
  });

  test("does not sample with an earlier row's weights after a call that failed", () => {
    const sampler = new TokenSampler(2);
    sampler.sample(logits(0.9, 0.1), 0, 0.5, plain);
    expect(() => sampler.sample(Float32Array.of(0, Number.NaN), 0, 0.5, plain)).toThrow("every logit must be finite");
    expect(() => sampler.sample(Float32Array.of(0, Number.NaN), 0, 0.5, plain, true)).toThrow(
      "every logit must be finite",
    );
    expect(() => sampler.sample(logits(0.1, 0.9), 0, 0.5, { ...plain, topP: 2 })).toThrow(RangeError);
    expect(sampler.sample(logits(0.1, 0.9), 0, 0.5, plain, true).token).toBe(1);
  });

  test("applies top-p to the tokens that top-k keeps", () => {
    // Of the best two, 5/8 and 3/8: 0.6 needs the first only, though 0.5 < 0.6 of all.
    expect(drawn(logits(0.15, 0.5, 0.05, 0.3), { temperature: 1, topK: 2, topP: 0.6 })).toEqual([0, 1, 0, 0]);
  });

  test("records the log-probability of the whole distribution when top-k cuts it", () => {
    const { token, logProb } = new TokenSampler(4).sample(logits(0.15, 0.5, 0.05, 0.3), 0, 0.9, { ...plain, topK: 2 });
    expect(token).toBe(3);
    expect(logProb).toBeCloseTo(Math.log(0.3), 6);
  });

  test("agrees with a reference that sorts, cuts and walks", () => {
    const rows = fc.array(fc.integer({ min: -24, max: 24 }), { minLength: 1, maxLength: 40 });
    const settings = fc.record({
      temperature: fc.double({ min: 0.2, max: 3, noNaN: true }),
      topP: fc.oneof(fc.constant(1), fc.double({ min: 0.01, max: 1, noNaN: true })),
      topK: fc.nat({ max: 45 }),
    });
    const draws = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });
    let compared = 0;
    fc.assert(
      fc.property(rows, settings, draws, (eighths, setting, draw) => {
        const row = Float32Array.from(eighths, (eighth) => eighth / 8);
        const expected = reference(row, draw, setting);
        if (expected === null) return;
        compared += 1;
        const { token, logProb } = new TokenSampler(row.length).sample(row, 0, draw, setting);
        expect(token).toBe(expected);
        expect(logProb).toBeCloseTo(Math.log(softmax(row, setting.temperature)[token]!), 9);
      }),
      { numRuns: 1000 },
    );
    expect(compared).toBeGreaterThan(500);
  });

  test("reads its own row only, and keeps no state between rows", () => {
    const rows = Float32Array.of(...logits(0.5, 0.25, 0.25), ...logits(0.1, 0.1, 0.8));
    const sampler = new TokenSampler(3);
    const settings = { temperature: 1, topP: 0.9, topK: 2 };
    const first = { ...sampler.sample(rows, 0, 0.2, settings) };
    const second = { ...sampler.sample(rows, 3, 0.2, settings) };
    expect(first.token).toBe(0);
    expect(second.token).toBe(2);
    expect({ ...sampler.sample(rows, 0, 0.2, settings) }).toEqual(first);
    expect({ ...new TokenSampler(3).sample(rows, 3, 0.2, settings) }).toEqual(second);
  });

  test("never draws a token whose probability is 0 in double precision", () => {
    const row = Float32Array.of(-2000, 5, -2000, 5, -2000);
    expect(drawn(row, plain)).toEqual([0, 0.5, 0, 0.5, 0]);
    const sampler = new TokenSampler(5);
    expect(sampler.sample(row, 0, 0, plain).token).toBe(1);
    expect(sampler.sample(row, 0, 1 - 2 ** -53, plain).token).toBe(3);
  });

  test.each([Number.NaN, Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY])("refuses a logit of %p", (bad) => {
    const rows = Float32Array.of(0, 0, 0, 0, bad, 0);
    expect(() => new TokenSampler(3).sample(rows, 3, 0.5, plain)).toThrow(
      `cannot sample: logit 1 of 3 at 3 is ${bad}; every logit must be finite`,
    );
  });

  test("refuses a row that is too short", () => {
    expect(() => new TokenSampler(3).sample(new Float32Array(5), 3, 0.5, plain)).toThrow(
      "logit 2 of 3 at 3 is undefined",
    );
  });

  test.each<[Partial<SampleSettings>, number]>([
    [{ temperature: -1 }, 0.5],
    [{ temperature: Number.NaN }, 0.5],
    [{ topP: 0 }, 0.5],
    [{ topP: 1.1 }, 0.5],
    [{ topK: -1 }, 0.5],
    [{ topK: 2.5 }, 0.5],
    [{}, 1],
    [{}, -0.1],
  ])("refuses settings %p with coin %p", (changed, draw) => {
    expect(() => new TokenSampler(2).sample(new Float32Array(2), 0, draw, { ...plain, ...changed })).toThrow(
      "cannot sample with",
    );
  });
});

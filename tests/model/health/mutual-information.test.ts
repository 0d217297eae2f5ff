import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { COLLAPSE_DEFAULTS, collapseMetrics, isCollapseStep } from "../../../model/health/mutual-information.ts";

const metrics = (perToken: number[][], own: number[], lengths = perToken.map(() => 1)) =>
  collapseMetrics({ perToken, lengths, own }, null).metrics;

describe("collapseMetrics", () => {
  test("match two reasonings under two prompts worked by hand", () => {
    // Probabilities 0.8 and 0.2 under the own and the other prompt: marginal 0.5, so ln(0.8 / 0.5).
    const [high, low] = [Math.log(0.8), Math.log(0.2)];
    const got = metrics(
      [
        [high, low],
        [low, high],
      ],
      [0, 1],
    );
    expect(got["mi_estimate"]).toBeCloseTo(Math.log(1.6), 12);
    expect(got["conditional_entropy_est"]).toBeCloseTo(-high, 12);
    expect(got["reasoning_entropy_est"]).toBeCloseTo(Math.LN2, 12);
    expect(got).toMatchObject({ retrieval_accuracy: 1, retrieval_chance_level: 0.5, "retrieval_accuracy@2": 1 });
  });

  test("reasoning that ignores its prompt has no information, and retrieval at chance level", () => {
    const same = [
      [-1, -1, -1],
      [-2, -2, -2],
      [-3, -3, -3],
    ];
    const got = metrics(same, [0, 1, 2]);
    expect(got["mi_estimate"]).toBeCloseTo(0, 12);
    expect(got["retrieval_above_chance"]).toBeCloseTo(0, 12);
  });

  test("information lies between its bounds, the upper one log N, per sequence too", () => {
    const row = fc.array(fc.double({ min: -5, max: 0, noNaN: true }), { minLength: 4, maxLength: 4 });
    fc.assert(
      fc.property(fc.array(row, { minLength: 1, maxLength: 6 }), (perToken) => {
        const own = perToken.map((_, i) => i % 4);
        const got = metrics(
          perToken,
          own,
          perToken.map((_, i) => i + 1),
        );
        expect(got["mi_estimate"]).toBeLessThanOrEqual(Math.log(4) + 1e-9);
        expect(got["mi_seq_estimate"]).toBeLessThanOrEqual(Math.log(4) + 1e-9);
        // The own prompt is one of the four that the marginal averages: naming it best in all rows cannot lower it below 0.
        const best = perToken.map((scores) => scores.indexOf(Math.max(...scores)));
        expect(metrics(perToken, best)["mi_estimate"]).toBeGreaterThanOrEqual(-1e-9);
        expect(metrics(perToken, best)["retrieval_accuracy"]).toBe(1);
      }),
    );
  });

  test("per-token and per-sequence numbers agree where every reasoning is one token", () => {
    const got = metrics(
      [
        [-1, -2],
        [-4, -3],
      ],
      [0, 1],
    );
    expect(got["mi_seq_estimate"]).toBe(got["mi_estimate"]!);
    expect(got["mi_zscore_seq"]).toBe(got["mi_zscore"]!);
  });

  test("the running spread starts at the first and moves by a tenth, worked by hand", () => {
    const scores = {
      perToken: [
        [-1, -1],
        [-3, -3],
      ],
      lengths: [1, 1],
      own: [0, 1],
    };
    const first = collapseMetrics(scores, null, COLLAPSE_DEFAULTS);
    // Marginals -1 and -3: population std 1.
    expect(first.spread.perToken).toBeCloseTo(1, 12);
    const next = collapseMetrics(
      {
        ...scores,
        perToken: [
          [-1, -1],
          [-7, -7],
        ],
      },
      first.spread,
      COLLAPSE_DEFAULTS,
    );
    expect(next.spread.perToken).toBeCloseTo(0.9 * 1 + 0.1 * 3, 12);
  });

  test("per-sequence numbers weigh each score by its reasoning's tokens, worked by hand", () => {
    const [high, low] = [Math.log(0.8), Math.log(0.2)];
    const perToken = [
      [high, low],
      [low, high],
    ];
    const scores = { perToken, lengths: [1, 2], own: [0, 1] };
    const before = { perToken: 1, perSequence: 3 };
    const { metrics: got, spread } = collapseMetrics(scores, before, { epsilon: 0.5, decay: 0.75 });
    // Probabilities of the sequences: 0.8 and 0.2, 0.04 and 0.64. Marginals: 0.5, 0.34.
    const mutual = (Math.log(0.8 / 0.5) + Math.log(0.64 / 0.34)) / 2;
    const std = Math.log(0.5 / 0.34) / 2;
    expect(got["mi_seq_estimate"]).toBeCloseTo(mutual, 12);
    expect(got["marginal_std_seq"]).toBeCloseTo(std, 12);
    expect(got["mi_zscore_seq"]).toBeCloseTo(mutual / (std + 0.5), 12);
    const running = 0.75 * 3 + 0.25 * std;
    expect(got["marginal_std_ema_seq"]).toBeCloseTo(running, 12);
    expect(got["mi_zscore_ema_seq"]).toBeCloseTo(mutual / (running + 0.5), 12);
    expect(spread.perSequence).toBeCloseTo(running, 12);
    // Per token both marginals are 0.5.
    expect(got["mi_zscore"]).toBeCloseTo(Math.log(1.6) / 0.5, 9);
    expect(got["marginal_std_ema"]).toBeCloseTo(0.75, 12);
    expect(got["retrieval_chance_level@8"]).toBe(1);
  });

  test("of very unlikely sequences are finite", () => {
    expect(metrics([[-2000, -2000 + Math.LN2]], [0])["mi_estimate"]).toBeCloseTo(-Math.log(1.5), 9);
  });
});

test("isCollapseStep is the first step and every fifth", () => {
  expect([0, 1, 2, 4, 5, 6, 10].filter((step) => isCollapseStep(step, 5))).toEqual([1, 5, 10]);
});

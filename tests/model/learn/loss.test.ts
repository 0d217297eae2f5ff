import { describe, expect, test } from "bun:test";
import * as tf from "@tensorflow/tfjs-core";
import "@tensorflow/tfjs-core/dist/register_all_gradients.js";
import "@tensorflow/tfjs-backend-cpu";
import "@tensorflow/tfjs-core/dist/register_all_gradients.js";
import fc from "fast-check";
import type { Rows } from "../../../model/learn/advantage/rows.ts";
import { type Aggregation, rowLengths, tokenWeights } from "../../../model/learn/aggregation.ts";
import { type PolicyRule, policyLoss, valueLoss } from "../../../model/learn/loss.ts";
import { type Objective, type PolicySettings, policyObjective } from "../../../model/learn/objective.ts";
import { differences, slowPolicyLoss, type Tokens } from "./loss-reference.ts";

await tf.setBackend("cpu");

/** gspo's `sequenceShares`: 1 / (tokens of the row) for each written token. */
const sequenceShares = (rows: Rows) => {
  const lengths = rowLengths(rows);
  return Float32Array.from(rows.written, (written, i) => (written ? 1 / lengths[Math.floor(i / rows.width)]! : 0));
};

const PPO = { kind: "ppo", clipLow: 0.2, clipHigh: 0.28, dualClip: 3 } as const;
const RULES: PolicyRule[] = [
  PPO,
  { kind: "ppo", clipLow: 0.2, clipHigh: 0.2, dualClip: null },
  { kind: "gspo", clipLow: 0.1, clipHigh: 0.15 },
  { kind: "cispo", clipLow: 0.2, clipHigh: 0.28 },
  { kind: "reinforce" },
];
const AGGREGATIONS: Aggregation[] = [
  "token-mean",
  "seq-mean-token-sum",
  "seq-mean-token-mean",
  "seq-mean-token-sum-norm",
];

/** Tokens in hundredths, so that no ratio lies within a rounding error of where a clip begins. */
const hundredths = (max: number) => fc.integer({ min: -max * 100, max: max * 100 }).map((n) => n / 100 + 0.0037);
const minibatch = fc
  .record({ rows: fc.integer({ min: 1, max: 4 }), width: fc.integer({ min: 1, max: 5 }) })
  .chain(({ rows, width }) => {
    const size = { minLength: rows * width, maxLength: rows * width };
    return fc.record({
      width: fc.constant(width),
      written: fc.array(fc.integer({ min: 0, max: 1 }), size).filter((mask) => mask.includes(1)),
      oldLogProbs: fc.array(hundredths(2), size),
      moved: fc.array(hundredths(1), size),
      advantages: fc.array(hundredths(3), size),
      aggregation: fc.constantFrom(...AGGREGATIONS),
    });
  })
  .map(({ moved, written, aggregation, ...tokens }) => {
    const mask = { width: tokens.width, written: Uint8Array.from(written) };
    const weights = [...tokenWeights(mask, aggregation, 7)];
    return { ...tokens, ...mask, weights, logProbs: tokens.oldLogProbs.map((old, i) => old + moved[i]!) };
  });

const matrix = (values: ArrayLike<number>, width: number) =>
  tf.tensor2d(Float32Array.from(values), [values.length / width, width]);

function loss(tokens: Tokens, rule: PolicyRule, logProbs = matrix(tokens.logProbs, tokens.width)) {
  const { width } = tokens;
  return policyLoss(
    {
      logProbs,
      oldLogProbs: matrix(tokens.oldLogProbs, width),
      advantages: matrix(tokens.advantages, width),
      weights: matrix(tokens.weights, width),
      shares: matrix(tokenWeights(tokens, "token-mean"), width),
      sequenceShares: matrix(sequenceShares(tokens), width),
    },
    rule,
  );
}

const value = (tensor: tf.Tensor) => tensor.dataSync()[0]!;

/** A row of one token each, all of weight 1 / count. */
function line(ratios: number[], advantages: number[]): Tokens {
  const count = ratios.length;
  return {
    width: count,
    logProbs: ratios.map(Math.log),
    oldLogProbs: ratios.map(() => 0),
    advantages,
    weights: ratios.map(() => 1 / count),
    written: new Uint8Array(count).fill(1),
  };
}

describe("policyLoss", () => {
  test("ppo matches six tokens worked by hand", () => {
    // A 1: 1.1 stays, 2 is clipped to 1.28, 0.5 stays. A -1: 1.1 stays, 0.5 counts as 0.8, 9 as 3.
    const tokens = line([1.1, 2, 0.5, 1.1, 0.5, 9], [1, 1, 1, -1, -1, -1]);
    const { loss: total, ...metrics } = loss(tokens, PPO);
    expect(value(total)).toBeCloseTo((-1.1 - 1.28 - 0.5 + 1.1 + 0.8 + 3) / 6, 5);
    expect(value(metrics.clipHighShare)).toBeCloseTo(1 / 6, 6);
    expect(value(metrics.clipLowShare)).toBeCloseTo(1 / 6, 6);
    expect(value(metrics.dualClipShare)).toBeCloseTo(1 / 6, 6);
    expect(value(metrics.ratioKl)).toBeCloseTo(-Math.log(1.1 * 2 * 0.5 * 1.1 * 0.5 * 9) / 6, 5);
  });

  test("the dual clip bounds large ratios with a negative advantage only, worked by hand", () => {
    const tokens = line([9, 2, 9, 1, 9], [1, -1, -2, -1, 0]);
    const shareBy = (rule: PolicyRule) => value(loss(tokens, rule).dualClipShare);
    expect(shareBy(PPO)).toBeCloseTo(1 / 5, 6);
    expect(shareBy({ ...PPO, dualClip: 1.5 })).toBeCloseTo(2 / 5, 6);
    expect(shareBy({ ...PPO, dualClip: null })).toBe(0);
    expect(shareBy({ kind: "gspo", clipLow: 0.2, clipHigh: 0.28 })).toBe(0);
  });

  test("gspo clips the geometric mean of a sequence's ratios, worked by hand", () => {
    // sqrt(4 * 1) = 2, clipped to 1.5 for both tokens.
    const { loss: total } = loss(line([4, 1], [1, 1]), { kind: "gspo", clipLow: 0.5, clipHigh: 0.5 });
    expect(value(total)).toBeCloseTo(-1.5, 5);
  });

  test("cispo has a gradient for a clipped token, and ppo has none", () => {
    const tokens = line([2], [1]);
    const gradient = (rule: PolicyRule) =>
      tf
        .grad((x: tf.Tensor) => loss(tokens, rule, x as tf.Tensor2D).loss)(matrix(tokens.logProbs, 1))
        .dataSync()[0]!;
    expect(gradient(PPO)).toBeCloseTo(0, 6);
    expect(gradient({ kind: "cispo", clipLow: 0.2, clipHigh: 0.28 })).toBeCloseTo(-1.28, 5);
  });

  test("cispo counts the tokens that it clips, whatever the sign of their advantage", () => {
    // Ratio 2 is clipped for both signs, .5 likewise; without an advantage there is nothing to clip.
    const rule: PolicyRule = { kind: "cispo", clipLow: 0.2, clipHigh: 0.28 };
    const { clipHighShare, clipLowShare } = loss(line([2, 2, 2, 0.5, 0.5, 1], [1, -1, 0, 1, -1, 1]), rule);
    expect(value(clipHighShare)).toBeCloseTo(2 / 6, 6);
    expect(value(clipLowShare)).toBeCloseTo(2 / 6, 6);
  });

  test.each(RULES.map((rule) => [`${rule.kind} ${JSON.stringify(rule)}`, rule] as const))(
    "%s equals the paper's formula, and its gradient float64 finite differences",
    (_, rule) => {
      fc.assert(
        fc.property(minibatch, (tokens) => {
          tf.tidy(() => {
            const exact = slowPolicyLoss(tokens, rule);
            const { loss: total } = loss(tokens, rule);
            expect(Math.abs(value(total) - exact)).toBeLessThan(1e-4 * (1 + Math.abs(exact)));
            const gradient = tf.grad((x: tf.Tensor) => loss(tokens, rule, x as tf.Tensor2D).loss)(
              matrix(tokens.logProbs, tokens.width),
            );
            const slow = differences(
              (logProbs) => slowPolicyLoss({ ...tokens, logProbs }, rule, tokens.logProbs),
              tokens.logProbs,
            );
            gradient.dataSync().forEach((got, i) => {
              expect(Math.abs(got - slow[i]!)).toBeLessThan(1e-3 * (1 + Math.abs(slow[i]!)));
            });
          });
        }),
        { numRuns: 40 },
      );
    },
  );

  test.each(RULES.map((rule) => [rule.kind, rule] as const))(
    "%s: losses, gradients and metrics of micro-batches add up to the minibatch's",
    (_, rule) => {
      fc.assert(
        fc.property(minibatch, (tokens) => {
          const { width } = tokens;
          const size = tokens.logProbs.length;
          const shares = tokenWeights(tokens, "token-mean");
          const run = (from: number, to: number) =>
            tf.tidy(() => {
              const cut = (values: ArrayLike<number>) => matrix(Array.from(values).slice(from, to), width);
              const rows = { width, written: tokens.written.slice(from, to) };
              const at = (logProbs: tf.Tensor) =>
                policyLoss(
                  {
                    logProbs,
                    oldLogProbs: cut(tokens.oldLogProbs),
                    advantages: cut(tokens.advantages),
                    weights: cut(tokens.weights),
                    shares: cut(shares),
                    sequenceShares: matrix(sequenceShares(rows), width),
                  },
                  rule,
                );
              const gradient = tf
                .grad((x: tf.Tensor) => at(x).loss)(cut(tokens.logProbs))
                .dataSync();
              return { scalars: Object.values(at(cut(tokens.logProbs))).map(value), gradient: [...gradient] };
            });
          const whole = run(0, size);
          const parts = Array.from({ length: size / width }, (_, row) => run(row * width, (row + 1) * width));
          whole.scalars.forEach((scalar, i) => {
            expect(parts.reduce((sum, part) => sum + part.scalars[i]!, 0)).toBeCloseTo(scalar, 4);
          });
          const joined = parts.flatMap((part) => part.gradient);
          whole.gradient.forEach((g, i) => {
            expect(joined[i]).toBeCloseTo(g, 5);
          });
        }),
        { numRuns: 25 },
      );
    },
  );

  test("stays finite where a log-ratio would overflow, gradient included", () => {
    const tokens = { ...line([1, 1], [1, -1]), logProbs: [500, 500] };
    expect(Number.isFinite(value(loss(tokens, PPO).loss))).toBe(true);
    const gradient = tf.grad((x: tf.Tensor) => loss(tokens, PPO, x as tf.Tensor2D).loss)(matrix(tokens.logProbs, 2));
    expect([...gradient.dataSync()].every(Number.isFinite)).toBe(true);
  });
});

describe("valueLoss", () => {
  const rows = (values: number[]) => matrix(values, values.length);
  const tensors = (values: tf.Tensor, old: number[], returns: number[]) => {
    const weights = rows(returns.map(() => 1 / returns.length));
    return { values, oldValues: rows(old), returns: rows(returns), weights, shares: weights };
  };

  test("matches three tokens worked by hand", () => {
    // Free errors 1, 0, 2; moves of at most 0.5 give 0, 0.7, 1.5: errors 1, 0.3, 1.5. Larger squares: 1, 0.09, 4.
    const { loss: total, clipShare } = valueLoss(tensors(rows([0, 1, 2]), [0.2, 0.2, 1], [1, 1, 0]), 0.5);
    expect(value(total)).toBeCloseTo(5.09 / 6, 5);
    expect(value(clipShare)).toBeCloseTo(1 / 3, 6);
  });

  test("counts no token as clipped whose value moved by less than the clip", () => {
    // In float32, .38 + (.11 - .38) is not .11.
    const rounded = tensors(rows([0.11, 0.14]), [0.38, 0.58], [-2.62, 3.58]);
    expect(value(valueLoss(rounded, 0.5).clipShare)).toBe(0);
    const millionths = (max: number) => fc.integer({ min: -max * 1e6, max: max * 1e6 }).map((n) => n / 1e6);
    const token = fc.tuple(millionths(10), millionths(0.49));
    fc.assert(
      fc.property(fc.array(token, { minLength: 20, maxLength: 40 }), (tokens) => {
        tf.tidy(() => {
          const old = tokens.map(([before]) => before);
          const { clipShare } = valueLoss(
            tensors(
              rows(tokens.map(([before, move]) => before + move)),
              old,
              old.map((before, i) => before + (i % 2 === 0 ? 3 : -3)),
            ),
            0.5,
          );
          expect(value(clipShare)).toBe(0);
        });
      }),
    );
  });

  test("its gradient equals float64 finite differences", () => {
    const triple = fc.tuple(hundredths(3), hundredths(3), hundredths(3));
    fc.assert(
      fc.property(fc.array(triple, { minLength: 1, maxLength: 6 }), (tokens) => {
        const [values, old, returns] = [0, 1, 2].map((k) => tokens.map((token) => token[k]! + 0.0011 * k)) as [
          number[],
          number[],
          number[],
        ];
        const slow = differences(
          (x) =>
            x.reduce((sum, v, i) => {
              const clipped = old[i]! + Math.min(0.5, Math.max(-0.5, v - old[i]!));
              return sum + 0.5 * Math.max((v - returns[i]!) ** 2, (clipped - returns[i]!) ** 2);
            }, 0) / x.length,
          values,
        );
        tf.tidy(() => {
          const gradient = tf.grad((x: tf.Tensor) => valueLoss(tensors(x, old, returns), 0.5).loss)(rows(values));
          gradient.dataSync().forEach((got, i) => {
            expect(got).toBeCloseTo(slow[i]!, 3);
          });
        });
      }),
    );
  });
});

test("the objective subtracts the entropy and adds KL and covariance, each weighted, worked by hand", () => {
  const row = (...values: number[]) => tf.tensor2d([values]);
  const reinforce: PolicySettings["rule"] = { kind: "reinforce" };
  const loss = ({ loss }: Objective) =>
    value(
      (loss as (scores: object, inputs: Readonly<Record<string, tf.Tensor>>) => { loss: tf.Scalar })(
        { logProbs: row(-1, -2, -3), entropies: row(1, 3, 99) },
        {
          // With an advantage of 7, weighed at the first token alone, the loss of the policy is 7.
          advantages: row(7, 0, 0),
          weights: row(1, 0, 0),
          oldLogProbs: row(-1.5, -6, 6),
          reference: row(-3, -2, -53),
          shares: row(0.5, 0.5, 0),
          entropyWeights: row(0.05, 0.05, 0),
          klWeights: row(0.005, 0.005, 0),
          covarianceWeights: row(0.2, 0, 0),
        },
      ).loss,
    );
  const kl = { estimator: "k1", coefficient: 1 } as const;
  const all = policyObjective({ rule: reinforce, entropyCoefficient: 1, kl }, { hasCovarianceTerm: true });
  expect(loss(all)).toBeCloseTo(7 - 0.2 + 0.01 + 0.1, 5);
  expect(loss(policyObjective({ rule: reinforce, entropyCoefficient: 0, kl: null }))).toBe(7);
});

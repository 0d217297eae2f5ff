/** The kernels of log-probabilities and entropies, and of their gradient, against float64. */
import { describe, expect, test } from "bun:test";
import type { RowsShape } from "../../../../model/engine/native/rows.ts";
import {
  tokenLogProbsGradientOperator,
  tokenLogProbsOperator,
} from "../../../../model/engine/native/token-log-probs.ts";
import { randomFloats as random } from "../../policy/gradient-check.ts";
import { describeWidths, expectOwnBits, runKernel } from "./machine-code.ts";
import { ROW_SIZES, relativeGap } from "./rows.ts";

/** ln p of each token of each row, by float64. */
function logProbsOf(logits: Float32Array, { rows, width }: RowsShape): Float64Array[] {
  return Array.from({ length: rows }, (_, row) => {
    const own = Float64Array.from(logits.subarray(row * width, (row + 1) * width));
    const largest = Math.max(...own);
    const sum = own.reduce((total, logit) => total + Math.exp(logit - largest), 0);
    return own.map((logit) => logit - largest - Math.log(sum));
  });
}

const entropyOf = (logProbs: Float64Array) => -logProbs.reduce((sum, value) => sum + Math.exp(value) * value, 0);

/** The log-probability of the target and the entropy, for each row. */
const expectedPair = (logProbs: readonly Float64Array[], targets: Int32Array) =>
  logProbs.flatMap((own, row) => [own[targets[row]!]!, entropyOf(own)]);

/** A different target for each row; the first and the last token are among them. */
const targetsOf = ({ rows, width }: RowsShape) =>
  Int32Array.from({ length: rows }, (_, row) => ((row * (width - 1)) % (width + 7)) % width);

describeWidths("the kernels of log-probabilities", (vectorWidth) => {
  test.each(ROW_SIZES)("%p rows of %p logits and their gradient agree with float64", (rows, width) => {
    const shape = { rows, width };
    const targets = targetsOf(shape);
    for (const size of [1, 20]) {
      const logits = random(rows * width, "logits").map((value) => size * value);
      const [pair, statistics] = runKernel(tokenLogProbsOperator(shape), vectorWidth, [logits, targets]);
      const logProbs = logProbsOf(logits, shape);
      expect(relativeGap(pair!, expectedPair(logProbs, targets))).toBeLessThan(1e-6);

      const dPair = random(2 * rows, "dPair");
      const given = [logits, targets, pair!, statistics!, dPair];
      const [dLogits] = runKernel(tokenLogProbsGradientOperator(shape), vectorWidth, given);
      const expected = logProbs.flatMap((own, row) => {
        const [dLogProb, dEntropy] = [dPair[2 * row]!, dPair[2 * row + 1]!];
        const entropy = entropyOf(own);
        return [...own].map((value, token) => {
          const chosen = token === targets[row] ? dLogProb : 0;
          return chosen - Math.exp(value) * (dLogProb + dEntropy * (value + entropy));
        });
      });
      expect(relativeGap(dLogits!, expected)).toBeLessThan(1e-6);
    }
  });

  test("equal logits share all probability, and one large logit takes all of it", () => {
    const shape = { rows: 2, width: 32 };
    const logits = new Float32Array(64).fill(3);
    logits[40] = 500;
    const [pair] = runKernel(tokenLogProbsOperator(shape), vectorWidth, [logits, Int32Array.of(31, 8)]);
    expect(relativeGap(pair!, [-Math.log(32), Math.log(32), 0, 0])).toBeLessThan(1e-6);
  });

  test("a logit that is not a number makes its row's results not numbers, and no others", () => {
    const shape = { rows: 3, width: 16 };
    const logits = random(48, "logits");
    logits[20] = Number.NaN;
    const targets = Int32Array.of(1, 2, 3);
    const [pair, statistics] = runKernel(tokenLogProbsOperator(shape), vectorWidth, [logits, targets]);
    expect([...pair!].map(Number.isNaN)).toEqual([false, false, true, true, false, false]);
    const given = [logits, targets, pair!, statistics!, random(6, "dPair")];
    const [dLogits] = runKernel(tokenLogProbsGradientOperator(shape), vectorWidth, given);
    expect([...dLogits!].map(Number.isNaN)).toEqual([...logits].map((_, i) => Math.floor(i / 16) === 1));
  });

  test.each([-1, 16, 2 ** 31 - 1, -(2 ** 31)])(
    "target %p is outside the vocabulary: its log-probability is NaN",
    (stray) => {
      const shape = { rows: 3, width: 16 };
      const [logits, dPair] = [random(48, "logits"), random(6, "dPair")];
      const results = (targets: Int32Array) => {
        const [pair, statistics] = runKernel(tokenLogProbsOperator(shape), vectorWidth, [logits, targets]);
        const given = [logits, targets, pair!, statistics!, dPair];
        const [dLogits] = runKernel(tokenLogProbsGradientOperator(shape), vectorWidth, given);
        return { pair: [...pair!], dLogits: [...dLogits!] };
      };
      const [found, expected] = [results(Int32Array.of(1, stray, 3)), results(Int32Array.of(1, 2, 3))];
      expect(found.pair).toEqual(expected.pair.with(2, Number.NaN));
      // Only the term of the chosen token is missing.
      const gradient = expected.dLogits.with(18, found.dLogits[18]!);
      expect(found.dLogits).toEqual(gradient);
      expect(Math.abs(found.dLogits[18]! + dPair[2]! - expected.dLogits[18]!)).toBeLessThan(1e-6);
    },
  );

  test("the bits do not depend on what the results held before", () => {
    const shape = { rows: 3, width: 48 };
    const [logits, targets] = [random(144, "logits"), targetsOf(shape)];
    const saved = [random(6, "pair"), random(6, "statistics"), random(6, "dPair")];
    expectOwnBits(tokenLogProbsOperator(shape), vectorWidth, [logits, targets]);
    expectOwnBits(tokenLogProbsGradientOperator(shape), vectorWidth, [logits, targets, ...saved]);
  });
});

describe("the operators of log-probabilities", () => {
  test.each([tokenLogProbsOperator, tokenLogProbsGradientOperator])(
    "refuse a vocabulary that is no multiple of 16",
    (make) => {
      for (const width of [0, 8, 24, -16, 16.5])
        expect(() => make({ rows: 1, width })).toThrow(
          new RangeError(`this kernel needs a vocabulary that is a multiple of 16, got ${width}`),
        );
    },
  );
});

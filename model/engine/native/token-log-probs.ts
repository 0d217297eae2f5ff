/**
 * Kernels of the log-probability of one token per row and of the row's entropy, and of their gradient (policy/ops.ts has the
 * definitions). They keep no probabilities: the gradient computes them again from two numbers of each row.
 *
 * A target outside the vocabulary has the log-probability NaN. For such a target the kernels read and write no place outside a row.
 *
 * M rows of V logits. V is a multiple of 16.
 */
import { at, atIndex } from "./assembler.ts";
import { exponential, exponentialTable } from "./exponential.ts";
import { checkMultiple, FLOAT_BYTES } from "./kernel.ts";
import { logarithm, logarithmTable } from "./logarithm.ts";
import type { MachineCodeOperator } from "./operator.ts";
import { R8, R9, R10, R11, RAX, RBX, RDI, RDX, RSI } from "./registers.ts";
import { eachVector, type RowsShape } from "./rows.ts";

/** Vectors that the exponential and the logarithm overwrite. */
const SPARE = [12, 13, 14] as const;

/** Floats of a row of statistics: the largest logit, and ln Σ e^(logit - largest). */
const STATISTICS = 2;

/** Inputs: logits, targets (M). Outputs: the log-probability and the entropy of each row, (M, 2); its statistics, (M, 2). */
export function tokenLogProbsOperator({ rows, width }: RowsShape): MachineCodeOperator {
  checkMultiple("vocabulary", width, 16);
  return {
    inputs: ["float32", "int32"],
    outputs: [
      [rows, 2],
      [rows, STATISTICS],
    ],
    write(kernel) {
      const { code } = kernel;
      const [logits, targets, pair, statistics, row, target] = [RSI, RDI, RDX, R8, R9, RBX];
      const [x, distance, sum, weighted, largest, logSum] = [0, 1, 2, 3, 4, 5];
      kernel.loadAddresses([logits, targets], [pair, statistics]);
      kernel.loop(rows, 1, () => {
        code.move(row, logits);
        code.loadVector(largest, at(row));
        eachVector(kernel, [row], width, () => code.vector("maximum", largest, largest, at(row)));
        code.reduce("maximum", largest, largest, x);
        code.move(row, logits);
        code.zero(sum);
        code.zero(weighted);
        code.constant(RAX, exponentialTable());
        eachVector(kernel, [row], width, () => {
          for (const vector of [x, distance]) {
            code.loadVector(vector, at(row));
            code.vector("subtract", vector, vector, largest);
          }
          exponential(code, x, RAX, SPARE);
          code.vector("add", sum, sum, x);
          code.multiplyAdd(weighted, x, distance);
        });
        code.reduce("add", sum, sum, x);
        code.reduce("add", weighted, weighted, x);
        // `logarithm` turns NaN into a number. So logSum begins as sum - sum: NaN if the sum is not finite, else 0.
        code.vector("subtract", logSum, sum, sum);
        code.vector("divide", weighted, weighted, sum);
        code.constant(RAX, logarithmTable());
        logarithm(code, sum, RAX, SPARE);
        code.vector("add", logSum, logSum, sum);
        const [isToken, store] = [code.label(), code.label()];
        code.load32(target, at(targets));
        code.compareConstant(target, width);
        code.jumpIf("less", isToken);
        kernel.broadcastNumber(x, Number.NaN);
        code.jump(store);
        code.place(isToken);
        code.broadcast(x, atIndex(logits, target, FLOAT_BYTES));
        code.vector("subtract", x, x, largest);
        code.vector("subtract", x, x, logSum);
        code.place(store);
        code.storeFloat(at(pair), x);
        code.vector("subtract", x, logSum, weighted);
        code.storeFloat(at(pair, FLOAT_BYTES), x);
        code.storeFloat(at(statistics), largest);
        code.storeFloat(at(statistics, FLOAT_BYTES), logSum);
        code.move(logits, row);
        code.addConstant(targets, FLOAT_BYTES);
        code.addConstant(pair, 2 * FLOAT_BYTES);
        code.addConstant(statistics, STATISTICS * FLOAT_BYTES);
      });
    },
  };
}

/**
 * Inputs: logits, targets, both results of `tokenLogProbsOperator`, the gradient of its first result. Output: the gradient of the logits.
 *
 * d logProb = chosen - p;  d entropy = -p (log p + entropy)
 */
export function tokenLogProbsGradientOperator({ rows, width }: RowsShape): MachineCodeOperator {
  checkMultiple("vocabulary", width, 16);
  return {
    inputs: ["float32", "int32", "float32", "float32", "float32"],
    outputs: [[rows, width]],
    write(kernel) {
      const { code } = kernel;
      const [logits, targets, pair, statistics, dPair, dLogits, target, row] = [RSI, RDI, RDX, R8, R9, R10, RBX, R11];
      const [p, factor, result, largest, logSum, entropy, dLogProb, dEntropy] = [0, 1, 2, 3, 4, 5, 6, 7];
      kernel.loadAddresses([logits, targets, pair, statistics, dPair], [dLogits]);
      kernel.loop(rows, 1, () => {
        code.broadcast(largest, at(statistics));
        code.broadcast(logSum, at(statistics, FLOAT_BYTES));
        code.broadcast(entropy, at(pair, FLOAT_BYTES));
        code.broadcast(dLogProb, at(dPair));
        code.broadcast(dEntropy, at(dPair, FLOAT_BYTES));
        code.constant(RAX, exponentialTable());
        code.move(row, dLogits);
        eachVector(kernel, [logits, dLogits], width, () => {
          code.loadVector(p, at(logits));
          code.vector("subtract", p, p, largest);
          // From here to the exponential, p is log p.
          code.vector("subtract", p, p, logSum);
          code.vector("add", factor, p, entropy);
          code.timesPlus(factor, dEntropy, dLogProb);
          exponential(code, p, RAX, SPARE);
          code.zero(result);
          code.negativeMultiplyAdd(result, p, factor);
          code.storeVector(at(dLogits), result);
        });
        const next = code.label();
        code.load32(target, at(targets));
        code.compareConstant(target, width);
        code.jumpIf("atLeast", next);
        code.broadcast(p, atIndex(row, target, FLOAT_BYTES));
        code.vector("add", p, p, dLogProb);
        code.storeFloat(atIndex(row, target, FLOAT_BYTES), p);
        code.place(next);
        code.addConstant(targets, FLOAT_BYTES);
        for (const register of [pair, dPair]) code.addConstant(register, 2 * FLOAT_BYTES);
        code.addConstant(statistics, STATISTICS * FLOAT_BYTES);
      });
    },
  };
}

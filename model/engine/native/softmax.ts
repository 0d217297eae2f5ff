/** The softmax of one query's scores, which the kernels of attention share. */
import { type Address, at } from "./assembler.ts";
import { exponential, exponentialTable } from "./exponential.ts";
import { FLOAT_BYTES, type Kernel } from "./kernel.ts";
import { R10, RAX, RCX, RSI } from "./registers.ts";

/** Score of a token that the query does not see. */
export const HIDDEN_SCORE = -1e30;

/** Vector registers of the largest score and of 1 / the sum of exponentials. All floats of a register are equal. */
export const [LARGEST, INVERSE_SUM] = [9, 11] as const;

/**
 * Replaces each score by e^(score - largest). Leaves the results `LARGEST` and `INVERSE_SUM` in their registers. Overwrites rax, rcx, rsi, and
 * the vectors 0 and 9 to 14.
 *
 * @param first  address of the scores. r10 is their number, divided by `unit`
 * @param block  number of scores that one pass of a loop takes: a multiple of the width of a vector, and of `unit`
 */
export function softmax(kernel: Kernel, first: Address, block: number, unit: number): void {
  const { code } = kernel;
  const each = (body: (scores: Address) => void) => {
    code.addressOf(RSI, first);
    code.move(RCX, R10);
    const again = code.label();
    code.place(again);
    for (let i = 0; i < block; i += code.vectorWidth) body(at(RSI, FLOAT_BYTES * i));
    code.addConstant(RSI, FLOAT_BYTES * block);
    code.addConstant(RCX, -block / unit);
    code.jumpIf("more", again);
  };
  const [x, sum] = [0, 10];
  code.loadVector(LARGEST, first);
  each((scores) => code.vector("maximum", LARGEST, LARGEST, scores));
  code.reduce("maximum", LARGEST, LARGEST, x);
  code.constant(RAX, exponentialTable());
  code.zero(sum);
  each((scores) => {
    code.loadVector(x, scores);
    code.vector("subtract", x, x, LARGEST);
    exponential(code, x, RAX, [12, 13, 14]);
    code.vector("add", sum, sum, x);
    code.storeVector(scores, x);
  });
  code.reduce("add", sum, sum, x);
  kernel.broadcastNumber(INVERSE_SUM, 1);
  code.vector("divide", INVERSE_SUM, INVERSE_SUM, sum);
}

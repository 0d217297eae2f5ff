/**
 * e^x of a vector, for kernels: e^x = 2^n · e^r with n = round(x / ln 2), and e^r by a polynomial. ln 2 has two parts, so that r is exact.
 * Source: Cephes, expf (netlib.org/cephes), whose relative error is below 2e-7.
 */
import { ptr } from "bun:ffi";
import { type Assembler, at } from "./assembler.ts";

/** x is kept in these bounds, where e^x is a normal number. */
const [LEAST, MOST] = [-87.3, 88.3];
const POLYNOMIAL = [1.98756915e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1];
const { buffer: TABLE } = Float32Array.of(LEAST, Math.LOG2E, 0.693359375, -2.1219444e-4, 1, MOST, ...POLYNOMIAL);

/** Address of the numbers that `exponential` reads. (A constant would not keep them in memory; this function does.) */
export const exponentialTable = (): number => ptr(TABLE);

/** `x` = e^x. @param table  register that holds `exponentialTable()`. @param spare  vector registers that are overwritten */
export function exponential(code: Assembler, x: number, table: number, spare: readonly [number, number, number]): void {
  const [n, y, number] = spare;
  const numberAt = (index: number) => {
    code.broadcast(number, at(table, 4 * index));
    return number;
  };
  // x is the second operand, which both instructions return where either is NaN: e^NaN is NaN.
  code.vector("maximum", x, numberAt(0), x);
  code.vector("minimum", x, numberAt(5), x);
  code.vector("multiply", n, x, numberAt(1));
  code.roundVector(n, n);
  code.negativeMultiplyAdd(x, n, numberAt(2));
  code.negativeMultiplyAdd(x, n, numberAt(3));
  code.broadcast(y, at(table, 4 * 6));
  for (let i = 1; i < POLYNOMIAL.length; i++) code.timesPlus(y, x, numberAt(6 + i));
  // e^r = 1 + r + r² · y
  code.vector("multiply", number, x, x);
  code.timesPlus(y, number, x);
  code.vector("add", x, y, numberAt(4));
  code.toInts(n, n);
  code.shiftInts(n, n, 23);
  code.vector("addInts", x, x, n);
}

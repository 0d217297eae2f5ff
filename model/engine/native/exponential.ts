/**
 * e^x of a vector, for kernels: e^x = 2^n · e^r with n = round(x / ln 2), and e^r by a polynomial. ln 2 has two parts, so that r is exact.
 * Source: Cephes, expf (netlib.org/cephes), whose relative error is below 2e-7.
 */
import { ptr } from "bun:ffi";
import { type Assembler, at } from "./assembler.ts";

/** `exponential` keeps x within these bounds, where e^x is a normal number. */
const [LEAST, MOST] = [-87.3, 88.3];
/** The two parts of ln 2. */
export const [LN2_HIGH, LN2_LOW] = [0.693359375, -2.1219444e-4];
/** Coefficients of y in e^r = 1 + r + r² · y, from that of r⁵ to that of 1. */
const POLYNOMIAL = [1.98756915e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1];
const { buffer: TABLE } = Float32Array.of(LEAST, Math.LOG2E, LN2_HIGH, LN2_LOW, 1, MOST, ...POLYNOMIAL);
/** Places in the table. */
const PLACE = { least: 0, log2e: 1, ln2High: 2, ln2Low: 3, one: 4, most: 5, polynomial: 6 } as const;
/** Bits of a float's fraction, below its exponent. */
export const FRACTION_BITS = 23;

/** Address of the numbers that `exponential` reads. This is a function, because a function keeps `TABLE` alive; a constant would not. */
export const exponentialTable = (): number => ptr(TABLE);

/** Vector `x` = e^x. @param table  register that holds `exponentialTable()`. @param spare  vectors that are overwritten */
export function exponential(code: Assembler, x: number, table: number, spare: readonly [number, number, number]): void {
  const [n, y, scratch] = spare;
  const number = (place: number) => at(table, 4 * place);
  // Both instructions return their second operand if an operand is NaN. The second operand is x, so e^NaN is NaN.
  for (const [operation, bound] of [
    ["maximum", PLACE.least],
    ["minimum", PLACE.most],
  ] as const) {
    code.broadcast(scratch, number(bound));
    code.vector(operation, x, scratch, x);
  }
  code.withNumber("multiply", n, x, number(PLACE.log2e), scratch);
  code.roundVector(n, n);
  // From here on x is r.
  code.withNumber("negativeMultiplyAdd", x, n, number(PLACE.ln2High), scratch);
  code.withNumber("negativeMultiplyAdd", x, n, number(PLACE.ln2Low), scratch);
  code.broadcast(y, number(PLACE.polynomial));
  for (let i = 1; i < POLYNOMIAL.length; i++) code.withNumber("timesPlus", y, x, number(PLACE.polynomial + i), scratch);
  // e^r = 1 + r + r² · y
  code.vector("multiply", scratch, x, x);
  code.timesPlus(y, scratch, x);
  code.withNumber("add", x, y, number(PLACE.one), scratch);
  // 2^n · e^r: adds n to the exponent of each float.
  code.toInts(n, n);
  code.shiftInts(n, n, FRACTION_BITS);
  code.vector("addInts", x, x, n);
}

/**
 * ln x of a vector of numbers that are at least 1, for kernels: x = 2^n · m with m from √½ to √2, and ln m by a polynomial.
 * Source: Cephes, logf (netlib.org/cephes), whose relative error is below 2e-7.
 */
import { ptr } from "bun:ffi";
import { type Assembler, at } from "./assembler.ts";
import { FRACTION_BITS, LN2_HIGH, LN2_LOW } from "./exponential.ts";
import { floatBits } from "./kernel.ts";

/** Coefficients of y in ln(1 + r) = r - r² / 2 + r³ · y, from that of r⁸ to that of 1. */
const POLYNOMIAL = [
  7.0376836292e-2, -1.151461031e-1, 1.167699874e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
  2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
];
const { buffer: TABLE } = Float32Array.of(0, 0, 0, -1, -0.5, LN2_HIGH, LN2_LOW, ...POLYNOMIAL);
/** Places in the table. */
const PLACE = { minusRoot: 0, fraction: 1, root: 2, minusOne: 3, minusHalf: 4, ln2High: 5, ln2Low: 6, polynomial: 7 };
const ROOT_BITS = floatBits(Math.SQRT1_2);
new Int32Array(TABLE).set([-ROOT_BITS, 2 ** FRACTION_BITS - 1, ROOT_BITS]);

/** Address of the numbers that `logarithm` reads. */
export const logarithmTable = (): number => ptr(TABLE);

/** Vector `x` = ln x, for x of at least 1. @param table  register that holds `logarithmTable()`. @param spare  vectors that are overwritten */
export function logarithm(code: Assembler, x: number, table: number, spare: readonly [number, number, number]): void {
  const [n, y, scratch] = spare;
  const number = (place: number) => at(table, 4 * place);
  // The exponent of x / √½ is n; the fraction of x / √½, times √½, is m.
  code.broadcast(scratch, number(PLACE.minusRoot));
  code.vector("addInts", x, x, scratch);
  code.shiftIntsRight(n, x, FRACTION_BITS);
  code.fromInts(n, n);
  code.broadcast(scratch, number(PLACE.fraction));
  code.vector("and", x, x, scratch);
  code.broadcast(scratch, number(PLACE.root));
  code.vector("addInts", x, x, scratch);
  // From here on x is r = m - 1.
  code.withNumber("add", x, x, number(PLACE.minusOne), scratch);
  code.broadcast(y, number(PLACE.polynomial));
  for (let i = 1; i < POLYNOMIAL.length; i++) code.withNumber("timesPlus", y, x, number(PLACE.polynomial + i), scratch);
  // ln x = r + (r³ · y + n · low - r² / 2) + n · high, where `low` and `high` are the two parts of ln 2.
  code.vector("multiply", y, y, x);
  code.withNumber("add", y, y, number(PLACE.minusHalf), scratch);
  code.vector("multiply", scratch, x, x);
  code.vector("multiply", y, y, scratch);
  code.broadcast(scratch, number(PLACE.ln2Low));
  code.multiplyAdd(y, n, scratch);
  code.vector("add", x, x, y);
  code.broadcast(scratch, number(PLACE.ln2High));
  code.multiplyAdd(x, n, scratch);
}

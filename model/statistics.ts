/** Mean and spread of plain numbers, with sums in float64. */

/** @throws {RangeError} if there are no values. */
export function mean(values: ArrayLike<number>): number {
  if (values.length === 0) throw new RangeError("a mean needs at least 1 value, got 0");
  let sum = 0;
  for (let i = 0; i < values.length; i++) sum += values[i]!;
  return sum / values.length;
}

/** True if all values are equal. `variance` then returns exactly 0, although the computed mean may be rounded. */
export function isConstant(values: ArrayLike<number>): boolean {
  for (let i = 1; i < values.length; i++) if (values[i] !== values[0]) return false;
  return true;
}

/** Two numbers that differ by at most this are equal except for rounding. Sums of the same rewards in two orders differ by about 1e-16. */
export const ROUNDING = 1e-10;

/** True if all values are equal except for rounding. */
export function isConstantSum(values: readonly number[]): boolean {
  return values.every((value) => Math.abs(value - values[0]!) <= ROUNDING);
}

/** `sum((x - mean)^2) / (n - correction)`: the sample variance (as torch.var) with correction 1, the population variance with correction 0. */
export function variance(values: ArrayLike<number>, correction: 0 | 1 = 1): number {
  if (values.length <= correction) {
    throw new RangeError(
      `a variance with divisor n - ${correction} needs more than ${correction} values, got ${values.length}`,
    );
  }
  if (isConstant(values)) return 0;
  const center = mean(values);
  let sum = 0;
  for (let i = 0; i < values.length; i++) sum += (values[i]! - center) ** 2;
  return sum / (values.length - correction);
}

/** Square root of `variance`, in the unit of the values. */
export function deviation(values: ArrayLike<number>, correction: 0 | 1 = 1): number {
  return Math.sqrt(variance(values, correction));
}

/** The positions of each key. The keys are in the order of their first appearance. */
export function positionsBy<K>(keys: ArrayLike<K>): Map<K, number[]> {
  return Map.groupBy(Array.from(keys).keys(), (i) => keys[i]!);
}

/** The middle value, or the mean of the two middle values. @param values  at least one */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}

/** 95 % intervals of a mean over a few runs, and of a share. */
import { deviation, mean as meanValue } from "./statistics.ts";

export interface Mean {
  readonly n: number;
  readonly mean: number;
  /** Sample standard deviation (divisor n - 1); null for one value. */
  readonly std: number | null;
  /** Ends of the 95 % interval; null for one value. */
  readonly low: number | null;
  readonly high: number | null;
}

/**
 * Mean with Student's interval, mean ± t · std / √n. The values must be independent and approximately normally distributed.
 *
 * @throws {RangeError} if there are no values
 */
export function meanOf(values: readonly number[]): Mean {
  const n = values.length;
  const mean = meanValue(values);
  if (n === 1) return { n, mean, std: null, low: null, high: null };
  const std = deviation(values);
  const half = (studentT(n - 1) * std) / Math.sqrt(n);
  return { n, mean, std, low: mean - half, high: mean + half };
}

/** The t with P(-t < T < t) = .95 for Student's T. @param degrees  degrees of freedom, 1 or more */
export function studentT(degrees: number): number {
  // P(-1e3 < T < 1e3) is above .999 for any degrees.
  let [low, high] = [0, 1e3];
  while (high - low > 1e-9) {
    const middle = (low + high) / 2;
    if (shareWithin(middle, degrees) < 0.95) low = middle;
    else high = middle;
  }
  return high;
}

/** P(-t < T < t). Source: Abramowitz and Stegun, 26.7.3 and 26.7.4. */
function shareWithin(t: number, degrees: number): number {
  const angle = Math.atan(t / Math.sqrt(degrees));
  const square = Math.cos(angle) ** 2;
  const isOdd = degrees % 2 === 1;
  let term = isOdd ? Math.cos(angle) : 1;
  let sum = degrees === 1 ? 0 : term;
  for (let k = isOdd ? 3 : 2; k < degrees; k += 2) {
    term *= square * ((k - 1) / k);
    sum += term;
  }
  return isOdd ? (2 / Math.PI) * (angle + Math.sin(angle) * sum) : Math.sin(angle) * sum;
}

/**
 * The exact 95 % interval of a share, from the numbers of hits and of tries.
 * Source: C. Clopper and E. Pearson, Biometrika 26 (1934).
 *
 * @throws {RangeError} unless 0 ≤ hits ≤ tries and tries > 0
 */
export function shareOf(hits: number, tries: number): { readonly low: number; readonly high: number } {
  if (!(hits >= 0 && hits <= tries && tries > 0))
    throw new RangeError(
      `cannot compute a share of ${hits} hits in ${tries} tries: 0 <= hits <= tries and tries > 0 must hold`,
    );
  // Both functions rise with the share.
  const low = hits === 0 ? 0 : rootOf((share) => 1 - atMost(hits - 1, tries, share) - 0.025);
  const high = hits === tries ? 1 : rootOf((share) => 0.025 - atMost(hits, tries, share));
  return { low, high };
}

/** P(X ≤ hits) of a binomial X. */
function atMost(hits: number, tries: number, share: number): number {
  let sum = 0;
  let logWays = 0;
  for (let k = 0; k <= hits; k++) {
    if (k > 0) logWays += Math.log((tries - k + 1) / k);
    sum += Math.exp(logWays + k * Math.log(share) + (tries - k) * Math.log1p(-share));
  }
  return sum;
}

/** The x in (0, 1) at which a rising function is 0. */
function rootOf(rising: (x: number) => number): number {
  let [low, high] = [0, 1];
  while (high - low > 1e-12) {
    const middle = (low + high) / 2;
    if (rising(middle) < 0) low = middle;
    else high = middle;
  }
  return (low + high) / 2;
}

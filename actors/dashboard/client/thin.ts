/**
 * Thins a long curve to what a chart can show. Runs on the server and in the browser.
 *
 * `thin` divides the steps into stretches of equal width, and keeps the first, last, lowest and highest point of each stretch. So the
 * curve keeps its spikes, and has no point that the run did not record.
 * Source: Jugel et al. 2014, "M4: A Visualization-Oriented Time Series Data Aggregation".
 */

/**
 * `ends` of `thin` for curves of unequal lengths. With these ends the stretches of two curves are equal, or each stretch of one curve is a part
 * of a stretch of the other curve. So the thinned curves have common steps, which a mean needs.
 */
export const commonEnds = (last: number): [number, number] => [0, 2 ** Math.ceil(Math.log2(last + 1))];

/**
 * @param steps   ascending
 * @param values  one value for each step
 * @param most    maximum number of points to keep; 4 or more
 * @param ends    first and last step of the range that the stretches divide; default: the first and last of `steps`
 * @returns the ascending indices of the kept points; null if the curve is short enough
 */
export function thin(
  steps: readonly number[],
  values: readonly number[],
  most: number,
  ends?: readonly [number, number],
): number[] | null {
  const count = steps.length;
  if (count <= most) return null;
  const stretches = Math.floor(most / 4);
  const [from, to] = ends ?? [steps[0]!, steps[count - 1]!];
  const width = (to - from) / stretches || 1;
  const kept: number[] = [];
  let at = 0;
  for (let stretch = 0; stretch < stretches && at < count; stretch++) {
    // The last stretch ends at the end of the curve, whatever the rounding gives.
    const end = stretch === stretches - 1 ? Number.POSITIVE_INFINITY : from + (stretch + 1) * width;
    const first = at;
    let [low, high] = [at, at];
    while (at < count && steps[at]! < end) {
      if (values[at]! < values[low]!) low = at;
      if (values[at]! > values[high]!) high = at;
      at++;
    }
    if (at === first) continue;
    const inOrder = low < high ? [first, low, high, at - 1] : [first, high, low, at - 1];
    for (const index of inOrder) if (kept.at(-1) !== index) kept.push(index);
  }
  return kept;
}

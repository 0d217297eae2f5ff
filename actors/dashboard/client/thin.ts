/**
 * Thins a long curve to what a chart can show. Runs on the server and in the browser.
 *
 * It divides the steps into stretches of equal width, and keeps the first, last, lowest and highest point of each: no spike is lost,
 * and no point is invented. Source: Jugel et al. 2014, "M4: A Visualization-Oriented Time Series Data Aggregation".
 */

/**
 * @param steps   ascending
 * @param values  one for each step
 * @param most    points to keep at most; at least 4
 * @returns the ascending indices of the kept points; null if the curve is short enough
 */
export function thin(steps: readonly number[], values: readonly number[], most: number): number[] | null {
  const count = steps.length;
  if (count <= most) return null;
  const stretches = Math.floor(most / 4);
  const [from, to] = [steps[0]!, steps[count - 1]!];
  // Powers of two, from 0 on: curves of unequal lengths keep common steps, over which a mean of them can be drawn.
  let width = 2 ** Math.floor(Math.log2((to - from) / stretches)) || 1;
  while (Math.floor(to / width) - Math.floor(from / width) >= stretches) width *= 2;
  const kept: number[] = [];
  for (let at = 0; at < count; ) {
    const stretch = Math.floor(steps[at]! / width);
    const first = at;
    let [low, high] = [at, at];
    while (at < count && Math.floor(steps[at]! / width) === stretch) {
      if (values[at]! < values[low]!) low = at;
      if (values[at]! > values[high]!) high = at;
      at++;
    }
    const inOrder = low < high ? [first, low, high, at - 1] : [first, high, low, at - 1];
    for (const index of inOrder) if (kept.at(-1) !== index) kept.push(index);
  }
  return kept;
}

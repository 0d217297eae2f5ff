/** Values of one metric by step. `align` puts several curves on one axis for uPlot. Runs in the browser and on the server. */
import type { News } from "../answers.ts";

/** The values of one metric, by ascending step. A second value for a step replaces the first. */
export class Curve {
  readonly steps: number[];
  readonly values: number[];

  constructor(steps: readonly number[] = [], values: readonly number[] = []) {
    this.steps = [...steps];
    this.values = [...values];
  }

  set(step: number, value: number): void {
    const at = this.#firstFrom(step);
    const known = this.steps[at] === step ? 1 : 0;
    this.steps.splice(at, known, step);
    this.values.splice(at, known, value);
  }

  /** Drops all values at steps after `step`. @returns whether there were such values */
  end(step: number): boolean {
    const kept = this.#firstFrom(step + 1);
    this.values.length = kept;
    return this.steps.splice(kept).length > 0;
  }

  get last(): number | null {
    return this.values.at(-1) ?? null;
  }

  /** The value at `step`, or else at the last step before `step`; null if there is neither. */
  at(step: number): number | null {
    const index = this.#firstFrom(step);
    return (this.steps[index] === step ? this.values[index] : this.values[index - 1]) ?? null;
  }

  /** The curve with changed values. Calls `each` in the order of the steps. */
  map(each: (value: number) => number): Curve {
    const values = this.values.map((value) => each(value));
    return new Curve(this.steps, values);
  }

  /** The curve over another axis. @param x  the place of a step on that axis; null leaves the point out */
  over(x: (step: number) => number | null): Curve {
    const points = this.steps.flatMap((step, i) => {
      const at = x(step);
      return at === null ? [] : [{ at, value: this.values[i]! }];
    });
    // Sort by place: after a roll-back, a repeated update is later in time than old values at higher steps.
    points.sort((a, b) => a.at - b.at);
    const values = points.map(({ value }) => value);
    return new Curve(
      points.map(({ at }) => at),
      values,
    );
  }

  /** Index of the first step that is at least `step`. Checks the end first, because new steps are at the end. */
  #firstFrom(step: number): number {
    let [low, high] = [0, this.steps.length];
    if (high === 0 || this.steps[high - 1]! < step) return high;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.steps[middle]! < step) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

/** Adds points as the run wrote them. Drops values from before a roll-back or a resume. @returns the names of the changed metrics */
export function takePoints(curves: ReadonlyMap<string, Curve>, points: News["points"]): Set<string> {
  const changed = new Set<string>();
  for (const [name, , step, value] of points) {
    curves.get(name)?.set(step, value);
    changed.add(name);
    if (name !== "total/updates" && name !== "health/rollbacks") continue;
    for (const [other, curve] of curves) {
      // A step of the warm start is no update.
      if (!other.startsWith("warm/") && curve.end(step)) changed.add(other);
    }
  }
  return changed;
}

/** Exponential moving average, corrected for its start at 0. @param weight  of the earlier values: from 0 (no smoothing) to below 1 */
export function smoothed(curve: Curve, weight: number): Curve {
  if (weight === 0) return curve;
  let mean = 0;
  let known = 0;
  return curve.map((value) => {
    mean = weight * mean + (1 - weight) * value;
    known = weight * known + (1 - weight);
    return mean / known;
  });
}

/** Steps ascend, with one value each. */
export interface Points {
  readonly steps: readonly number[];
  readonly values: readonly number[];
}

export interface Band {
  readonly steps: readonly number[];
  readonly means: readonly number[];
  readonly lows: readonly number[];
  readonly highs: readonly number[];
}

/** Mean, lowest and highest value at the steps that all curves have: at other steps the mean would jump. Null without such a step. */
export function bandOf(curves: readonly Points[]): Band | null {
  const known = curves.map(({ steps, values }) => new Map(steps.map((step, i) => [step, values[i]!])));
  const steps = curves[0]?.steps.filter((step) => known.every((values) => values.has(step))) ?? [];
  if (steps.length === 0) return null;
  const rows = steps.map((step) => known.map((values) => values.get(step)!));
  return {
    steps,
    means: rows.map((row) => row.reduce((sum, value) => sum + value, 0) / row.length),
    lows: rows.map((row) => Math.min(...row)),
    highs: rows.map((row) => Math.max(...row)),
  };
}

/** One row with the steps of all curves, and a row of values for each curve. A value is null at a step that the curve lacks. */
export function align(curves: readonly Curve[]): [number[], ...(number | null)[][]] {
  const steps = [...new Set(curves.flatMap((curve) => curve.steps))].sort((a, b) => a - b);
  const indexOf = new Map(steps.map((step, index) => [step, index]));
  const rows = curves.map((curve) => {
    const row = new Array<number | null>(steps.length).fill(null);
    for (const [i, step] of curve.steps.entries()) row[indexOf.get(step)!] = curve.values[i]!;
    return row;
  });
  return [steps, ...rows];
}

/**
 * `ends` of `thin` for curves of unequal lengths. With these ends the stretches of two curves are equal, or each stretch of one curve is a part
 * of a stretch of the other curve. So the thinned curves have common steps, which a mean needs.
 */
export const commonEnds = (last: number): [number, number] => [0, 2 ** Math.ceil(Math.log2(last + 1))];

/**
 * Thins a long curve to what a chart can show: divides the steps into stretches of equal width, and keeps the first, last, lowest and highest
 * point of each stretch. So the curve keeps its spikes, and has no point that the run did not record.
 *
 * Source: Jugel et al. 2014, "M4: A Visualization-Oriented Time Series Data Aggregation".
 *
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
    // The last stretch takes all remaining points, so that rounding loses none.
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

/**
 * One metric's values by step, and several of them on one axis, as uPlot wants its data. Runs in the browser and in tests.
 */

/** Steps ascend. A second value for a step replaces the first. */
export class Curve {
  readonly steps: number[] = [];
  readonly values: number[] = [];

  set(step: number, value: number): void {
    const at = this.#firstFrom(step);
    const known = this.steps[at] === step ? 1 : 0;
    this.steps.splice(at, known, step);
    this.values.splice(at, known, value);
  }

  get last(): number | null {
    return this.values.at(-1) ?? null;
  }

  /** Index of the first step that is at least `step`. New steps come last, so look there first. */
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

/** One row of steps that any of the curves has, and a row of values for each curve; null where it has none. */
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

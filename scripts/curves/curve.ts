/**
 * The arithmetic of a chart: means over seeds, thinning, axes. Knows no runs and no SVG.
 */
import type { Unit } from "../../actors/metrics/metric.ts";

/** Steps ascend, with a value each. */
export interface Curve {
  readonly steps: readonly number[];
  readonly values: readonly number[];
}

export type Pixel = readonly [x: number, y: number];

/**
 * The mean at every step that all of the curves have: a mean over fewer seeds from some step on would jump there, and
 * the jump would look like learning. Empty if they share no step.
 */
export function meanCurve(curves: readonly Curve[]): Curve {
  const sums = new Map<number, { sum: number; count: number }>();
  for (const { steps, values } of curves) {
    for (const [i, step] of steps.entries()) {
      const { sum, count } = sums.get(step) ?? { sum: 0, count: 0 };
      sums.set(step, { sum: sum + values[i]!, count: count + 1 });
    }
  }
  const shared = [...sums].filter(([, { count }]) => count === curves.length).sort(([a], [b]) => a - b);
  return { steps: shared.map(([step]) => step), values: shared.map(([, { sum }]) => sum / curves.length) };
}

/**
 * Of the points in one column of pixels keep the first, the lowest, the highest and the last, so that the drawn line
 * covers what the whole line would: no spike is lost. Points ascend in x.
 */
export function thin(points: readonly Pixel[]): Pixel[] {
  const kept: Pixel[] = [];
  for (let from = 0, to = 0; from < points.length; from = to) {
    const column = Math.floor(points[from]![0]);
    let [low, high] = [from, from];
    for (to = from; to < points.length && Math.floor(points[to]![0]) === column; to++) {
      if (points[to]![1] < points[low]![1]) low = to;
      if (points[to]![1] > points[high]![1]) high = to;
    }
    for (const index of [...new Set([from, low, high, to - 1])].sort((a, b) => a - b)) kept.push(points[index]!);
  }
  return kept;
}

export interface Axis {
  readonly low: number;
  readonly high: number;
  readonly ticks: readonly { readonly value: number; readonly text: string }[];
}

/** Kept free above and below the values, as a share of the axis. */
const AIR = 0.05;

/** An axis that holds all of the values. Zero is on it, unless the values are far from it. */
export function valueAxis(values: readonly number[], unit: Unit, tickCountMax: number): Axis {
  const [least, most] = extent(values);
  let [low, high] = [least, most];
  if (unit === "share" || (low > 0 && low < high / 2)) low = Math.min(low, 0);
  if (high < 0 && high > low / 2) high = 0;
  if (low === high) [low, high] = low === 0 ? [0, 1] : [Math.min(0, 2 * low), Math.max(0, 2 * low)];
  const air = AIR * (high - low);
  if (low !== 0) low -= air;
  if (high !== 0) high = unit === "share" ? Math.max(most, Math.min(1, high + air)) : high + air;
  return axis(low, high, niceStep(high - low, tickCountMax), unit);
}

/** An axis from 0 to the last step; ticks are whole. */
export function stepAxis(last: number, tickCountMax: number): Axis {
  const high = Math.max(last, 1);
  return axis(0, high, Math.max(1, niceStep(high, tickCountMax)), "updates");
}

function axis(low: number, high: number, step: number, unit: Unit): Axis {
  const text = tickText(unit, step, Math.max(Math.abs(low), Math.abs(high)));
  const [first, last] = [Math.ceil(low / step - 1e-9), Math.floor(high / step + 1e-9)];
  const ticks = Array.from({ length: last - first + 1 }, (_, i) => {
    // Of whole numbers, so that 3 × 0.1 is written and placed as 0.3.
    const value = step < 1 ? (first + i) / Math.round(1 / step) : (first + i) * step;
    return { value, text: text(value) };
  });
  return { low, high, ticks };
}

function extent(values: readonly number[]): [number, number] {
  let [low, high] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  for (const value of values) [low, high] = [Math.min(low, value), Math.max(high, value)];
  return [low, high];
}

/** The smallest of 1, 2 or 5 times a power of ten that makes at most `countMax` ticks in such a range. */
function niceStep(range: number, countMax: number): number {
  const least = range / (countMax - 1);
  const power = 10 ** Math.floor(Math.log10(least));
  return power * ([1, 2, 5].find((factor) => factor * power >= least * (1 - 1e-9)) ?? 10);
}

/** How values of one axis are written: all with the decimals that its step needs. */
function tickText(unit: Unit, step: number, largest: number): (value: number) => string {
  const decimals = (of: number) => Math.max(0, -Math.floor(Math.log10(of) + 1e-9));
  if (unit === "share") return (value) => `${minus((100 * value).toFixed(decimals(100 * step)))} %`;
  if (largest >= 10_000) {
    const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 2 });
    return (value) => minus(compact.format(value));
  }
  if (largest < 1e-3) return (value) => (value === 0 ? "0" : minus(value.toExponential()));
  return (value) => minus(value.toFixed(decimals(step)));
}

const minus = (text: string) => text.replace("-", "−");

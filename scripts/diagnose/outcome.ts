/** What became of a run, by its success alone. The detectors are judged against it. */
import { mean } from "../../model/statistics.ts";

export type Outcome =
  | {
      /** Success ends below half of its peak. */
      readonly kind: "collapsed";
      /** Index of the first update with smoothed success below half of the peak so far. */
      readonly onset: number;
    }
  /** Success never fell below half of its peak, and ends near that peak. */
  | { readonly kind: "healthy" }
  /** Neither, or a run without updates. Such runs count for no rate. */
  | { readonly kind: "unclear" };

/**
 * Success is averaged over this many updates on each side of an update. The success of an update of eight boards varies by .12 by
 * chance, and a peak is a maximum: with means of five updates the peak of a policy that stays at .4 is .55.
 */
const REACH = 10;
/** The end of a run is this many updates. */
const LAST = 20;
/** A smaller fall from the peak may be chance. */
const FALL_MIN = 0.1;
/** A healthy run ends with this share of its peak or more. */
const HEALTHY_SHARE = 0.8;

/** @param success  share of an update's episodes that were solved, in the order of the updates */
export function outcomeOf(success: readonly number[]): Outcome {
  if (success.length === 0) return { kind: "unclear" };
  const smooth = success.map((_, i) => mean(success.slice(Math.max(0, i - REACH), i + REACH + 1)));
  const peak = Math.max(...smooth);
  // No update has changed the policy of the first, and a run may fall right after it.
  let best = success[0]!;
  let onset: number | null = null;
  const fell = (value: number) => value < best / 2 && best - value >= FALL_MIN;
  for (const [i, value] of smooth.entries()) {
    best = Math.max(best, value);
    if (onset === null && fell(value)) onset = i;
  }
  const end = mean(success.slice(-LAST));
  if (onset === null) return { kind: end >= HEALTHY_SHARE * peak ? "healthy" : "unclear" };
  return fell(end) ? { kind: "collapsed", onset } : { kind: "unclear" };
}

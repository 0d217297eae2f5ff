/** Memory of the Echo Trap detector: for each number its start, its moving average and its best. */
import type { TrapRule } from "./rule.ts";

/** Measurements of one update. An absent number gives no signs. */
export interface TrapPoint {
  /** Share of the played episodes that succeeded. */
  readonly success?: number;
  /** Mean in-group std of the raw reward, before filtering. */
  readonly rewardStd?: number;
  /** Share of groups whose episodes all have the same reward. */
  readonly zeroStdShare?: number;
  /** Mean token entropy in nats. */
  readonly entropy?: number;
  /** Global norm of the policy's gradient, before clipping. */
  readonly gradNorm?: number;
  /** Share of repeated n-grams in what the policy wrote. */
  readonly repetition?: number;
  /** Mutual information of prompt and reasoning, in nats. */
  readonly mutualInformation?: number;
  /** Share of turns with a well-formed reply. */
  readonly validity?: number;
  /** Mean log-probability of the written tokens of solved episodes, in nats. */
  readonly likelihood?: number;
}

/** One number over time. */
export interface Track {
  readonly count: number;
  /** Mean of the first `startUpdatesOf` values. */
  readonly start: number;
  /** Exponential moving average. */
  readonly smooth: number;
  /** Highest smoothed value since the start, or the start itself if it is higher. */
  readonly best: number;
}

const TRACKED = [
  "success",
  "rewardStd",
  "zeroStdShare",
  "entropy",
  "repetition",
  "mutualInformation",
  "validity",
  "likelihood",
] as const satisfies (keyof TrapPoint)[];

export type Tracks = Readonly<Partial<Record<(typeof TRACKED)[number], Track>>> & {
  /** Gradient norms of the last updates, newest last. */
  readonly gradNorms: readonly number[];
};

export interface TrapState {
  readonly tracks: Tracks;
  /** For each sign, the number of updates in a row that measured the sign and had it. */
  readonly streaks: Readonly<Record<string, number>>;
  /** True if the task counted as solved at the last update. */
  readonly solved: boolean;
}

export const TRAP_START: TrapState = { tracks: { gradNorms: [] }, streaks: {}, solved: false };

/**
 * Number of updates in the start of a measurement. During its start a measurement gives no sign. For success, validity and repetition the
 * start is the first update alone: the episodes of the first update come from the policy before any update, and success may fall right
 * after the first update.
 */
export const startUpdatesOf = (name: keyof TrapPoint, { startUpdates }: TrapRule): number =>
  name === "success" || name === "validity" || name === "repetition" ? 1 : startUpdates;

export function observe(before: Tracks, point: TrapPoint, rule: TrapRule): Tracks {
  const tracks: Partial<Record<(typeof TRACKED)[number], Track>> = {};
  for (const name of TRACKED) {
    const value = point[name];
    const known = before[name];
    if (value !== undefined) tracks[name] = extend(known, value, rule.smoothing, startUpdatesOf(name, rule));
    else if (known) tracks[name] = known;
  }
  const { gradNorm } = point;
  const norms = gradNorm === undefined ? before.gradNorms : [...before.gradNorms, gradNorm];
  // Keeps the newest norm and max(window, start) earlier norms. Their number tells `gradientSpike` (signs.ts) whether the start is over.
  return { ...tracks, gradNorms: norms.slice(-(Math.max(rule.gradientWindow, rule.startUpdates) + 1)) };
}

function extend(track: Track | undefined, value: number, smoothing: number, startUpdates: number): Track {
  if (!Number.isFinite(value))
    throw new RangeError(`the Echo Trap detector needs finite numbers, got ${value}; leave unknown numbers out`);
  if (track === undefined) return { count: 1, start: value, smooth: value, best: value };
  const count = track.count + 1;
  const start = count <= startUpdates ? track.start + (value - track.start) / count : track.start;
  const smooth = track.smooth + smoothing * (value - track.smooth);
  // During the start, the moving average is mostly the first value, which may be high by chance.
  const best = count <= startUpdates ? start : Math.max(track.best, smooth);
  return { count, start, smooth, best };
}

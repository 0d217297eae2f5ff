/**
 * Thresholds of the Echo Trap detector. They are fitted to three recorded runs (one that collapsed, two that learned;
 * tests/model/health/echo-trap-runs.json) and to noise like theirs. For two further runs all thresholds but
 * `gradientSpike` were right; it is fitted to one of these too (docs/log/2026-11.md). None of the five recorded the likelihood of
 * solved episodes: its thresholds are not fitted.
 */

export interface TrapRule {
  /** Updates of the start, during which there is no sign. */
  readonly startUpdates: number;
  /** Weight of the newest value in the moving average. */
  readonly smoothing: number;
  /** Updates in a row that a sign must last; a gradient spike counts immediately. */
  readonly patience: number;
  /** Smoothed success from which the task is solved. */
  readonly solvedAt: number;
  /** While success is at least this, and near its best, a small spread, low entropy or a low likelihood is no sign. */
  readonly explainedAt: number;
  /** Signs as shares of the start: a small spread, almost none, low entropy, high entropy, little information. */
  readonly spreadShare: number;
  readonly constantShare: number;
  readonly entropyShare: number;
  readonly entropyRise: number;
  readonly informationShare: number;
  /** Share of constant groups that leaves nothing to learn from. */
  readonly constantGroups: number;
  /** Limits of absolute change since the start. */
  readonly repetitionRise: number;
  readonly validityFall: number;
  /** A sign: the surprise (-log-probability) of solved episodes is above this many times its lowest, and `likelihoodFall` nats above it. */
  readonly surpriseRise: number;
  readonly likelihoodFall: number;
  /** A sign: success is below this share of its best, and lower by `successFall` or more (`successFallAlone` if it is the only sign). */
  readonly successShare: number;
  readonly successFall: number;
  readonly successFallAlone: number;
  /** A sign: the gradient norm is above this many times the median of the `gradientWindow` norms before. */
  readonly gradientSpike: number;
  readonly gradientWindow: number;
}

export const TRAP_RULE: TrapRule = {
  startUpdates: 5,
  smoothing: 0.2,
  patience: 3,
  solvedAt: 0.9,
  explainedAt: 0.7,
  spreadShare: 0.6,
  constantShare: 0.1,
  entropyShare: 0.25,
  entropyRise: 2,
  informationShare: 0.3,
  constantGroups: 0.95,
  repetitionRise: 0.1,
  validityFall: 0.2,
  surpriseRise: 2,
  likelihoodFall: 0.1,
  successShare: 0.65,
  successFall: 0.05,
  successFallAlone: 0.15,
  gradientSpike: 8,
  gradientWindow: 20,
};

/**
 * Thresholds of the Echo Trap detector. `patience`, `spreadShare`, `entropyRise`, `validityFall`, `successShare`, `successFallAlone`,
 * and the first update as a start, were chosen on 65 runs: the runs of odd seeds in docs/error-rates.parquet, without those of FrozenLake.
 * Most other thresholds are fitted to three recorded runs (one collapsed, two learned; tests/model/health/echo-trap-runs.json) and to
 * noise like that of these runs. `gradientSpike` is also fitted to a fourth run. None of the four runs recorded the likelihood of solved
 * episodes, so the thresholds of the likelihood are not fitted.
 */
export const TRAP_RULE = {
  /** Updates of the start, during which there is no sign. For success, form and repetition it is one update (`startUpdatesOf`). */
  startUpdates: 5,
  /** Weight of the newest value in the moving average. */
  smoothing: 0.2,
  /** Updates in a row that a sign must last; a gradient spike counts immediately. */
  patience: 2,
  /** Smoothed success from which the task is solved. */
  solvedAt: 0.9,
  /** While success is at least this, and near its best, a small spread, low entropy or a low likelihood is no sign. */
  explainedAt: 0.7,
  /** Signs as shares of the start, in this order: a small spread, almost no spread, low entropy, high entropy, little information. */
  spreadShare: 0.3,
  constantShare: 0.1,
  entropyShare: 0.25,
  entropyRise: 20,
  informationShare: 0.3,
  /** Share of constant groups that leaves nothing to learn from. */
  constantGroups: 0.95,
  /** Limits of absolute change since the start. */
  repetitionRise: 0.1,
  validityFall: 0.4,
  /** A sign: the surprise (-log-probability) of solved episodes is above this many times its lowest value and `likelihoodFall` nats above it. */
  surpriseRise: 2,
  likelihoodFall: 0.1,
  /** A sign: success is below this share of its best, and lower by `successFall` or more (`successFallAlone` if it is the only sign). */
  successShare: 0.5,
  successFall: 0.05,
  successFallAlone: 0.2,
  /** A sign: the gradient norm is above this many times the median of the `gradientWindow` norms before. */
  gradientSpike: 8,
  gradientWindow: 20,
} as const;

export type TrapRule = Readonly<Record<keyof typeof TRAP_RULE, number>>;

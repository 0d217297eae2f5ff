/**
 * Thresholds of the Echo Trap detector. `patience`, `spreadShare`, `entropyRise`, `validityFall`, `successShare`, `successFallAlone`,
 * and the starts of one update (`startUpdatesOf`), were chosen on 65 runs: the runs of odd seeds in docs/error-rates.parquet, without
 * those of FrozenLake.
 * Most other thresholds are fitted to three recorded runs (one collapsed, two learned; tests/model/health/echo-trap-runs.json) and to
 * noise like that of these runs. `gradientSpike` is also fitted to a fourth run. None of the four runs recorded the likelihood of solved
 * episodes, so the thresholds of the likelihood are not fitted.
 */
export const TRAP_RULE = {
  /** Number of updates at the start, which give no signs. For success, validity and repetition the start is one update (`startUpdatesOf`). */
  startUpdates: 5,
  /** Weight of the newest value in the moving average. */
  smoothing: 0.2,
  /** Updates in a row that a sign must last; a gradient spike counts immediately. */
  patience: 2,
  /** The task is solved if smoothed success is at least this. */
  solvedAt: 0.9,
  /** While success is at least this, and near its best, these do not count as signs: small spread, constant groups, low entropy, low likelihood. */
  explainedAt: 0.7,
  /** Limits as shares of the start, in this order: a small spread, almost no spread, low entropy, high entropy, little information. */
  spreadShare: 0.3,
  constantShare: 0.1,
  entropyShare: 0.25,
  entropyRise: 20,
  informationShare: 0.3,
  /** A sign: at least this share of the groups is constant, so there is almost nothing to learn from. */
  constantGroups: 0.95,
  /** Limits of absolute change since the start. */
  repetitionRise: 0.1,
  validityFall: 0.4,
  /** A sign: the surprise (-log-probability) of solved episodes is above this many times its lowest value, and `likelihoodFall` nats higher. */
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

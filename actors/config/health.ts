/** Section `health`: the detector of a collapse, interventions and early stops. Types and defaults only; the rules are in model/health/. */
import { z } from "zod";
import { RAGEN_STOPS, STOP_RULE, STOPS } from "../../model/health/early-stop.ts";
import { TRAP_RULE } from "../../model/health/echo-trap/echo-trap.ts";
import { listOf, nonnegativeInt, oneOf, positiveInt, share } from "./kinds.ts";

const RUNGS = [
  "tighten-filter",
  "raise-entropy",
  "raise-kl",
  "clip-cov",
  "kl-cov",
  "lower-step-size",
  "fresh-rollouts",
  "fewer-actions",
  "roll-back",
  "stop",
] as const;
export type Rung = (typeof RUNGS)[number];
/** The value of `learner.covariance.treatment` that a rung sets. A rung is an intervention of `health.ladder`. */
export const TREATMENT_OF_RUNG = { "clip-cov": "clip", "kl-cov": "kl" } as const satisfies Partial<
  Record<Rung, string>
>;

/**
 * The numbers of the Echo Trap detector that depend on the task. The detector's other numbers are constants in model/health/. A sign is a
 * measurement that speaks for a collapse (docs/health.md). A smoothed value is a moving average in which the newest update has the weight .2.
 */
const TrapConfig = z.strictObject({
  startUpdates: positiveInt(TRAP_RULE.startUpdates).describe(
    "The detector takes the values of this many first updates as the start of a metric, and compares later values with it. For success, repetition and the share of well-formed replies, the start is the first update only. A metric gives no sign during its start. The signs of spread, entropy, mutual information, repetition and form compare a metric with its mean over its start; other signs: docs/health.md",
  ),
  patience: positiveInt(TRAP_RULE.patience).describe(
    "A sign of a collapse (docs/health.md lists the signs) counts after it has appeared in this many updates in a row; a gradient spike counts at once",
  ),
  solvedAt: share(TRAP_RULE.solvedAt).describe(
    "Smoothed success is a moving average of the updates' success; the newest update has the weight 0.2. When smoothed success reaches this value, the task counts as solved, until smoothed success is more than 0.1 below this value",
  ),
  explainedAt: share(TRAP_RULE.explainedAt).describe(
    "Four signs do not count while success is high: small spread, constant groups, low entropy and low likelihood. Success is high in two cases. The task counts as solved (solvedAt). Or smoothed success is at least this value, and at most 0.15 below its highest value so far",
  ),
  spreadShare: share(TRAP_RULE.spreadShare).describe(
    "The sign small spread: the smoothed in-group std of reward is below this share of its start (startUpdates)",
  ),
  constantGroups: share(TRAP_RULE.constantGroups).describe(
    'Threshold of the sign "constant groups". This sign alone gives the verdict "collapsed". A group is constant if all of its episodes earned the same reward. The sign appears if the smoothed share of constant groups is at least this value, or if the smoothed in-group std of reward is below 0.1 of its start',
  ),
  successFall: share(TRAP_RULE.successFall).describe(
    `The sign fall of success: smoothed success is below ${100 * TRAP_RULE.successShare} % of its highest value so far, and at least this much below that value (at least ${TRAP_RULE.successFallAlone} if there is no other sign)`,
  ),
});

/** Numbers of the early stops reward_variance_collapse and solved. For short runs, lower the counts. */
const StopsConfig = z.strictObject({
  baselineUpdates: positiveInt(STOP_RULE.baselineUpdates).describe(
    "reward_variance_collapse: the baseline is the mean of the in-group std of reward over this many first updates",
  ),
  collapseUpdates: positiveInt(STOP_RULE.collapseUpdates).describe(
    "reward_variance_collapse: the run ends after this many updates in a row with a std below a tenth of the baseline and a success below 0.9",
  ),
  solvedValidations: positiveInt(STOP_RULE.solvedValidations).describe(
    "solved: the run ends after this many validations in a row in which the success of every env is at least solvedShare",
  ),
  solvedShare: share(STOP_RULE.solvedShare).describe(
    "solved: success that every env must reach in a validation (solvedValidations)",
  ),
});

const CollapseConfig = z.strictObject({
  everyUpdates: nonnegativeInt(0).describe(
    "N: the run measures RAGEN-2's mutual information of prompts and thoughts in the updates 1, N, 2 N, …; 0: never",
  ),
  samples: positiveInt(32).describe(
    "Maximum number of thoughts that one measurement compares; the time of a measurement grows with the square of this number",
  ),
});

export const HealthConfig = z.strictObject({
  ladder: listOf(z.enum(RUNGS), []).describe(
    `Interventions against the Echo Trap, in the order in which the learner takes them. Possible: ${RUNGS.join(", ")}; empty: none`,
  ),
  interveneAt: oneOf(["warning", "collapsed"], "collapsed").describe(
    "Verdict at which the learner intervenes. warning: at a warning and at a collapse; collapsed: only at a collapse",
  ),
  settleUpdates: positiveInt(5).describe("Minimum number of updates between two interventions"),
  stopEarly: listOf(z.enum(STOPS), ["solved"]).describe(
    `What ends the run early: solved, or RAGEN-2's ${RAGEN_STOPS.join(", ")}; empty: nothing`,
  ),
  collapse: CollapseConfig.prefault({}),
  trap: TrapConfig.prefault({}),
  stops: StopsConfig.prefault({}),
});
export type HealthConfig = z.infer<typeof HealthConfig>;

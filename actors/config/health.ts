/** Section `health`: the detector of a collapse, interventions and early stops. Types and defaults only; the rules are in model/health/. */
import { z } from "zod";
import { RAGEN_STOPS, STOP_RULE, STOPS } from "../../model/health/early-stop.ts";
import { TRAP_RULE } from "../../model/health/echo-trap/echo-trap.ts";
import { nonnegativeInt, oneOf, positiveInt, share } from "./kinds.ts";

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

/** The numbers of the Echo Trap detector that depend on the task. The detector's other numbers are constants in model/health/. */
const TrapConfig = z.strictObject({
  startUpdates: positiveInt(TRAP_RULE.startUpdates).describe(
    "The detector compares a metric with its start: the mean over this many first updates. For success, repetition and the share of well-formed replies, the start is the value in the first update",
  ),
  patience: positiveInt(TRAP_RULE.patience).describe(
    "A sign counts after it has appeared in this many updates in a row; a gradient spike counts at once",
  ),
  solvedAt: share(TRAP_RULE.solvedAt).describe(
    "The task counts as solved when smoothed success reaches this value. The task stays solved until smoothed success is more than 0.1 below this value",
  ),
  explainedAt: share(TRAP_RULE.explainedAt).describe(
    "Small spread, constant groups, low entropy and low likelihood do not count as signs while smoothed success is at least this value, and at most 0.15 below its highest value so far",
  ),
  spreadShare: share(TRAP_RULE.spreadShare).describe(
    "A sign: the reward's in-group std is below this share of its start",
  ),
  constantGroups: share(TRAP_RULE.constantGroups).describe(
    "A sign that alone gives the verdict collapsed: in this share of the groups or more, all episodes earned the same reward",
  ),
  successFall: share(TRAP_RULE.successFall).describe(
    `A sign: smoothed success is below ${100 * TRAP_RULE.successShare} % of its highest value so far, and has fallen by this value or more`,
  ),
});

/** Numbers of the early stops reward_variance_collapse and solved. For short runs, lower the counts. */
const StopsConfig = z.strictObject({
  baselineUpdates: positiveInt(STOP_RULE.baselineUpdates).describe(
    "reward_variance_collapse: number of first updates whose mean in-group std of reward is the baseline",
  ),
  collapseUpdates: positiveInt(STOP_RULE.collapseUpdates).describe(
    "reward_variance_collapse: the run ends after this many updates in a row with a std below a tenth of the baseline",
  ),
  solvedValidations: positiveInt(STOP_RULE.solvedValidations).describe(
    "solved: the run ends after this many validations in a row that count (see solvedShare)",
  ),
  solvedShare: share(STOP_RULE.solvedShare).describe(
    "solved: a validation counts if the success of every env is at least this value",
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
  ladder: z
    .array(z.enum(RUNGS))
    .default([])
    .describe(
      `Interventions against the Echo Trap, in the order in which the learner takes them. Possible: ${RUNGS.join(", ")}; empty: none`,
    ),
  interveneAt: oneOf(["warning", "collapsed"], "collapsed").describe("Mildest verdict at which the learner intervenes"),
  settleUpdates: positiveInt(5).describe("Minimum number of updates between two interventions"),
  stopEarly: z
    .array(z.enum(STOPS))
    .default(["solved"])
    .describe(`What ends the run early: solved, or RAGEN-2's ${RAGEN_STOPS.join(", ")}; empty: nothing`),
  collapse: CollapseConfig.prefault({}),
  trap: TrapConfig.prefault({}),
  stops: StopsConfig.prefault({}),
});
export type HealthConfig = z.infer<typeof HealthConfig>;

/** Section `health`: the detector of a collapse, interventions and early stops. Types and defaults only; the rules are in model/health/. */
import { z } from "zod";
import { RAGEN_STOPS, STOP_RULE, STOPS } from "../../model/health/early-stop.ts";
import { TRAP_RULE } from "../../model/health/echo-trap/echo-trap.ts";
import { nonnegativeInt, positiveInt, share } from "./kinds.ts";

export const RUNGS = [
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
/** The treatment of covariance that a rung switches on. */
export const TREATMENT_OF_RUNG = { "clip-cov": "clip", "kl-cov": "kl" } as const satisfies Partial<
  Record<Rung, string>
>;

/** The numbers of the Echo Trap detector that depend on the task. Its other numbers are constants in model/health/. */
const TrapConfig = z.strictObject({
  startUpdates: positiveInt
    .default(TRAP_RULE.startUpdates)
    .describe(
      "The start of a metric is its mean over this many first updates. For success, repetition and the share of well-formed replies the start is the value in the first update",
    ),
  patience: positiveInt
    .default(TRAP_RULE.patience)
    .describe("Updates in a row that a sign must last; a gradient spike counts at once"),
  solvedAt: share.default(TRAP_RULE.solvedAt).describe("Smoothed success from which the task counts as solved"),
  explainedAt: share
    .default(TRAP_RULE.explainedAt)
    .describe(
      "While smoothed success is at least this value, and at most 0.15 below its best, these are no signs: small spread, constant groups, low entropy, low likelihood",
    ),
  spreadShare: share
    .default(TRAP_RULE.spreadShare)
    .describe("A sign: the reward's in-group std is below this share of its start"),
  constantGroups: share
    .default(TRAP_RULE.constantGroups)
    .describe("A sign of collapse: in this share of the groups or more, all episodes earned the same reward"),
  successFall: share
    .default(TRAP_RULE.successFall)
    .describe(
      `A sign: smoothed success is below ${100 * TRAP_RULE.successShare} % of its best, and the difference is this value or more`,
    ),
});

/** The windows of the early stops; shorten them for short runs. */
const StopsConfig = z.strictObject({
  baselineUpdates: positiveInt
    .default(STOP_RULE.baselineUpdates)
    .describe("reward_variance_collapse: the baseline is the mean in-group std over this many first updates"),
  collapseUpdates: positiveInt
    .default(STOP_RULE.collapseUpdates)
    .describe("reward_variance_collapse: updates in a row with a std below a tenth of the baseline"),
  solvedValidations: positiveInt
    .default(STOP_RULE.solvedValidations)
    .describe("solved: validations in a row with success of solvedShare or more, in every env"),
  solvedShare: share
    .default(STOP_RULE.solvedShare)
    .describe("solved: a validation counts if its success is at least this value"),
});

const CollapseConfig = z.strictObject({
  everyUpdates: nonnegativeInt
    .default(0)
    .describe(
      "Measures RAGEN-2's mutual information of prompts and thoughts in the first update and in every N-th; 0: never",
    ),
  samples: positiveInt
    .default(32)
    .describe("Maximum number of thoughts to compare; the cost grows with the square of this number"),
});

export const HealthConfig = z.strictObject({
  ladder: z
    .array(z.enum(RUNGS))
    .default([])
    .describe(
      `Interventions against the Echo Trap, in the order in which the learner takes them, from ${RUNGS.join(", ")}; empty: none`,
    ),
  interveneAt: z
    .enum(["warning", "collapsed"])
    .default("collapsed")
    .describe("Mildest verdict at which the learner intervenes"),
  settleUpdates: positiveInt.default(5).describe("Updates between two interventions"),
  stopEarly: z
    .array(z.enum(STOPS))
    .default(["solved"])
    .describe(`What ends the run early: solved, or RAGEN-2's ${RAGEN_STOPS.join(", ")}; empty: nothing`),
  collapse: CollapseConfig.prefault({}),
  trap: TrapConfig.prefault({}),
  stops: StopsConfig.prefault({}),
});
export type HealthConfig = z.infer<typeof HealthConfig>;

/** How a run is watched, and what is done when it goes wrong. Shapes and defaults; what they mean is in actors/training/health.ts. */
import { z } from "zod";
import { STOP_RULE, type StopRule } from "../../model/health/early-stop.ts";
import { TRAP_RULE, type TrapRule } from "../../model/health/echo-trap/echo-trap.ts";

export const RUNGS = ["tighten-filter", "raise-entropy", "raise-kl", "lower-step-size", "roll-back", "stop"] as const;
export type Rung = (typeof RUNGS)[number];

export const EARLY_STOPS = ["reward_variance_collapse", "low_validation_success", "empty_filtered_steps"] as const;

const share = z.number().min(0).max(1);
const count = z.int().positive();

const TrapConfig = z
  .strictObject({
    startUpdates: count
      .default(TRAP_RULE.startUpdates)
      .describe("Updates that make up the start; there is no sign before they are over"),
    smoothing: z
      .number()
      .positive()
      .max(1)
      .default(TRAP_RULE.smoothing)
      .describe("Weight of the newest value in the moving averages"),
    patience: count
      .default(TRAP_RULE.patience)
      .describe("Updates in a row that a sign must last; a spike of the gradient counts at once"),
    solvedAt: share.default(TRAP_RULE.solvedAt).describe("Smoothed success from which the task is solved"),
    explainedAt: share
      .default(TRAP_RULE.explainedAt)
      .describe("Success from which, near its best, less spread and entropy follow from it"),
    spreadShare: share
      .default(TRAP_RULE.spreadShare)
      .describe("Sign: the in-group std of the reward is below this share of its start"),
    constantShare: share
      .default(TRAP_RULE.constantShare)
      .describe("Sign of collapse: it is below this share of its start"),
    constantGroups: share
      .default(TRAP_RULE.constantGroups)
      .describe("Sign of collapse: this share of the groups earned all the same"),
    entropyShare: share.default(TRAP_RULE.entropyShare).describe("Sign: the entropy is below this share of its start"),
    entropyRise: z
      .number()
      .min(1)
      .default(TRAP_RULE.entropyRise)
      .describe("Sign: the entropy is above this many times its start"),
    informationShare: share
      .default(TRAP_RULE.informationShare)
      .describe("Sign: thoughts tell less than this share of the start about their prompts"),
    repetitionRise: share
      .default(TRAP_RULE.repetitionRise)
      .describe("Sign: so much more of what is written is repeated than at the start"),
    validityFall: share
      .default(TRAP_RULE.validityFall)
      .describe("Sign: so many fewer replies are well-formed than at the start"),
    successShare: share.default(TRAP_RULE.successShare).describe("Sign: success is below this share of its best"),
    successFall: share.default(TRAP_RULE.successFall).describe("Sign: and by at least so much"),
    successFallAlone: share.default(TRAP_RULE.successFallAlone).describe("Or by so much, if there is no other sign"),
    gradientSpike: z
      .number()
      .min(1)
      .default(TRAP_RULE.gradientSpike)
      .describe("Sign: the gradient's norm is so many times its median"),
    gradientWindow: count.default(TRAP_RULE.gradientWindow).describe("Updates that the median is taken over"),
  } satisfies Record<keyof TrapRule, z.ZodType>)
  .prefault({});

const StopsConfig = z
  .strictObject({
    baselineUpdates: count
      .default(STOP_RULE.baselineUpdates)
      .describe("Updates whose mean in-group std is what later ones are compared with"),
    collapseUpdates: count
      .default(STOP_RULE.collapseUpdates)
      .describe("Updates in a row with less than collapseShare of it"),
    collapseShare: share.default(STOP_RULE.collapseShare).describe("reward_variance_collapse: share of the baseline"),
    validations: count.default(STOP_RULE.validations).describe("low_validation_success: validations in a row"),
    validationMin: share
      .default(STOP_RULE.validationMin)
      .describe("low_validation_success: success that they must have"),
    emptyUpdates: count
      .default(STOP_RULE.emptyUpdates)
      .describe("empty_filtered_steps: updates in a row whose filter kept nothing"),
    solvedAt: share
      .default(STOP_RULE.solvedAt)
      .describe("Success from which constant groups and empty selections are no reason to stop"),
  } satisfies Record<keyof StopRule, z.ZodType>)
  .prefault({});

const CollapseConfig = z.strictObject({
  everyUpdates: z
    .int()
    .nonnegative()
    .default(0)
    .describe("Measure RAGEN-2's information between prompts and thoughts so often, and at the first; 0: never"),
  samples: count.default(32).describe("Thoughts that are compared; it costs about the square of it in scored rows"),
});

export const HealthConfig = z.strictObject({
  ladder: z
    .array(z.enum(RUNGS))
    .default([])
    .describe(`What is done against the Echo Trap, one after another: ${RUNGS.join(", ")}; empty: it is only reported`),
  interveneAt: z.enum(["warning", "collapsed"]).default("collapsed").describe("Verdict from which a rung is taken"),
  settleUpdates: count.default(5).describe("Updates that a rung is given to act before the next one is taken"),
  filterFactor: share.default(0.5).describe("tighten-filter: share of the groups kept so far that are kept on"),
  entropyStep: z.number().positive().default(0.003).describe("raise-entropy: added to learner.entropyCoefficient"),
  klStep: z.number().positive().default(0.01).describe("raise-kl: added to the weight of the divergence"),
  stepSizeFactor: share.default(0.5).describe("lower-step-size: the policy's step size is multiplied by it"),
  stopEarly: z
    .array(z.enum(EARLY_STOPS))
    .default([])
    .describe(`RAGEN-2's early stops to obey: ${EARLY_STOPS.join(", ")}`),
  collapse: CollapseConfig.prefault({}),
  trap: TrapConfig,
  stops: StopsConfig,
});
export type HealthConfig = z.infer<typeof HealthConfig>;

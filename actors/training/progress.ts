/** The progress of a run, which is a value that no code changes in place. A checkpoint holds progress, parameters and optimizers. */
import type { RunConfig } from "../config/config.ts";
import type { TicketCounts } from "../learner/dispatcher.ts";
import type { Scores } from "./curriculum.ts";
import { type Due, HEALTH_START, type HealthState, healthAfterRollBack } from "./health.ts";
import { COLLAPSE_START, type CollapseState } from "./measure-collapse.ts";
import type { Taught } from "./warm-start.ts";

/** The share of validation episodes that the policy solved. */
export interface Solved {
  readonly success: number;
  /** The share of each env, if the run plays a mix; empty for a single env. */
  readonly envs: Readonly<Record<string, number>>;
}

interface ValidatedUpdate extends Solved {
  readonly update: number;
}

export interface Progress {
  /** Number of finished updates. */
  readonly update: number;
  /** Newest policy version. */
  readonly version: number;
  readonly episodes: number;
  /** Tokens that the policy wrote. */
  readonly tokens: number;
  /** Actions that envs executed. */
  readonly actions: number;
  /** Counts of the run's tickets, earlier sessions included. */
  readonly tickets: TicketCounts;
  /** Validation success after the first stage of the warm start; null without a warm start. */
  readonly taught: Taught | null;
  /** Validation success before the first update; null until the first validation. */
  readonly before: number | null;
  /** The value `before` of each env, if the run plays a mix; empty for a single env. */
  readonly beforeOf: Readonly<Record<string, number>>;
  readonly validated: ValidatedUpdate | null;
  readonly best: ValidatedUpdate | null;
  readonly klCoefficient: number;
  readonly entropyCoefficient: number;
  /** Number of updates that trained on no episode, or left out a step because a number was not finite. */
  readonly skipped: number;
  /** Minutes of reinforcement so far, earlier sessions included. */
  readonly minutes: number;
  /** Minutes of the whole run, earlier sessions included. */
  readonly minutesInAll: number;
  /** The scores by which the curriculum divides the groups among the envs. */
  readonly curriculum: Scores;
  readonly health: HealthState;
  /** The rung or early stop that the run must still do; null if nothing is due. */
  readonly due: Due | null;
  readonly collapse: CollapseState;
}

export const startOfRun = ({ learner }: Pick<RunConfig, "learner">): Progress => ({
  update: 0,
  version: 0,
  episodes: 0,
  tokens: 0,
  actions: 0,
  tickets: { expired: 0, retried: 0, ignored: 0 },
  taught: null,
  before: null,
  beforeOf: {},
  validated: null,
  best: null,
  klCoefficient: learner.kl.coefficient,
  entropyCoefficient: learner.entropyCoefficient,
  skipped: 0,
  minutes: 0,
  minutesInAll: 0,
  curriculum: {},
  health: HEALTH_START,
  due: null,
  collapse: COLLAPSE_START,
});

/** The progress after a rollout or a validation. */
export const afterPlay = (progress: Progress, played: Pick<Progress, "episodes" | "tokens" | "actions">): Progress => ({
  ...progress,
  episodes: progress.episodes + played.episodes,
  tokens: progress.tokens + played.tokens,
  actions: progress.actions + played.actions,
});

/** The first validation also sets the success before reinforcement. */
export function afterValidation(progress: Progress, solved: Solved): Progress {
  const validated = { ...solved, update: progress.update };
  const isBest = progress.best === null || solved.success > progress.best.success;
  const first = progress.before === null ? { before: solved.success, beforeOf: solved.envs } : {};
  return { ...progress, ...first, validated, best: isBest ? validated : progress.best };
}

/**
 * Restores the checkpoint's progress, but keeps the present version and all present counts except `update`. The detectors of health start
 * again. The caller sets the minutes.
 */
export const afterRollBack = (saved: Progress, now: Progress): Progress => ({
  ...saved,
  version: now.version,
  episodes: now.episodes,
  tokens: now.tokens,
  actions: now.actions,
  tickets: now.tickets,
  skipped: now.skipped,
  due: null,
  health: healthAfterRollBack(saved.health, now.health),
});

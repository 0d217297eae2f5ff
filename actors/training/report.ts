/** The report of a finished run. */
import { envsText } from "../play/envs-of-run.ts";
import { type Baselines, meanBaselines } from "./baselines.ts";
import type { TrainingContext } from "./context.ts";
import type { Progress, Solved } from "./progress.ts";

/** Shares of the validation episodes that a player or the policy solved. All are measured on the same boards. */
export interface Success extends Baselines {
  /** After the first stage of the warm start; null if there was no warm start. */
  readonly taught: number | null;
  readonly before: number;
  readonly after: number;
}

export interface Report {
  readonly run: string;
  readonly env: string;
  readonly updates: number;
  /** Minutes of reinforcement so far, validations and earlier sessions included. */
  readonly minutes: number;
  /** Minutes of the whole run, earlier sessions included. */
  readonly minutesInAll: number;
  readonly success: Success;
  /** For a mix, the success of each env by name; null for a single env. `taught` has only one value for all envs. */
  readonly envs: Readonly<Record<string, Omit<Success, "taught">>> | null;
  /** The values `taught` and `after` of `success`, but measured at temperature 1. */
  readonly successAtOne: Pick<Success, "taught" | "after">;
  readonly episodes: number;
  /** `tokens` counts the tokens that the policy wrote; `actions` counts the actions that envs executed. Both include validations. */
  readonly tokens: number;
  readonly actions: number;
  /** Speed of all rollouts and validations since the learner's last start; null if samplers played none. */
  readonly tokensPerSecond: number | null;
  readonly updatesPerMinute: number | null;
  /** Difference between the log-probabilities of samplers and learner in nats per token: see `UpdateStep.logProbGap`. */
  readonly logProbGap: number | null;
  /** Why the run ended early; null if the run did not end early. */
  readonly stoppedEarly: string | null;
  readonly engine: string;
  readonly device: string;
}

/** File name of an earlier report. If a finished run gets more updates, it keeps under this name the report that it made after `update`. */
export const earlierReportName = (update: number): string => `report-u${String(update).padStart(6, "0")}.json`;

export interface Course {
  readonly baselines: ReadonlyMap<string, Baselines>;
  readonly progress: Progress;
  /** `after` is the last validation; `atOne` is a validation of the same policy on the same boards at temperature 1. */
  readonly after: Solved;
  readonly atOne: Solved;
  readonly stoppedEarly: string | null;
  readonly tokensPerSecond: number | null;
  readonly logProbGap: number | null;
}

export function reportOf({ run, config, engine }: TrainingContext, course: Course): Report {
  const { baselines, progress, after, atOne, stoppedEarly, tokensPerSecond, logProbGap } = course;
  const { taught, before, beforeOf, update, minutes, minutesInAll, episodes, tokens, actions } = progress;
  const [name = "", ...device] = engine.split(", ");
  const envs = [...baselines].map(
    ([env, envBaselines]) => [env, { ...envBaselines, before: beforeOf[env]!, after: after.envs[env]! }] as const,
  );
  return {
    run,
    env: envsText(config),
    updates: update,
    minutes,
    minutesInAll,
    success: { ...meanBaselines(baselines), taught: taught?.cool ?? null, before: before!, after: after.success },
    envs: envs.length > 1 ? Object.fromEntries(envs) : null,
    successAtOne: { taught: taught?.one ?? null, after: atOne.success },
    episodes,
    tokens,
    actions,
    tokensPerSecond,
    updatesPerMinute: minutes > 0 ? update / minutes : null,
    logProbGap,
    stoppedEarly,
    engine: name,
    device: device.join(", "),
  };
}

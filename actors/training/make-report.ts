/** A run's report from what was measured on the way. Pure. */

import { envsText } from "../play/envs-of-run.ts";
import { type Baselines, meanBaselines } from "./baselines.ts";
import type { TrainingContext } from "./context.ts";
import type { Progress, Report, Solved } from "./report.ts";

export interface Course {
  readonly baselines: ReadonlyMap<string, Baselines>;
  readonly progress: Progress;
  /** The last validation, and the same at temperature 1. */
  readonly after: Solved;
  readonly atOne: Solved;
  readonly stoppedEarly: string | null;
  readonly tokensPerSecond: number;
  readonly logProbGap: number;
}

export function reportOf({ run, config, engine, clock, processStartedAtMs }: TrainingContext, course: Course): Report {
  const { baselines, progress, after, atOne, stoppedEarly, tokensPerSecond, logProbGap } = course;
  const { taught, before, beforeOf, update, minutes, episodes } = progress;
  const [name = "", ...device] = engine.split(", ");
  const envs = [...baselines].map(
    ([env, chance]) => [env, { ...chance, before: beforeOf[env]!, after: after.envs[env]! }] as const,
  );
  return {
    run,
    env: envsText(config),
    updates: update,
    minutes,
    minutesInAll: (clock.now() - processStartedAtMs) / 60_000,
    success: { ...meanBaselines(baselines), taught: taught?.cool ?? null, before: before!, after: after.success },
    envs: envs.length > 1 ? Object.fromEntries(envs) : null,
    successAtOne: { taught: taught?.one ?? null, after: atOne.success },
    episodes,
    tokensPerSecond,
    stepsPerMinute: minutes > 0 ? update / minutes : 0,
    logProbGap,
    stoppedEarly,
    engine: name,
    device: device.join(", "),
  };
}

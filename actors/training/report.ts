/** What a run says of itself: what a checkpoint remembers of it, and what stands in its report. Types only. */

import type { Scores } from "./curriculum.ts";
import type { HealthState } from "./health.ts";
import type { CollapseState } from "./measure-collapse.ts";
import type { Taught } from "./warm-start.ts";

/** Success in numbers that belong side by side; every report shows all of them. Shares of the validation boards. */
export interface Success {
  readonly random: number;
  readonly taught: number | null;
  readonly before: number;
  readonly after: number;
  readonly best: number | null;
  /** Of the env's expert; null if it has none, or if the best possible is known. */
  readonly expert: number | null;
}

export interface Report {
  readonly run: string;
  readonly env: string;
  readonly updates: number;
  /** Of reinforcement, validation included. */
  readonly minutes: number;
  readonly minutesInAll: number;
  readonly success: Success;
  /** Of a mix, the same for each env by name; null for a single env. What was taught is measured over all of them. */
  readonly envs: Readonly<Record<string, Omit<Success, "taught">>> | null;
  /** The same at temperature 1. */
  readonly successAtOne: Pick<Success, "taught" | "after">;
  readonly episodes: number;
  readonly tokensPerSecond: number;
  readonly stepsPerMinute: number;
  readonly logProbGap: number;
  /** Why the run ended before its last update; null if it did not. */
  readonly stoppedEarly: string | null;
  readonly engine: string;
  readonly device: string;
}

/** Share of validation episodes solved. */
export interface Solved {
  readonly success: number;
  /** Of each env of a mix; empty for a single env. */
  readonly envs: Readonly<Record<string, number>>;
}

interface Validated extends Solved {
  readonly update: number;
}

/** What a checkpoint keeps besides parameters and optimisers. */
export interface Progress {
  /** Updates made. */
  readonly update: number;
  /** Newest weights version. */
  readonly version: number;
  readonly episodes: number;
  readonly tokens: number;
  readonly taught: Taught | null;
  readonly before: number | null;
  /** The same of each env of a mix. */
  readonly beforeOf: Readonly<Record<string, number>>;
  /** The newest validation and the best so far, and at which updates. */
  readonly validated: Validated | null;
  readonly best: Validated | null;
  readonly klCoefficient: number;
  /** Updates in which nothing was learnt. */
  readonly skipped: number;
  /** Of reinforcement so far. */
  readonly minutes: number;
  /** What a curriculum over a mix steers by. */
  readonly curriculum: Scores;
  readonly health: HealthState;
  readonly collapse: CollapseState;
}

/** The collaborators of a training run, and its request to stop. */
import type { RoleMarks } from "../../model/text/dialogue.ts";
import type { Clock } from "../clock.ts";
import type { RunConfig } from "../config/config.ts";
import type { LearnerCheckpoints } from "../learner/checkpoints.ts";
import type { Dispatcher } from "../learner/dispatcher.ts";
import type { TrainerMethods } from "../learner/trainer.ts";
import type { Meter } from "../metrics/meter.ts";
import type { Reporter } from "../metrics-sink/reporter.ts";
import type { Remote } from "../process/worker-rpc.ts";
import type { WarmStartHooks, WarmStartResult } from "./warm-start.ts";

export interface TrainingContext {
  readonly run: string;
  readonly config: RunConfig;
  readonly clock: Clock;
  readonly processStartedAtMs: number;
  /** "compiled, cpu, 2 threads" */
  readonly engine: string;
  /** The token that closes a thought; null if the prompt asks for no thought, or if no single token closes one. */
  readonly thinkEnd: number | null;
  readonly roleMarks: RoleMarks;
  readonly log: RunLog;
  readonly meter: Meter;
  readonly reporter: Reporter;
  readonly dispatcher: Pick<Dispatcher, "play" | "ticketCounts">;
  readonly trainer: Remote<TrainerMethods>;
  /**
   * Publishes the policy as a new weights version, and announces it to samplers. Resolves when samplers can load the version;
   * `acknowledged` resolves to the milliseconds until all samplers had loaded it.
   */
  readonly publishPolicy: (version: number) => Promise<{ readonly acknowledged: Promise<number> }>;
  readonly checkpoints: Pick<LearnerCheckpoints, "resumed" | "save" | "restore" | "keepReference">;
  readonly warmStart: (hooks: WarmStartHooks) => Promise<WarmStartResult>;
}

export interface RunLog {
  /** A line of the log. */
  readonly line: (kind: string, text: string) => void;
  /** A line of the log that the page shows too. */
  readonly event: (level: "info" | "warning" | "error", kind: string, text: string) => void;
}

/** Thrown by a wait that was stopped. The message is the reason. */
export class Stopped extends Error {
  override readonly name = "Stopped";
}

/**
 * A request to stop that ends every wait at once. It keeps nothing of a finished wait. `Promise.race` against one promise that lives as long
 * as the run would keep every result: megabytes in each update.
 */
export class Interruption {
  /** Reject functions of the waits that are open. */
  readonly #waits = new Set<(stopped: Stopped) => void>();
  #reason: string | null = null;

  stop(reason: string): void {
    this.#reason ??= reason;
    for (const end of this.#waits) end(new Stopped(reason));
  }

  /** @throws {Stopped} if `stop` was called */
  check(): void {
    if (this.#reason !== null) throw new Stopped(this.#reason);
  }

  /** Waits for `work`. The work itself is not cancelled. @throws {Stopped} as soon as `stop` is called */
  async race<T>(work: Promise<T>): Promise<T> {
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    work.then(resolve, reject);
    this.#waits.add(reject);
    if (this.#reason !== null) reject(new Stopped(this.#reason));
    try {
      return await promise;
    } finally {
      this.#waits.delete(reject);
    }
  }
}

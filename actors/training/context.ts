/** What a training is given: its numbers, its hands and its voice. Types only. */

import type { Clock } from "../clock.ts";
import type { RunConfig } from "../config/config.ts";
import type { TicketBook } from "../learner/tickets.ts";
import type { TrainerMethods } from "../learner/trainer.ts";
import type { Reporter } from "../metrics-sink/reporter.ts";
import type { FinishedTicket } from "../play/finished-ticket.ts";
import type { Remote } from "../process/worker-rpc.ts";
import type { Ticket } from "../protocol.ts";
import type { Progress } from "./report.ts";
import type { Taught, WarmStartProgress } from "./warm-start.ts";

export interface TrainingContext {
  readonly run: string;
  readonly config: RunConfig;
  readonly trainer: Remote<TrainerMethods>;
  readonly reporter: Reporter;
  readonly clock: Clock;
  /** "compiled, cpu, 2 threads" */
  readonly engine: string;
  /** The token that closes a thought; null if the policy is not asked to think. */
  readonly thinkEnd: number | null;
  /** null for a new run. */
  readonly resumed: Progress | null;
  /** Publish the parameters as they are now. Resolves when the bytes are there for samplers to load. */
  readonly publish: (version: number) => Promise<{ acknowledged: Promise<number> }>;
  readonly play: (tickets: readonly Ticket[]) => Promise<readonly FinishedTicket[]>;
  readonly warmStart: (hooks: {
    measureTaught: () => Promise<Taught>;
    sample: (stepOverall: number) => Promise<void>;
    progress: (progress: WarmStartProgress) => void;
    stopped: () => void;
  }) => Promise<{ taught: Taught; cached: boolean }>;
  /** From now on KL terms compare with the policy that reinforcement began with. */
  readonly keepReference: () => Promise<void>;
  /** @throws {CheckpointError} if it cannot be written; those before it are as they were. */
  readonly save: (progress: Progress) => Promise<void>;
  /** Go back to the saved state of this update: parameters and optimisers are as they were; later checkpoints are set aside. */
  readonly restore: (update: number) => Promise<Progress>;
  /** Counts of what befell tickets so far. */
  readonly tickets: Pick<TicketBook, "expired" | "retried" | "ignored">;
  /** One line for people. */
  readonly say: (kind: string, text: string) => void;
  /** The same, also for the page. */
  readonly inform: (kind: string, text: string) => void;
  /** The same, for what they must not miss. */
  readonly warn: (kind: string, text: string) => void;
  readonly processStartedAtMs: number;
}

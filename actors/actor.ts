/** What an actor gets when it starts (`ActorContext`), and what it returns (`Running`). Both types are the same for every `Host`. */
import type { Clock } from "./clock.ts";
import type { RunConfig } from "./config/config.ts";
import type { Log } from "./log.ts";
import type { Meter } from "./metrics/meter.ts";
import type { Messages, PolicyVersion, Role, Tell } from "./protocol.ts";
import type { ClientTls } from "./transport/tls.ts";
import type { Transport } from "./transport/transport.ts";

/**
 * Where an actor runs: in a process of its own, in a Bun worker of the run's process, or on one thread with all actors. In a process
 * or a worker, the engine of a sampler or learner computes in a further thread, so that the actor's event loop always answers.
 */
export type Host = "process" | "worker" | "one-thread";

export interface ActorContext {
  readonly actor: string;
  readonly run: string;
  /** Folder of the run: checkpoints, store, report. */
  readonly folder: string;
  readonly token: string;
  readonly clock: Clock;
  readonly log: Log;
  /** Measures the actor. Each heartbeat carries the measurements. */
  readonly meter: Meter;
  /** This transport uses the run's token and limits, and logs problems. */
  readonly transport: Transport;
  /** What the actor passes to `transport.listen`. */
  readonly listen: string;
  readonly host: Host;
  /** How an actor on another machine gets the weights; null for an actor on the run's own machine. */
  readonly guest: {
    readonly weightsFrom: string;
    readonly token: string;
    readonly tls: ClientTls;
  } | null;
  /** Random numbers, uniform in [0, 1) and without a seed: for jitter only. */
  readonly uniform: () => number;
  /** The actor calls this when its work is done. process/life.ts then calls `Running.stop`, and the actor ends with exit code 0. */
  finish(reason: string): void;
  /** The actor calls this when it cannot continue. The actor then ends with exit code 1, or with `RUN_ERROR_CODE` for a `RunError`. */
  fail(error: unknown): void;
}

/** A message of the supervisor for `Running.told`. The message `stop` leads to a call of `Running.stop` instead. */
export type Order = Exclude<Tell, Messages["stop"]>;

export interface Running {
  /** The address at which other actors connect; null if the actor does not listen. */
  readonly url: string | null;
  /** What the actor does, for people: "playing 64 episodes", "update 12". */
  doing(): string;
  /** Milliseconds since the compute thread got work or returned a result, whichever was later; 0 while the thread has no work. */
  workingMs?(): number;
  /** Ends the actor's work; the learner also saves its progress. When the promise resolves, the actor has ended. */
  stop(reason: string): Promise<void>;
  /** The policy version that the actor holds, or published last; null if it has none. */
  weights?(): PolicyVersion | null;
  /** Takes a message of the supervisor other than `stop`. @throws {ProtocolError} for a message that the actor does not take */
  told(message: Order): void;
}

/**
 * How an actor of one role starts. `start` may take a third argument, `ports`: what comes from the machine, such as the disk and the
 * thread. A simulation passes its own ports.
 */
export interface ActorKind {
  readonly role: Role;
  start(config: RunConfig, context: ActorContext): Promise<Running>;
}

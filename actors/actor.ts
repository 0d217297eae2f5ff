/** What an actor gets and returns, in a process of its own or in a shared one. Types only. */
import type { Clock } from "./clock.ts";
import type { RunConfig } from "./config/config.ts";
import type { Log } from "./log.ts";
import type { Meter } from "./metrics/meter.ts";
import type { PolicyVersion, Role, Tell } from "./protocol.ts";
import type { ClientTls } from "./transport/tls.ts";
import type { Transport } from "./transport/transport.ts";

/**
 * What an actor has to itself: a process; a Bun worker of the run's process; or nothing, on the one thread of all actors. With a
 * process or a worker it computes in one more thread, so that its event loop always answers.
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
  /** Its measurements are part of each heartbeat. */
  readonly meter: Meter;
  /** Uses the run's token and limits, and logs problems. */
  readonly transport: Transport;
  /** Makes `transport.listen` choose a free address. */
  readonly listen: string;
  readonly host: Host;
  /** How an actor on another machine gets the weights; null on the run's own machine. */
  readonly guest: {
    readonly weightsFrom: string;
    /** For the weights. */
    readonly token: string;
    readonly tls: ClientTls;
  } | null;
  /** Uniform in [0, 1), not seeded: for jitter only. */
  readonly uniform: () => number;
  /** The actor is done: drain, save, exit code 0. */
  finish(reason: string): void;
  /** The actor cannot continue: exit code 1. */
  fail(error: unknown): void;
}

/** A started actor. */
export interface Running {
  /** Where others connect; null if it does not listen. */
  readonly url: string | null;
  /** For people: "playing 64 episodes", "update 12". */
  doing(): string;
  /** Milliseconds since its computation last gave a result; 0 if it computes nothing. */
  workingMs?(): number;
  /** Drain and save. The actor is gone when it resolves. */
  stop(reason: string): Promise<void>;
  /** The policy that it holds, or published last. */
  weights?(): PolicyVersion | null;
  /** The supervisor sent a message other than `stop`, for example the roster. */
  told?(message: Tell): void;
}

/** Starts a kind of actor. `start` may take ports as a third argument, which a simulation replaces. */
export interface ActorKind {
  readonly role: Role;
  start(config: RunConfig, context: ActorContext): Promise<Running>;
}

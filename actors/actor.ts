/** What an actor is given and what it gives back, whether it has a process of its own or shares one. Types only. */
import type { Clock } from "./clock.ts";
import type { RunConfig } from "./config/config.ts";
import type { Log } from "./log.ts";
import type { Meter } from "./metrics/meter.ts";
import type { PolicyVersion, Role, Tell } from "./protocol.ts";
import type { ClientTls } from "./transport/tls.ts";
import type { Transport } from "./transport/transport.ts";

export interface ActorContext {
  readonly actor: string;
  readonly run: string;
  /** Folder of the run: checkpoints, store, report. */
  readonly folder: string;
  readonly token: string;
  readonly clock: Clock;
  readonly log: Log;
  /** What it measures of itself; told with its signs of life. */
  readonly meter: Meter;
  /** With the run's token and limits; problems go to the log. */
  readonly transport: Transport;
  /** What `transport.listen` takes for any free address. */
  readonly listen: string;
  /** Computation gets threads of its own, so that this loop always answers. False in a single process. */
  readonly threads: boolean;
  /** Of an actor that another machine lends to the run: how it gets what others find in shared memory. Else null. */
  readonly guest: {
    readonly weightsFrom: string;
    /** For the weights. */
    readonly token: string;
    readonly tls: ClientTls;
  } | null;
  /** Uniform in [0, 1), for jitter; nothing that a seed should decide. */
  readonly uniform: () => number;
  /** Leave by our own decision: drain, save, exit code 0. */
  finish(reason: string): void;
  /** Leave because of an error: exit code 1. */
  fail(error: unknown): void;
}

/** A started actor. */
export interface Running {
  /** Where others reach it; null if nobody connects to it. */
  readonly url: string | null;
  /** For people: "playing 64 episodes", "update 12". */
  doing(): string;
  /** How long its computation has gone without a result, in milliseconds; 0 if it computes nothing. */
  workingMs?(): number;
  /** Drain and save. The actor is gone when it resolves. */
  stop(reason: string): Promise<void>;
  /** The policy it holds, or published last. */
  weights?(): PolicyVersion | null;
  /** The supervisor told it something other than `stop`, such as the roster. */
  told?(message: Tell): void;
}

/** How a kind of actor is started. All are given the whole config of the run; what they need of it is theirs to know. */
export interface ActorKind {
  readonly role: Role;
  start(config: RunConfig, context: ActorContext): Promise<Running>;
}

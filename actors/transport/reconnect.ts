/**
 * A connection to one actor. `connectForever` connects again after each loss, and says hello on each new connection.
 *
 * - The handler sees a connection only after the other end has answered hello with a welcome: `opened` first, then messages in order, `closed` last.
 * - The delay between attempts doubles up to a limit. Jitter in the delay keeps samplers from all reconnecting at the same moment. The
 *   attempts go on until `close`; the supervisor decides when an actor is lost.
 */
import type { Clock } from "../clock.ts";
import { describeError } from "../errors.ts";
import type { Answer } from "../protocol.ts";
import { type Identity, sayHello } from "./handshake.ts";
import type { Handler, Peer, Transport } from "./transport.ts";

export interface ReconnectOptions {
  readonly transport: Transport;
  /** Called before each attempt. It may return another address each time. */
  readonly address: () => string;
  readonly me: () => Identity;
  /** The run that the other end must belong to, if known. */
  readonly run?: string;
  readonly handler: Handler;
  readonly clock: Clock;
  /** Uniform in [0, 1), for the jitter. */
  readonly uniform: () => number;
  /**
   * Called when an attempt fails, also if `handler` throws when the connection opens. `detail` describes `error`. `attempt`: number of failed
   * attempts since the last connection that opened.
   */
  readonly failed?: (detail: string, attempt: number, error: unknown) => void;
}

export interface Connection {
  /** The other end; null while no connection is open. */
  peer(): Peer | null;
  close(reason: string): void;
}

/** The first and the longest delay between attempts, before jitter. Each delay is twice the previous one, up to the longest. */
const BACKOFF_MS = { first: 50, max: 1000 };
export const HELLO_DEADLINE_MS = 5000;

/** Maximum number of messages that a connection holds until it is open. */
const EARLY_MAX = 1024;

export function connectForever(options: ReconnectOptions): Connection {
  const { clock, handler } = options;
  let current: Peer | null = null;
  let pending: Peer | null = null;
  let closedWith: string | null = null;
  let attempt = 0;
  let cancelWait = () => {};

  async function connect(): Promise<void> {
    const receiving = holdingEarly(handler, lost);
    try {
      pending = await options.transport.connect(options.address(), receiving);
      if (closedWith !== null) throw new Error(closedWith);
      await sayHello(pending, options.me(), HELLO_DEADLINE_MS, options.run);
      if (pending.closed) throw new Error(`${pending.name} closed right after its welcome`);
    } catch (error) {
      const detail = describeError(error);
      pending?.close(closedWith ?? detail);
      pending = null;
      if (closedWith !== null) return;
      attempt++;
      options.failed?.(detail, attempt, error);
      wait();
      return;
    }
    current = pending;
    pending = null;
    try {
      receiving.open(current);
      attempt = 0;
    } catch (error) {
      attempt++;
      options.failed?.(`the handler of ${current.name} failed: ${describeError(error)}`, attempt, error);
      current.close(describeError(error));
    }
  }

  function lost(): void {
    current = null;
    if (closedWith === null) wait();
  }

  function wait(): void {
    const ceiling = Math.min(BACKOFF_MS.max, BACKOFF_MS.first * 2 ** Math.max(0, attempt - 1));
    cancelWait = clock.after(ceiling * (0.5 + options.uniform() / 2), () => void connect());
  }

  void connect();
  return {
    peer: () => current,
    close(reason) {
      closedWith = reason;
      cancelWait();
      (current ?? pending)?.close(reason);
    },
  };
}

/** The handler of one connection. It holds the messages that arrive before the call of `open`. @param lost  called when an open connection ends */
function holdingEarly(handler: Handler, lost: () => void): Handler & { open(peer: Peer): void } {
  /** The held messages; null after the call of `open`. */
  let early: (() => void)[] | null = [];

  /** Calls `run` now, or in the call of `open`. */
  function whenOpen(run: () => void): void {
    if (early === null) run();
    else if (early.push(run) > EARLY_MAX)
      throw new Error(`more than ${EARLY_MAX} messages came before the connection was ready`);
  }

  return {
    open(peer) {
      const messages = early ?? [];
      early = null;
      handler.opened?.(peer);
      for (const run of messages) run();
    },
    told: (peer, message) => whenOpen(() => handler.told(peer, message)),
    asked(peer, message) {
      if (early === null) return handler.asked(peer, message);
      const { promise, resolve } = Promise.withResolvers<Answer>();
      whenOpen(() => resolve(handler.asked(peer, message)));
      return promise;
    },
    closed(peer, reason) {
      if (early !== null) return;
      lost();
      handler.closed?.(peer, reason);
    },
  };
}

/**
 * How actors reach each other. Actors see a `Peer`, never a socket. The socket and NATS transports pass one conformance suite
 * (tests/actors/transport/transport.test.ts).
 *
 * 1. Messages of one peer arrive in the order they were sent.
 * 2. Every ask gets exactly one answer: the other end's, or `failed` with code "deadline", "closed", "capacity" or "protocol".
 * 3. Messages are serialized, also on one thread: no two actors share an object.
 * 4. Queues are bounded: with more than `queuedBytesMax` waiting to be sent, the transport closes the peer with a reason. The
 *    sender sees `queuedBytes` grow before that.
 * 5. `parseMessage` checks every message. A bad frame closes its peer only, and is reported.
 */
import type { Clock } from "../clock.ts";
import type { AnswerTo, Ask, Message, Tell } from "../protocol.ts";

/** The other end of one connection. */
export interface Peer {
  /** Address or name of the other end, for logs. */
  readonly name: string;
  /** The name under which the gate let in a guest; undefined: the connection did not come through the gate. */
  readonly guest?: string | undefined;
  /**
   * Bytes sent and not yet taken. Over a socket this end's operating system takes them, over a broker the other end. Senders that can wait do
   * so while more than 1 MiB is not taken.
   */
  readonly queuedBytes: number;
  readonly closed: boolean;
  /** Sends a message that gets no answer. Does nothing on a closed peer; the sender checks `closed`. */
  tell(message: Tell): void;
  /** Never rejects: without an answer in time the promise resolves to `{type: "failed", code: "deadline"}`. */
  ask<A extends Ask>(message: A, deadlineMs: number): Promise<AnswerTo<A>>;
  /** Messages sent before still arrive; then the other end gets the reason. */
  close(reason: string): void;
}

/** What an actor does with what arrives. A throw in a handler closes that peer and is logged; the actor continues. */
export interface Handler {
  /** The connection is up and authenticated. The first call for this peer. */
  opened?(peer: Peer): void;
  told(peer: Peer, message: Tell): void;
  asked(peer: Peer, message: Ask): AnswerTo<Ask> | Promise<AnswerTo<Ask>>;
  /** Either end closed the connection. Called once for each opened peer, as the last call for it. */
  closed?(peer: Peer, reason: string): void;
}

export interface Listener {
  /** What `connect` takes: "ws://127.0.0.1:41234", "nats://127.0.0.1:4222/NAME". */
  readonly address: string;
  close(): Promise<void>;
}

export interface Problem {
  readonly kind: /** A frame is no message of the protocol. The peer is closed. */
    | "badFrame"
    /** A frame that arrived, or was to be sent, is larger than frameBytesMax. */
    | "oversize"
    /** More than queuedBytesMax wait to be sent. The peer is closed. */
    | "overflow"
    /** The answer to an ask has the wrong type. */
    | "badAnswer"
    /** Our handler threw. The peer is closed. */
    | "handlerThrew"
    /** A stored message was not answered in any of its deliveries; it is in the broker's quarantine stream. NATS only. */
    | "quarantined"
    /** A connection was refused before any payload was parsed. At most one report a second, with a count. */
    | "refused";
  readonly peer: string;
  readonly detail: string;
  /** Where the handler threw. */
  readonly stack?: string;
}

/** Limits of a run's connections. A larger ask or answer becomes `failed`. A larger tell, or more unread bytes, closes the connection. */
export const TRANSPORT_LIMITS = { frameBytesMax: 64 * 2 ** 20, queuedBytesMax: 256 * 2 ** 20 } as const;

export interface TransportOptions {
  readonly clock: Clock;
  readonly token: string;
  readonly frameBytesMax: number;
  /** At least frameBytesMax. */
  readonly queuedBytesMax: number;
  readonly report?: (problem: Problem) => void;
  /** Called with the type of every message that arrives, before its handler. */
  readonly received?: (type: Message["type"]) => void;
  /** Called with the size of every frame. */
  readonly passed?: (direction: "sent" | "received", bytes: number) => void;
}

export interface ListenOptions {
  /** Serves plain HTTP on the same port, to requests with the token. Sockets only; other transports refuse it. */
  readonly fetch?: (request: Request) => Response | Promise<Response>;
}

export interface Transport {
  /** @throws {Error} with the address and the reason, if it cannot listen. */
  listen(address: string, handler: Handler, options?: ListenOptions): Promise<Listener>;
  /** @throws {Error} with the address and the reason, if it cannot connect. */
  connect(address: string, handler: Handler): Promise<Peer>;
}

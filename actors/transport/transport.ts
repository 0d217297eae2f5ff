/**
 * How actors exchange messages. Actors use a `Peer`, never a socket. The socket transport and the NATS transport pass the same tests
 * (tests/actors/transport/transport.test.ts), which check these rules:
 *
 * 1. Messages from one peer arrive in the order in which the peer sent them.
 * 2. Every ask gets exactly one answer: the other end's, or `failed` with code "deadline", "closed", "capacity" or "protocol".
 * 3. The transport serializes every message, even between actors on one thread. So no two actors share an object.
 * 4. Queues are bounded. If more than `queuedBytesMax` bytes wait to be sent, the transport closes the peer with a reason. The
 *    sender can watch `queuedBytes` and wait before that happens.
 * 5. `parseMessage` checks every message. On a bad frame the transport closes that peer only, and reports the frame.
 */
import type { Clock } from "../clock.ts";
import { messageOf } from "../errors.ts";
import type { AnswerTo, Ask, Message, Tell } from "../protocol.ts";

/** The other end of one connection. */
export interface Peer {
  /** Address or name of the other end, for logs. */
  readonly name: string;
  /** The guest's name, as the gate reports it; undefined: the connection did not come through the gate. */
  readonly guest?: string | undefined;
  /**
   * Bytes that this end has sent and that still wait. On a socket, bytes wait until this machine's operating system takes them; over a
   * broker, until the other end takes them. A sender that can wait sends nothing while more than 1 MiB waits.
   */
  readonly queuedBytes: number;
  readonly closed: boolean;
  /** Sends a message that gets no answer. On a closed peer it does nothing, so a sender that must know checks `closed`. */
  tell(message: Tell): void;
  /** The promise never rejects. If no answer arrives before the deadline, it resolves to `{type: "failed", code: "deadline"}`. */
  ask<A extends Ask>(message: A, deadlineMs: number): Promise<AnswerTo<A>>;
  /** Closes the connection. Messages sent earlier still arrive; after them the other end gets the reason. */
  close(reason: string): void;
}

/** An actor's reactions to messages. If a handler throws, the transport closes that peer and reports the error; the actor continues. */
export interface Handler {
  /** The first call for a peer: its connection is open and authenticated. */
  opened?(peer: Peer): void;
  told(peer: Peer, message: Tell): void;
  asked(peer: Peer, message: Ask): AnswerTo<Ask> | Promise<AnswerTo<Ask>>;
  /** The last call for a peer: either end closed the connection, or it was lost. Called once for each opened peer. */
  closed?(peer: Peer, reason: string): void;
}

export interface Listener {
  /** The address for `connect`: "ws://127.0.0.1:41234", "nats://127.0.0.1:4222/NAME". */
  readonly address: string;
  close(): Promise<void>;
}

export interface Problem {
  readonly kind: /** A frame is no message of the protocol. The transport closes the peer. */
    | "badFrame"
    /** A frame to send, or a frame that arrived, is larger than frameBytesMax. */
    | "oversize"
    /** More than queuedBytesMax bytes wait to be sent. The transport closes the peer. */
    | "overflow"
    /** The answer to an ask has the wrong type. */
    | "badAnswer"
    /** This end's handler threw. The transport closes the peer. */
    | "handlerThrew"
    /** The actor did not answer a stored message in any delivery. The broker's quarantine stream holds the message. NATS only. */
    | "quarantined"
    /** This end refused a connection, request or parcel (at most one report a second, with a count), or the broker did not store a parcel. */
    | "refused";
  readonly peer: string;
  readonly detail: string;
  /** Where the handler threw. */
  readonly stack?: string;
}

/**
 * Limits of a run's connections. An ask gets `failed` if the ask or its answer has more than `frameBytesMax` bytes. A larger tell closes the
 * connection, and so do more than `queuedBytesMax` waiting bytes.
 */
export const TRANSPORT_LIMITS = { frameBytesMax: 64 * 2 ** 20, queuedBytesMax: 256 * 2 ** 20 } as const;

/** The other end refuses this end's token, so another attempt would not connect either. */
export class TokenRefused extends Error {}

/** The error of `Transport.connect`: the reason of `error`, after the address. */
export function cannotConnect(address: string, error: unknown): Error {
  const text = `cannot connect to ${address}: ${messageOf(error)}`;
  return error instanceof TokenRefused ? new TokenRefused(text) : new Error(text);
}

/** The reason of a `TokenRefused`. A listener behind a broker refuses a token with this text, and no other refusal has this text. */
export const TOKEN_REFUSED = "the token was refused";

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
  /** Answers plain HTTP requests that carry the token. The socket transport serves them on its own port; `NatsTransport` refuses this option. */
  readonly fetch?: (request: Request) => Response | Promise<Response>;
}

export interface Transport {
  /** @throws {Error} with the address and the reason, if it cannot listen. */
  listen(address: string, handler: Handler, options?: ListenOptions): Promise<Listener>;
  /** @throws {Error} with the address and the reason, if it cannot connect; `TokenRefused` if the other end refuses the token. */
  connect(address: string, handler: Handler): Promise<Peer>;
}

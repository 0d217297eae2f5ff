/**
 * How actors reach each other. Actors see `Peer`, never a socket; memory, worker, socket and NATS transports pass one
 * conformance suite (tests/actors/transport/transport.test.ts).
 *
 * Every implementation keeps these:
 * 1. Messages of one peer arrive in the order they were sent.
 * 2. Every ask gets exactly one answer: the other side's, or `failed` with code "deadline" or "closed".
 * 3. Messages are serialised, also in memory: no two actors share an object.
 * 4. Nothing is unbounded: past `queuedBytesMax` waiting to be sent, the peer is closed with a reason (the sender was told
 *    by `queuedBytes` long before).
 * 5. What arrives is checked by `parseMessage`; a bad frame closes that peer only, and is counted.
 */
import type { Clock } from "../clock.ts";
import type { AnswerTo, Ask, Message, Tell } from "../protocol.ts";

/** The other end of one connection. */
export interface Peer {
  /** For logs: address or name of the other end. */
  readonly name: string;
  /** Bytes handed over and not yet accepted by the other end's system. Senders that can wait should, above 1 MiB. */
  readonly queuedBytes: number;
  readonly closed: boolean;
  /** Send and forget. Silently nothing on a closed peer: `closed` is how a sender learns of it. */
  tell(message: Tell): void;
  /** Never rejects: no answer in time is `{type: "failed", code: "deadline"}`. */
  ask<A extends Ask>(message: A, deadlineMs: number): Promise<AnswerTo<A>>;
  /** What was sent before still arrives; then the other end learns the reason. */
  close(reason: string): void;
}

/** What an actor does with what arrives. A throw in a handler closes that peer and is logged; the actor lives on. */
export interface Handler {
  /** The connection is up (and authenticated). Before any other call for this peer. */
  opened?(peer: Peer): void;
  told(peer: Peer, message: Tell): void;
  asked(peer: Peer, message: Ask): AnswerTo<Ask> | Promise<AnswerTo<Ask>>;
  /** Once for each opened peer, whichever end closed it. The last call for this peer. */
  closed?(peer: Peer, reason: string): void;
}

export interface Listener {
  /** What `connect` takes: "memory:NAME", "ws://127.0.0.1:41234", "nats://127.0.0.1:4222/NAME". */
  readonly address: string;
  close(): Promise<void>;
}

/** Something that went wrong with one peer. Every one is reported, so that it can be logged and counted. */
export interface Problem {
  readonly kind: /** What arrived is not a message of the protocol. The peer is closed. */
    | "badFrame"
    /** A frame larger than frameBytesMax arrived, or was to be sent. */
    | "oversize"
    /** More than queuedBytesMax were waiting. The peer is closed. */
    | "overflow"
    /** An ask was answered with the wrong type of message. */
    | "badAnswer"
    /** A handler of ours threw. The peer is closed. */
    | "handlerThrew"
    /** A stored message was offered again and again and nobody answered it; the broker keeps it apart. NATS only. */
    | "quarantined"
    /** Turned away before a byte of payload was parsed. At most one report a second, with the number since the last. */
    | "refused";
  readonly peer: string;
  readonly detail: string;
  /** Where the handler threw. */
  readonly stack?: string;
}

export interface TransportOptions {
  readonly clock: Clock;
  /** Shared secret; compared in constant time before any payload is parsed. */
  readonly token: string;
  readonly frameBytesMax: number;
  /** At least frameBytesMax. */
  readonly queuedBytesMax: number;
  readonly report?: (problem: Problem) => void;
  /** Called with the type of every message that arrives, before its handler. For "last message" in heartbeats. */
  readonly received?: (type: Message["type"]) => void;
  /** Called with the size of every frame that came or went. */
  readonly passed?: (direction: "sent" | "received", bytes: number) => void;
}

export interface ListenOptions {
  /** Plain HTTP on the same port, for whoever sends the token. Sockets only; other transports refuse to listen with it. */
  readonly fetch?: (request: Request) => Response | Promise<Response>;
}

export interface Transport {
  /** @throws {Error} saying which address and why, if it cannot be had. */
  listen(address: string, handler: Handler, options?: ListenOptions): Promise<Listener>;
  /** @throws {Error} saying which address and why, if nobody answers there. */
  connect(address: string, handler: Handler): Promise<Peer>;
}

/**
 * How actors reach each other. Actors see `Peer`, never a socket; memory, worker and socket transports pass one
 * conformance suite (tests/actors/transport.test.ts).
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
import type { AnswerTo, Ask, Tell } from "../protocol.ts";

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
  close(reason: string): void;
}

/** What an actor does with what arrives. A throw in a handler closes that peer and is logged; the actor lives on. */
export interface Handler {
  /** The connection is up (and authenticated). */
  opened?(peer: Peer): void;
  told(peer: Peer, message: Tell): void;
  asked(peer: Peer, message: Ask): AnswerTo<Ask> | Promise<AnswerTo<Ask>>;
  closed?(peer: Peer, reason: string): void;
}

export interface Listener {
  /** What `connect` takes: "memory:NAME", "ws://127.0.0.1:41234". */
  readonly address: string;
  close(): Promise<void>;
}

export interface TransportOptions {
  readonly clock: Clock;
  /** Shared secret; compared in constant time before any payload is parsed. */
  readonly token: string;
  readonly frameBytesMax: number;
  readonly queuedBytesMax: number;
}

export interface Transport {
  listen(address: string, handler: Handler): Promise<Listener>;
  /** @throws {Error} saying which address and why, if nobody answers there. */
  connect(address: string, handler: Handler): Promise<Peer>;
}

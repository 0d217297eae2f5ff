/**
 * The part of a connection that every transport shares: asks and answers, checks, limits, closing. This file knows frames, but not how a
 * transport carries them.
 *
 * - Every ask is settled exactly once: by its answer, its deadline, its refusal, or the end of the connection.
 * - At most `ASKS_MAX` asks wait in each direction; a further ask gets `failed` with code "capacity" at once.
 * - `closed` is the last call to the handler for a peer.
 */
import { describeError, stackOf } from "../errors.ts";
import { type Answer, type AnswerTo, type Ask, answerTypes, type Tell } from "../protocol.ts";
import { decodeFrame, type Envelope, encodeFrame, type Frame, FrameTooLargeError } from "./frame.ts";
import { failed } from "./refusals.ts";
import type { Handler, Peer, Problem, TransportOptions } from "./transport.ts";

/** Maximum number of asks of one direction that wait for their answers at the same time. */
const ASKS_MAX = 4096;

/** Maximum number of characters in the report on a bad frame. */
const BAD_FRAME_TEXT_MAX = 1000;

/** The part of a connection that each transport implements. */
export interface Wire {
  /** See `Peer.queuedBytes`. */
  readonly queuedBytes: number;
  /** True while the connection closes. The wire would drop a frame now, and soon calls `lost` with the reason. */
  readonly closing?: boolean;
  /** Takes ownership of the frame. @returns false if the wire dropped the frame; then the caller must end the connection */
  send(frame: Frame, envelope: Envelope): boolean;
  /** @param drop  true: closes at once and drops the queued frames */
  close(reason: string, drop: boolean): void;
}

interface OpenAsk {
  readonly type: Ask["type"];
  readonly resolve: (answer: Answer) => void;
  readonly cancelDeadline: () => void;
}

export class WirePeer implements Peer {
  readonly name: string;
  readonly guest: string | undefined;
  readonly #wire: Wire;
  readonly #handler: Handler;
  readonly #options: TransportOptions;
  readonly #asks = new Map<number, OpenAsk>();
  #lastId = 0;
  #asksToAnswer = 0;
  #closed = false;

  constructor(name: string, wire: Wire, handler: Handler, options: TransportOptions, guest?: string) {
    this.name = name;
    this.guest = guest;
    this.#wire = wire;
    this.#handler = handler;
    this.#options = options;
  }

  get queuedBytes(): number {
    return this.#closed ? 0 : this.#wire.queuedBytes;
  }

  get closed(): boolean {
    return this.#closed;
  }

  tell(message: Tell): void {
    if (this.#closed) return;
    const problem = this.#send({ kind: "tell", body: message });
    if (problem !== null) this.refuse("oversize", problem);
  }

  ask<A extends Ask>(message: A, deadlineMs: number): Promise<AnswerTo<A>>;
  /** `#answered` checks the type of the answer; the compiler cannot see this check. */
  ask(message: Ask, deadlineMs: number): Promise<Answer> {
    if (this.#closed)
      return Promise.resolve(failed("closed", `cannot ask ${message.type}: the connection to ${this.name} is closed`));
    if (this.#asks.size >= ASKS_MAX) {
      const detail = `cannot ask ${message.type}: ${ASKS_MAX} asks to ${this.name} wait for their answer`;
      return Promise.resolve(failed("capacity", detail));
    }
    const { promise, resolve } = Promise.withResolvers<Answer>();
    const id = ++this.#lastId;
    const cancelDeadline = this.#options.clock.after(deadlineMs, () => {
      this.#settle(id, failed("deadline", `${this.name} did not answer ${message.type} within ${deadlineMs} ms`));
    });
    this.#asks.set(id, { type: message.type, resolve, cancelDeadline });
    const problem = this.#send({ kind: "ask", id, body: message });
    if (problem !== null) this.#settle(id, failed("capacity", problem));
    return promise;
  }

  close(reason: string): void {
    this.#end(reason, false);
  }

  /** The transport calls this when the connection is open. */
  start(): void {
    this.#guarded("opened", () => this.#handler.opened?.(this));
  }

  /** The transport calls this for each whole frame. */
  receive(frame: Uint8Array): void {
    if (this.#closed) return;
    const { frameBytesMax } = this.#options;
    if (frame.byteLength > frameBytesMax) {
      this.refuse("oversize", `frame of ${frame.byteLength} bytes arrived, frameBytesMax is ${frameBytesMax}`);
      return;
    }
    let envelope: Envelope;
    try {
      envelope = decodeFrame(frame);
    } catch (error) {
      // The error's text may be as long as the frame.
      this.refuse("badFrame", `bad frame: ${describeError(error)}`.slice(0, BAD_FRAME_TEXT_MAX));
      return;
    }
    this.#options.received?.(envelope.body.type);
    this.#options.passed?.("received", frame.byteLength);
    if (envelope.kind === "tell") this.#guarded(envelope.body.type, () => this.#handler.told(this, envelope.body));
    else if (envelope.kind === "ask") this.#answer(envelope.id, envelope.body);
    else this.#answered(envelope.id, envelope.body);
  }

  /** The transport calls this when the connection has ended. */
  lost(reason: string): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#finish(reason);
  }

  /** Closes the connection and reports the problem. */
  refuse(kind: Problem["kind"], detail: string): void {
    this.#report(kind, detail);
    this.#end(detail, false);
  }

  #answer(id: number, ask: Ask): void {
    if (this.#asksToAnswer >= ASKS_MAX) {
      const detail = `cannot take ${ask.type}: ${ASKS_MAX} asks of this connection wait already`;
      this.#sendAnswer(id, failed("capacity", detail));
      return;
    }
    this.#guarded(ask.type, () => {
      const answer = this.#handler.asked(this, ask);
      if (!(answer instanceof Promise)) return this.#sendAnswer(id, answer);
      this.#asksToAnswer++;
      answer
        .finally(() => this.#asksToAnswer--)
        .then(
          (late) => this.#sendAnswer(id, late),
          (error: unknown) => this.#threw(ask.type, error),
        );
    });
  }

  #sendAnswer(id: number, body: Answer): void {
    if (this.#closed) return;
    const problem = this.#send({ kind: "answer", id, body });
    if (problem !== null) this.#send({ kind: "answer", id, body: failed("capacity", problem) });
  }

  #answered(id: number, answer: Answer): void {
    if (id > this.#lastId) {
      this.refuse("badFrame", `bad frame: answer to ask ${id}, but only ${this.#lastId} were asked`);
      return;
    }
    const type = this.#asks.get(id)?.type;
    // The ask already has an answer, or its deadline has passed.
    if (type === undefined) return;
    if (answer.type === "failed" || answer.type === answerTypes[type]) {
      this.#settle(id, answer);
      return;
    }
    const detail = `${this.name} answered ${type} with ${answer.type}; expected ${answerTypes[type]}`;
    this.#report("badAnswer", detail);
    this.#settle(id, failed("protocol", detail));
  }

  #settle(id: number, answer: Answer): void {
    const ask = this.#asks.get(id);
    this.#asks.delete(id);
    ask?.cancelDeadline();
    ask?.resolve(answer);
  }

  /** Ends the connection if the other end reads too slowly. @returns an error text if the message is too large for a frame, else null */
  #send(envelope: Envelope): string | null {
    const { frameBytesMax, queuedBytesMax } = this.#options;
    if (this.#wire.closing) return null;
    let frame: Frame;
    try {
      frame = encodeFrame(envelope, frameBytesMax);
    } catch (error) {
      if (!(error instanceof FrameTooLargeError)) throw error;
      return error.message;
    }
    const bytes = this.#wire.queuedBytes + frame.byteLength;
    const isFull = bytes > queuedBytesMax;
    if (isFull || !this.#wire.send(frame, envelope)) {
      const detail = isFull
        ? `${this.name} reads too slowly: ${bytes} bytes wait for it, queuedBytesMax is ${queuedBytesMax}`
        : `a frame for ${this.name} was dropped: its socket is full`;
      this.#report("overflow", detail);
      this.#end(detail, true);
      return null;
    }
    this.#options.passed?.("sent", frame.byteLength);
    return null;
  }

  #guarded(what: string, run: () => void): void {
    try {
      run();
    } catch (error) {
      this.#threw(what, error);
    }
  }

  #threw(what: string, error: unknown): void {
    // This end's report has the stack; the other end does not get it.
    const detail = `${what}: ${describeError(error)}`;
    this.#options.report?.({ kind: "handlerThrew", peer: this.name, detail, stack: stackOf(error) });
    this.#end(`the handler of ${what} failed: ${describeError(error)}`, false);
  }

  #report(kind: Problem["kind"], detail: string): void {
    this.#options.report?.({ kind, peer: this.name, detail });
  }

  #end(reason: string, drop: boolean): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#wire.close(reason, drop);
    this.#finish(reason);
  }

  #finish(reason: string): void {
    for (const [id, { type }] of this.#asks) {
      const detail = `${this.name} closed before it answered ${type}: ${reason}`;
      this.#settle(id, failed("closed", detail));
    }
    // The handler gets this call later. Otherwise code that closes peers in a loop over a list of peers would change the list during the loop.
    queueMicrotask(() => this.#guarded("closed", () => this.#handler.closed?.(this, reason)));
  }
}

/** The open peers of one listener, so that the listener can close them all. */
export class ListenerPeers {
  readonly #peers = new Set<Peer>();
  /** Passes each call to the listener's handler, and keeps the set of open peers. */
  readonly handler: Handler;

  constructor(handler: Handler) {
    this.handler = {
      opened: (peer) => {
        this.#peers.add(peer);
        handler.opened?.(peer);
      },
      told: (peer, message) => handler.told(peer, message),
      asked: (peer, message) => handler.asked(peer, message),
      closed: (peer, reason) => {
        this.#peers.delete(peer);
        handler.closed?.(peer, reason);
      },
    };
  }

  closeAll(): void {
    for (const peer of this.#peers) peer.close("the listener closed");
  }
}

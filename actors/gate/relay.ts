/**
 * Joins two connections of the gate. A `Relay` sends each frame from one end to the other end and does not read the frame. `Offers` holds
 * the connections that env servers of other machines make in advance. This file knows no messages and no access tokens.
 *
 * - `Relay.close` closes both ends with one reason. The gate calls `close` when an end closes.
 * - A relay holds frames for an end that is not connected yet. If more than `queuedBytesMax` bytes wait for one end, the relay closes both
 *   ends.
 * - The actors at the ends ping each other, so a relay does not check for silence.
 */
import type { Clock } from "../clock.ts";

/** The socket at one end of a relay. */
export interface RelayEnd {
  /** Number of bytes that the operating system has not yet taken from this process. */
  readonly queuedBytes: number;
  /** @returns false if the socket dropped the frame */
  send(frame: Uint8Array): boolean;
  close(reason: string): void;
}

export type Side = 0 | 1;

export class Relay {
  readonly #queuedBytesMax: number;
  readonly #ends: [RelayEnd | null, RelayEnd | null] = [null, null];
  /** Frames for the end that is not connected yet; only one end can be missing. */
  #held: Uint8Array[] = [];
  #heldBytes = 0;
  #closed = false;

  constructor(queuedBytesMax: number) {
    this.#queuedBytesMax = queuedBytesMax;
  }

  get closed(): boolean {
    return this.#closed;
  }

  attach(side: Side, end: RelayEnd): void {
    if (this.#closed) {
      end.close("this connection was closed before its second end came");
      return;
    }
    this.#ends[side] = end;
    const frames = this.#held;
    this.#held = [];
    this.#heldBytes = 0;
    for (const frame of frames) this.#send(end, frame);
  }

  /** @param side  the end that the frame came from. @param frame  the relay copies the frame if it must hold it */
  frame(side: Side, frame: Uint8Array): void {
    if (this.#closed) return;
    const to = this.#ends[side === 0 ? 1 : 0];
    if (to !== null) {
      this.#send(to, frame);
      return;
    }
    this.#heldBytes += frame.byteLength;
    if (this.#heldBytes > this.#queuedBytesMax) {
      this.close(this.#overflow("one end is not connected yet", this.#heldBytes));
    } else this.#held.push(frame.slice());
  }

  close(reason: string): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#held = [];
    for (const end of this.#ends) end?.close(reason);
  }

  #send(to: RelayEnd, frame: Uint8Array): void {
    const bytes = to.queuedBytes + frame.byteLength;
    if (bytes > this.#queuedBytesMax) this.close(this.#overflow("one end reads too slowly", bytes));
    else if (!to.send(frame)) this.close("a frame was dropped: the socket of one end is closing, or full");
  }

  #overflow(why: string, bytes: number): string {
    return `${why}: ${bytes} bytes wait for it, queuedBytesMax is ${this.#queuedBytesMax}`;
  }
}

/** A function that attaches the offered connection to a relay, as the relay's second end. */
type Offer = (relay: Relay) => void;

interface Waiting {
  readonly relay: Relay;
  readonly cancel: () => void;
}

/** The offers of one env server, and the samplers that wait for them. */
interface Queue {
  readonly offers: Set<Offer>;
  readonly waiting: Set<Waiting>;
}

/**
 * Connections that env servers of other machines make in advance. A machine behind a firewall cannot accept connections, so an env server
 * there connects to the gate and waits. Each offer serves one sampler. A sampler that finds no offer waits at most `waitMsMax` for one.
 */
export class Offers {
  readonly #clock: Clock;
  readonly #waitMsMax: number;
  readonly #queues = new Map<string, Queue>();

  constructor(clock: Clock, waitMsMax: number) {
    this.#clock = clock;
    this.#waitMsMax = waitMsMax;
  }

  /** Adds an offer. @returns a function that withdraws the offer; call this function when the offered connection ends */
  add(name: string, offer: Offer): () => void {
    const queue = this.#queue(name);
    for (const first of queue.waiting) {
      queue.waiting.delete(first);
      first.cancel();
      if (first.relay.closed) continue;
      offer(first.relay);
      this.#tidy(name, queue);
      return () => {};
    }
    queue.offers.add(offer);
    return () => {
      queue.offers.delete(offer);
      this.#tidy(name, queue);
    };
  }

  /** Connects a sampler's relay to an offer. If there is no offer now, the relay waits for the next offer. */
  take(name: string, relay: Relay): void {
    const queue = this.#queue(name);
    const [offer] = queue.offers;
    if (offer !== undefined) {
      queue.offers.delete(offer);
      offer(relay);
      this.#tidy(name, queue);
      return;
    }
    const cancel = this.#clock.after(this.#waitMsMax, () => {
      queue.waiting.delete(waiting);
      relay.close(`${name} offered no connection within ${this.#waitMsMax} ms`);
      this.#tidy(name, queue);
    });
    const waiting = { relay, cancel };
    queue.waiting.add(waiting);
  }

  #queue(name: string): Queue {
    return this.#queues.getOrInsertComputed(name, () => ({ offers: new Set(), waiting: new Set() }));
  }

  #tidy(name: string, queue: Queue): void {
    if (queue.offers.size + queue.waiting.size === 0) this.#queues.delete(name);
  }
}

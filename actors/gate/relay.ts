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

/**
 * Connections that env servers of other machines make in advance. A machine behind a firewall cannot accept connections, so an env server
 * there connects to the gate and waits. Each offer serves one sampler. A sampler that finds no offer waits at most `waitMsMax` for one.
 */
export class Offers {
  readonly #clock: Clock;
  readonly #waitMsMax: number;
  readonly #offers = new Set<{ readonly name: string; readonly attach: (relay: Relay) => void }>();
  /** The relays of samplers that wait for an offer, oldest first. */
  readonly #waiting = new Set<{ readonly name: string; readonly relay: Relay; readonly cancel: () => void }>();

  constructor(clock: Clock, waitMsMax: number) {
    this.#clock = clock;
    this.#waitMsMax = waitMsMax;
  }

  /**
   * Adds an offer of the env server `name`.
   *
   * @param attach  attaches the offered connection to a relay, as the relay's second end
   * @returns a function that withdraws the offer; call this function when the offered connection ends
   */
  add(name: string, attach: (relay: Relay) => void): () => void {
    for (const first of this.#waiting) {
      if (first.name !== name) continue;
      this.#waiting.delete(first);
      first.cancel();
      if (first.relay.closed) continue;
      attach(first.relay);
      return () => {};
    }
    const offer = { name, attach };
    this.#offers.add(offer);
    return () => void this.#offers.delete(offer);
  }

  /** Connects a sampler's relay to an offer. If there is no offer now, the relay waits for the next offer. */
  take(name: string, relay: Relay): void {
    const offer = this.#offers.values().find((one) => one.name === name);
    if (offer !== undefined) {
      this.#offers.delete(offer);
      offer.attach(relay);
      return;
    }
    const cancel = this.#clock.after(this.#waitMsMax, () => {
      this.#waiting.delete(waiting);
      relay.close(`${name} offered no connection within ${this.#waitMsMax} ms`);
    });
    const waiting = { name, relay, cancel };
    this.#waiting.add(waiting);
  }
}

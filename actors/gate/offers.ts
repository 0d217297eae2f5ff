/**
 * Offers: connections that env servers of other machines make in advance, each for one sampler. A machine behind a firewall takes
 * no connections, so it connects to the gate and waits. Knows no sockets.
 *
 * - An offer is used once. A sampler that finds none waits for the next, at most `waitMsMax`.
 */
import type { Clock } from "../clock.ts";
import type { Relay } from "./relay.ts";

/** Makes the offered connection the other end of the relay. */
export type Offer = (relay: Relay) => void;

interface Waiting {
  readonly relay: Relay;
  readonly cancel: () => void;
}

/** The offers of one env server, and the samplers that wait for them. */
interface Queue {
  readonly offers: Set<Offer>;
  readonly waiting: Set<Waiting>;
}

export class Offers {
  readonly #clock: Clock;
  readonly #waitMsMax: number;
  readonly #queues = new Map<string, Queue>();

  constructor(clock: Clock, waitMsMax: number) {
    this.#clock = clock;
    this.#waitMsMax = waitMsMax;
  }

  /** @returns a function that withdraws the offer; call it when the offer's connection ends unused */
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

  /** Connects a sampler's relay to an offer, now or when one comes. */
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
    const queue = this.#queues.get(name) ?? { offers: new Set(), waiting: new Set() };
    this.#queues.set(name, queue);
    return queue;
  }

  #tidy(name: string, queue: Queue): void {
    if (queue.offers.size + queue.waiting.size === 0) this.#queues.delete(name);
  }
}

/**
 * Lets an env server listen behind a firewall. `listen` offers connections: it connects to the run's gate, and the connection waits until a
 * sampler uses it.
 *
 * - `SPARE` offers wait unused. When a sampler uses an offer, this file makes the next one. It replaces a lost offer after a delay. The
 *   delay grows with the failures in a row.
 */
import type { Clock } from "../clock.ts";
import { describeError } from "../errors.ts";
import { ListenerPeers } from "./peer.ts";
import type { Handler, Listener, Transport } from "./transport.ts";

/** Number of samplers that can connect at the same time without waiting. */
const SPARE = 4;
const BACKOFF_MS = { first: 100, max: 2000 };

export interface OfferOptions {
  readonly transport: Transport;
  readonly clock: Clock;
  /** Called when an attempt to make an offer fails. */
  readonly failed: (detail: string) => void;
}

export const offering = (options: OfferOptions): Transport => ({
  connect: (address, handler) => options.transport.connect(address, handler),
  async listen(address, handler): Promise<Listener> {
    const offers = new OfferedConnections(address, handler, options);
    offers.fill();
    return { address, close: async () => offers.close() };
  },
});

class OfferedConnections {
  readonly #address: string;
  readonly #options: OfferOptions;
  /** Number of unused offers. An offer counts from the start of its attempt to connect. */
  #spare = 0;
  #failures = 0;
  #closed = false;
  #cancelWait = () => {};
  readonly #peers: ListenerPeers;

  constructor(address: string, handler: Handler, options: OfferOptions) {
    this.#address = address;
    this.#peers = new ListenerPeers(handler);
    this.#options = options;
  }

  fill(): void {
    this.#cancelWait();
    for (; this.#spare < SPARE && !this.#closed; this.#spare++) void this.#offer();
  }

  close(): void {
    this.#closed = true;
    this.#cancelWait();
    this.#peers.closeAll();
  }

  async #offer(): Promise<void> {
    const { handler } = this.#peers;
    let used = false;
    const use = () => {
      if (used) return;
      used = true;
      this.#spare--;
      this.fill();
    };
    try {
      const peer = await this.#options.transport.connect(this.#address, {
        ...handler,
        told(from, message) {
          use();
          handler.told(from, message);
        },
        asked(from, ask) {
          use();
          return handler.asked(from, ask);
        },
        closed: (from, reason) => {
          handler.closed?.(from, reason);
          if (!used) this.#lost();
        },
      });
      this.#failures = 0;
      if (this.#closed) peer.close("the listener closed");
    } catch (error) {
      this.#options.failed(describeError(error));
      this.#failures++;
      this.#lost();
    }
  }

  #lost(): void {
    this.#spare--;
    if (this.#closed) return;
    const { first, max } = BACKOFF_MS;
    this.#cancelWait();
    this.#cancelWait = this.#options.clock.after(Math.min(max, first * 2 ** this.#failures), () => this.fill());
  }
}

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
import type { Listener, Transport } from "./transport.ts";

/** Number of samplers that can connect at the same time without waiting. */
const SPARE = 4;
const BACKOFF_MS = { first: 100, max: 2000 };

export interface OfferOptions {
  readonly transport: Transport;
  readonly clock: Clock;
  /** Called when an attempt to make an offer fails. */
  readonly failed: (detail: string) => void;
}

export const offering = ({ transport, clock, failed }: OfferOptions): Transport => ({
  connect: (address, handler) => transport.connect(address, handler),
  async listen(address, listening): Promise<Listener> {
    const peers = new ListenerPeers(listening);
    const { handler } = peers;
    /** Number of unused offers. An offer counts from the start of its attempt to connect. */
    let spare = 0;
    let failures = 0;
    let closed = false;
    let cancelWait = () => {};

    function fill(): void {
      cancelWait();
      for (; spare < SPARE && !closed; spare++) void offer();
    }

    async function offer(): Promise<void> {
      let used = false;
      const use = () => {
        if (used) return;
        used = true;
        spare--;
        fill();
      };
      try {
        const peer = await transport.connect(address, {
          ...handler,
          told(from, message) {
            use();
            handler.told(from, message);
          },
          asked(from, ask) {
            use();
            return handler.asked(from, ask);
          },
          closed(from, reason) {
            handler.closed?.(from, reason);
            if (!used) lost();
          },
        });
        failures = 0;
        if (closed) peer.close("the listener closed");
      } catch (error) {
        failed(describeError(error));
        failures++;
        lost();
      }
    }

    function lost(): void {
      spare--;
      if (closed) return;
      cancelWait();
      cancelWait = clock.after(Math.min(BACKOFF_MS.max, BACKOFF_MS.first * 2 ** failures), fill);
    }

    fill();
    return {
      address,
      async close() {
        closed = true;
        cancelWait();
        peers.closeAll();
      },
    };
  },
});

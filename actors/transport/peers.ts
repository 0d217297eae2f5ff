/** The peers of one listener: closing the listener closes them. */
import type { Handler, Peer } from "./transport.ts";

export class ListenerPeers {
  readonly #peers = new Set<Peer>();
  /** The listener's handler. It also lists the open peers. */
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

/** The transport of an actor's process: sockets or NATS, by the scheme of each address. */
import { ANY_PORT, isBroker } from "./address.ts";
import { NatsTransport, parseNatsAddress } from "./nats/nats.ts";
import { SocketTransport } from "./socket.ts";
import type { SocketOptions } from "./socket-wire.ts";
import type { Handler, Listener, ListenOptions, Peer, Transport } from "./transport.ts";

export class RoutedTransport implements Transport {
  readonly #sockets: SocketTransport;
  readonly #nats: NatsTransport;

  constructor(options: SocketOptions) {
    this.#sockets = new SocketTransport(options);
    this.#nats = new NatsTransport(options);
  }

  /** HTTP does not go through a broker: a port of this machine serves it, and the address names the port. */
  async listen(address: string, handler: Handler, options: ListenOptions = {}): Promise<Listener> {
    if (!isBroker(address)) return this.#sockets.listen(address, handler, options);
    parseNatsAddress(address);
    if (options.fetch === undefined) return this.#nats.listen(address, handler);
    const http = await this.#sockets.listen(ANY_PORT, refusePeers, options);
    const messages = await this.#nats.listen(address, handler).catch(async (error: unknown) => {
      await http.close();
      throw error;
    });
    return {
      address: `${messages.address}?http=${new URL(http.address).host}`,
      async close() {
        await messages.close();
        await http.close();
      },
    };
  }

  connect(address: string, handler: Handler): Promise<Peer> {
    return (isBroker(address) ? this.#nats : this.#sockets).connect(address, handler);
  }
}

/** The port serves HTTP only. */
const refusePeers: Handler = {
  opened: (peer) => peer.close("messages go through the broker"),
  told() {},
  asked: () => ({ type: "failed", code: "protocol", detail: "messages go through the broker" }),
};

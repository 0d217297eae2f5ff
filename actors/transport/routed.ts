/** The transport of an actor's process: sockets or NATS, by the scheme of each address. */
import { ANY_PORT, isBroker, parseNatsAddress } from "./address.ts";
import type { NatsTransport } from "./nats/nats.ts";
import { failed } from "./refusals.ts";
import { SocketTransport } from "./socket.ts";
import type { SocketOptions } from "./socket-wire.ts";
import type { Handler, Listener, ListenOptions, Peer, Transport } from "./transport.ts";

export class RoutedTransport implements Transport {
  readonly #sockets: SocketTransport;
  readonly #options: SocketOptions;
  #nats: Promise<NatsTransport> | null = null;

  constructor(options: SocketOptions) {
    this.#sockets = new SocketTransport(options);
    this.#options = options;
  }

  /** HTTP does not go through a broker: a port of this machine serves it, and the address names the port. */
  async listen(address: string, handler: Handler, options: ListenOptions = {}): Promise<Listener> {
    if (!isBroker(address)) return this.#sockets.listen(address, handler, options);
    parseNatsAddress(address);
    const nats = await this.#throughBroker();
    if (options.fetch === undefined) return nats.listen(address, handler);
    const http = await this.#sockets.listen(ANY_PORT, refusePeers, options);
    const messages = await nats.listen(address, handler).catch(async (error: unknown) => {
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

  async connect(address: string, handler: Handler): Promise<Peer> {
    const transport = isBroker(address) ? await this.#throughBroker() : this.#sockets;
    return transport.connect(address, handler);
  }

  /** Imported on demand: few runs have a broker. */
  async #throughBroker(): Promise<NatsTransport> {
    this.#nats ??= import("./nats/nats.ts").then(({ NatsTransport }) => new NatsTransport(this.#options));
    return this.#nats;
  }
}

/** The port serves HTTP only. */
const refusePeers: Handler = {
  opened: (peer) => peer.close("messages go through the broker"),
  told() {},
  asked: () => failed("protocol", "messages go through the broker"),
};

/** The transport of an actor's process. The scheme of each address selects sockets or NATS. */
import { ANY_PORT, isBroker } from "./address.ts";
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

  /** A broker does not carry HTTP. With a broker, a port of this machine serves HTTP, and the returned address contains that port. */
  async listen(address: string, handler: Handler, options: ListenOptions = {}): Promise<Listener> {
    if (!isBroker(address)) return this.#sockets.listen(address, handler, options);
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

  /** Imports the NATS code at its first use, because few runs have a broker. */
  async #throughBroker(): Promise<NatsTransport> {
    this.#nats ??= import("./nats/nats.ts").then(({ NatsTransport }) => new NatsTransport(this.#options));
    return this.#nats;
  }
}

/** The handler of a port that serves HTTP only. */
const refusePeers: Handler = {
  opened: (peer) => peer.close("messages go through the broker"),
  told() {},
  asked: () => failed("protocol", "messages go through the broker"),
};

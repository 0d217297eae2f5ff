/**
 * Transport between actors of one thread. It packs, copies and checks messages as a socket does.
 *
 * - A network delivers messages in the order they were sent, in a later turn of the event loop.
 * - `queuedBytes` counts the bytes not yet delivered.
 */
import { sameSecret } from "../../../actors/transport/address.ts";
import type { Frame } from "../../../actors/transport/frame.ts";
import { ListenerPeers, type Wire, WirePeer } from "../../../actors/transport/peer.ts";
import {
  type Handler,
  type Listener,
  type ListenOptions,
  type Peer,
  TokenRefused,
  type Transport,
  type TransportOptions,
} from "../../../actors/transport/transport.ts";

interface MemoryListener {
  readonly token: string;
  /** Makes the listener's end of a connection. */
  accept(name: string, wire: Wire): WirePeer;
  refused(detail: string): void;
}

/** The listeners of memory addresses. Transports that share a network reach each other. */
export class MemoryNetwork {
  readonly listeners = new Map<string, MemoryListener>();
  #waiting: (() => void)[] = [];

  deliver(run: () => void): void {
    if (this.#waiting.push(run) === 1) setImmediate(() => this.#drain());
  }

  /** Delivers only the messages that wait now. Those sent meanwhile wait for a later turn, so that timers and sockets run in between. */
  #drain(): void {
    const due = this.#waiting;
    this.#waiting = [];
    for (const run of due) run();
  }
}

class MemoryWire implements Wire {
  readonly #network: MemoryNetwork;
  #far: WirePeer | null = null;
  #dropped = false;
  queuedBytes = 0;

  constructor(network: MemoryNetwork) {
    this.#network = network;
  }

  /** @param far  the peer at the other end */
  join(far: WirePeer): void {
    this.#far = far;
  }

  send(frame: Frame): boolean {
    this.queuedBytes += frame.byteLength;
    this.#network.deliver(() => {
      this.queuedBytes -= frame.byteLength;
      if (!this.#dropped) this.#far?.receive(frame);
    });
    return true;
  }

  close(reason: string, drop: boolean): void {
    this.#dropped = drop;
    this.#network.deliver(() => this.#far?.lost(reason));
  }
}

export class MemoryTransport implements Transport {
  readonly #network: MemoryNetwork;
  readonly #options: TransportOptions;
  #connections = 0;

  constructor(network: MemoryNetwork, options: TransportOptions) {
    this.#network = network;
    this.#options = options;
  }

  async listen(address: string, handler: Handler, { fetch }: ListenOptions = {}): Promise<Listener> {
    const { listeners } = this.#network;
    if (!address.startsWith("memory:")) throw new Error(`cannot listen on ${address}: expected memory:NAME`);
    if (fetch !== undefined) throw new Error(`cannot serve HTTP on ${address}: use the socket transport`);
    if (listeners.has(address)) throw new Error(`cannot listen on ${address}: another listener has this address`);
    const peers = new ListenerPeers(handler);
    const options = this.#options;
    listeners.set(address, {
      token: options.token,
      accept: (name, wire) => new WirePeer(name, wire, peers.handler, options),
      refused: (detail) => options.report?.({ kind: "refused", peer: address, detail }),
    });
    return {
      address,
      close: async () => {
        listeners.delete(address);
        // What was sent before still arrives: the last messages of an actor that has left.
        await new Promise<void>((resolve) => this.#network.deliver(resolve));
        peers.closeAll();
      },
    };
  }

  async connect(address: string, handler: Handler): Promise<Peer> {
    const network = this.#network;
    const listener = network.listeners.get(address);
    if (listener === undefined) throw new Error(`cannot connect to ${address}: nothing listens there`);
    if (!sameSecret(this.#options.token, listener.token)) {
      listener.refused("wrong token");
      throw new TokenRefused(`cannot connect to ${address}: the token was refused`);
    }
    const nearWire = new MemoryWire(network);
    const farWire = new MemoryWire(network);
    const near = new WirePeer(address, nearWire, handler, this.#options);
    const far = listener.accept(`${address}#${++this.#connections}`, farWire);
    nearWire.join(far);
    farWire.join(near);
    network.deliver(() => far.start());
    near.start();
    return near;
  }
}

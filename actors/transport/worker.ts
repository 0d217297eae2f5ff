/**
 * The transport between threads: many connections over one port to a Bun worker. Both ends make a transport over their end of the
 * port; either end may listen. Frames are transferred, not copied.
 *
 * - A port has no back-pressure, so the reader acknowledges each frame; `queuedBytes` counts the bytes not yet acknowledged.
 * - When the thread at the other end ends, every connection to it closes.
 */
import type { Frame } from "./frame.ts";
import { type Wire, WirePeer } from "./peer.ts";
import { ListenerPeers } from "./peers.ts";
import { sameSecret } from "./token.ts";
import type { Handler, Listener, ListenOptions, Peer, Transport, TransportOptions } from "./transport.ts";

/** A `Worker`, the global scope inside one, or a `MessagePort`. */
export interface Port {
  postMessage(message: unknown, transfer: ArrayBuffer[]): void;
  addEventListener(type: "message" | "close", listener: (event: { readonly data?: unknown }) => void): void;
  /** A MessagePort delivers nothing before this call. */
  start?(): void;
}

export interface WorkerOptions extends TransportOptions {
  readonly port: Port;
}

/** What the port carries. The end that connects numbers the connection, so `mine` says whose number `id` is. */
type Parcel =
  | { readonly kind: "connect"; readonly id: number; readonly address: string; readonly token: string }
  | { readonly kind: "accepted"; readonly id: number }
  | { readonly kind: "refused"; readonly id: number; readonly why: string }
  | { readonly kind: "frame"; readonly id: number; readonly mine: boolean; readonly frame: Frame }
  | { readonly kind: "taken"; readonly id: number; readonly mine: boolean; readonly bytes: number }
  | { readonly kind: "closed"; readonly id: number; readonly mine: boolean; readonly reason: string };

interface Connection {
  readonly peer: WirePeer;
  readonly wire: PortWire;
}

interface PendingConnect {
  readonly address: string;
  readonly handler: Handler;
  resolve(peer: Peer): void;
  reject(error: Error): void;
}

class PortWire implements Wire {
  readonly #send: (parcel: Parcel, transfer?: ArrayBuffer[]) => void;
  readonly #id: number;
  /** True at the end that connects. */
  readonly #mine: boolean;
  readonly #gone: () => void;
  queuedBytes = 0;

  constructor(send: (parcel: Parcel, transfer?: ArrayBuffer[]) => void, id: number, mine: boolean, gone: () => void) {
    this.#send = send;
    this.#id = id;
    this.#mine = mine;
    this.#gone = gone;
  }

  send(frame: Frame): boolean {
    this.queuedBytes += frame.byteLength;
    this.#send({ kind: "frame", id: this.#id, mine: this.#mine, frame }, [frame.buffer]);
    return true;
  }

  close(reason: string): void {
    this.#gone();
    this.#send({ kind: "closed", id: this.#id, mine: this.#mine, reason });
  }
}

export class WorkerTransport implements Transport {
  readonly #options: WorkerOptions;
  readonly #listeners = new Map<string, ListenerPeers>();
  readonly #pending = new Map<number, PendingConnect>();
  /** By id: connections that this end made, and those that the other end made. */
  readonly #outgoing = new Map<number, Connection>();
  readonly #incoming = new Map<number, Connection>();
  #lastId = 0;
  #portClosed = false;

  constructor(options: WorkerOptions) {
    this.#options = options;
    const { port } = options;
    port.addEventListener("message", ({ data }) => this.#take(data as Parcel));
    port.addEventListener("close", () => this.#portEnded());
    port.start?.();
  }

  async listen(address: string, handler: Handler, { fetch }: ListenOptions = {}): Promise<Listener> {
    if (!address.startsWith("worker:")) throw new Error(`cannot listen on ${address}: expected worker:NAME`);
    if (fetch !== undefined) throw new Error(`cannot serve HTTP on ${address}: use the socket transport`);
    if (this.#listeners.has(address)) throw new Error(`cannot listen on ${address}: another listener has this address`);
    const peers = new ListenerPeers(handler);
    this.#listeners.set(address, peers);
    return {
      address,
      close: async () => {
        this.#listeners.delete(address);
        peers.closeAll();
      },
    };
  }

  connect(address: string, handler: Handler): Promise<Peer> {
    const { promise, resolve, reject } = Promise.withResolvers<Peer>();
    if (this.#portClosed) {
      reject(new Error(`cannot connect to ${address}: the worker has ended`));
      return promise;
    }
    const id = ++this.#lastId;
    this.#pending.set(id, { address, handler, resolve, reject });
    this.#send({ kind: "connect", id, address, token: this.#options.token });
    return promise;
  }

  #send(parcel: Parcel, transfer: ArrayBuffer[] = []): void {
    if (!this.#portClosed) this.#options.port.postMessage(parcel, transfer);
  }

  #take(parcel: Parcel): void {
    switch (parcel.kind) {
      case "connect":
        this.#accept(parcel);
        return;
      case "accepted": {
        const pending = this.#pending.get(parcel.id);
        if (pending === undefined) return;
        this.#pending.delete(parcel.id);
        pending.resolve(this.#open(parcel.id, true, pending.address, pending.handler));
        return;
      }
      case "refused": {
        const pending = this.#pending.get(parcel.id);
        this.#pending.delete(parcel.id);
        pending?.reject(new Error(`cannot connect to ${pending.address}: ${parcel.why}`));
        return;
      }
      case "frame": {
        const { id, mine, frame } = parcel;
        this.#send({ kind: "taken", id, mine: !mine, bytes: frame.byteLength });
        this.#connections(!mine).get(id)?.peer.receive(frame);
        return;
      }
      case "taken": {
        const connection = this.#connections(!parcel.mine).get(parcel.id);
        if (connection !== undefined) connection.wire.queuedBytes -= parcel.bytes;
        return;
      }
      case "closed": {
        const connections = this.#connections(!parcel.mine);
        const connection = connections.get(parcel.id);
        connections.delete(parcel.id);
        connection?.peer.lost(parcel.reason);
        return;
      }
      default:
        parcel satisfies never;
    }
  }

  #accept({ id, address, token }: Extract<Parcel, { kind: "connect" }>): void {
    const peers = this.#listeners.get(address);
    if (peers === undefined) {
      this.#send({ kind: "refused", id, why: "nothing listens there" });
      return;
    }
    if (!sameSecret(token, this.#options.token)) {
      this.#options.report?.({ kind: "refused", peer: address, detail: "wrong token" });
      this.#send({ kind: "refused", id, why: "the token was refused" });
      return;
    }
    this.#send({ kind: "accepted", id });
    peers.add(this.#open(id, false, `${address}#${id}`, peers.handler));
  }

  #open(id: number, mine: boolean, name: string, handler: Handler): WirePeer {
    const connections = this.#connections(mine);
    const wire = new PortWire(
      (parcel, transfer) => this.#send(parcel, transfer),
      id,
      mine,
      () => connections.delete(id),
    );
    const peer = new WirePeer(name, wire, handler, this.#options);
    connections.set(id, { peer, wire });
    peer.start();
    return peer;
  }

  #connections(mine: boolean): Map<number, Connection> {
    return mine ? this.#outgoing : this.#incoming;
  }

  #portEnded(): void {
    this.#portClosed = true;
    for (const connections of [this.#outgoing, this.#incoming]) {
      for (const { peer } of connections.values()) peer.lost("the worker has ended");
      connections.clear();
    }
    for (const { address, reject } of this.#pending.values()) {
      reject(new Error(`cannot connect to ${address}: the worker has ended`));
    }
    this.#pending.clear();
  }
}

/**
 * The transport between the threads of one process. The main thread knows which Bun worker listens where; each connection is a
 * `MessagePort` of its own, so frames go from thread to thread and not through the main thread. Frames are transferred, not copied.
 *
 * - A port has no back-pressure, so the reader acknowledges each frame; `queuedBytes` counts the bytes not yet acknowledged.
 * - When the thread at the other end ends, every connection to it closes.
 */
import type { Frame } from "./frame.ts";
import { type Wire, WirePeer } from "./peer.ts";
import { ListenerPeers } from "./peers.ts";
import { CONNECT_MS_MAX } from "./socket-wire.ts";
import { sameSecret } from "./token.ts";
import type { Handler, Listener, ListenOptions, Peer, Transport, TransportOptions } from "./transport.ts";

/** A `Worker`, the global scope inside one, or a `MessagePort`. */
export interface Port {
  postMessage(message: unknown, transfer: (ArrayBuffer | MessagePort)[]): void;
  addEventListener(type: "message" | "close", listener: (event: { readonly data?: unknown }) => void): void;
  /** A MessagePort delivers nothing before this call. */
  start?(): void;
}

export interface WorkerOptions extends TransportOptions {
  /** In a worker, its main thread; left out in the main thread. */
  readonly port?: Port;
}

/** What goes between a worker and the main thread, among other messages. */
type Notice =
  | { readonly kind: "listens"; readonly address: string }
  | { readonly kind: "left"; readonly address: string }
  | Connect;
interface Connect {
  readonly kind: "connect";
  readonly address: string;
  readonly token: string;
  /** The listener's end of the connection. */
  readonly port: MessagePort;
}

/** What goes over a connection. */
type Parcel =
  | { readonly kind: "accepted" }
  | { readonly kind: "refused"; readonly why: string }
  | { readonly kind: "frame"; readonly frame: Frame }
  | { readonly kind: "taken"; readonly bytes: number }
  | { readonly kind: "closed"; readonly reason: string };

/** One end of a connection. The end that reads `closed` or `refused` closes the port, so that nothing sent before is lost. */
class PortWire implements Wire {
  readonly #port: MessagePort;
  queuedBytes = 0;

  constructor(port: MessagePort) {
    this.#port = port;
  }

  send(frame: Frame): boolean {
    this.queuedBytes += frame.byteLength;
    this.#port.postMessage({ kind: "frame", frame } satisfies Parcel, [frame.buffer]);
    return true;
  }

  close(reason: string): void {
    this.#port.postMessage({ kind: "closed", reason } satisfies Parcel);
  }
}

export class WorkerTransport implements Transport {
  readonly #options: WorkerOptions;
  readonly #listeners = new Map<string, ListenerPeers>();
  /** In the main thread: the worker that listens at an address. */
  readonly #workers = new Map<string, Port>();
  #connections = 0;

  constructor(options: WorkerOptions) {
    this.#options = options;
    if (options.port !== undefined) this.attach(options.port);
  }

  /** In the main thread: lets a worker listen and connect. */
  attach(port: Port): void {
    port.addEventListener("message", ({ data }) => this.#noticed(port, data as Notice));
    port.addEventListener("close", () => {
      for (const [address, owner] of this.#workers) if (owner === port) this.#workers.delete(address);
    });
    port.start?.();
  }

  async listen(address: string, handler: Handler, { fetch }: ListenOptions = {}): Promise<Listener> {
    if (!address.startsWith("worker:")) throw new Error(`cannot listen on ${address}: expected worker:NAME`);
    if (fetch !== undefined) throw new Error(`cannot serve HTTP on ${address}: use the socket transport`);
    if (this.#listeners.has(address)) throw new Error(`cannot listen on ${address}: another listener has this address`);
    const peers = new ListenerPeers(handler);
    this.#listeners.set(address, peers);
    const notify = (kind: "listens" | "left") =>
      this.#options.port?.postMessage({ kind, address } satisfies Notice, []);
    notify("listens");
    return {
      address,
      close: async () => {
        this.#listeners.delete(address);
        notify("left");
        peers.closeAll();
      },
    };
  }

  connect(address: string, handler: Handler): Promise<Peer> {
    const { promise, resolve, reject } = Promise.withResolvers<Peer>();
    const { clock, token } = this.#options;
    const { port1: near, port2: far } = new MessageChannel();
    const { end } = this.#open(near, address, handler, {
      accepted: resolve,
      refused: (why) => reject(new Error(`cannot connect to ${address}: ${why}`)),
    });
    // A thread that ends before it reads the request leaves the port open.
    const cancel = clock.after(CONNECT_MS_MAX, () => end(`no answer within ${CONNECT_MS_MAX} ms`));
    this.#route({ kind: "connect", address, token, port: far });
    return promise.finally(cancel);
  }

  #noticed(from: Port, notice: Notice): void {
    if (notice.kind === "listens") this.#workers.set(notice.address, from);
    else if (notice.kind === "left") this.#workers.delete(notice.address);
    else if (notice.kind === "connect") this.#route(notice, this.#options.port);
  }

  /** Accepts the connection here, or passes it on. @param cameFrom  the port that sent the request, which does not get it back */
  #route(request: Connect, cameFrom?: Port): void {
    const { address, port, token } = request;
    const peers = this.#listeners.get(address);
    if (peers !== undefined) {
      this.#accept(peers, address, token, port);
      return;
    }
    const next = this.#options.port ?? this.#workers.get(address);
    if (next === undefined || next === cameFrom) refuse(port, "nothing listens there");
    else next.postMessage(request, [port]);
  }

  #accept(peers: ListenerPeers, address: string, token: string, port: MessagePort): void {
    if (!sameSecret(token, this.#options.token)) {
      this.#options.report?.({ kind: "refused", peer: address, detail: "wrong token" });
      refuse(port, "the token was refused");
      return;
    }
    port.postMessage({ kind: "accepted" } satisfies Parcel);
    const { peer } = this.#open(port, `${address}#${++this.#connections}`, peers.handler, null);
    peer.start();
  }

  /** @param answer  called with the listening end's answer; null at the listening end */
  #open(
    port: MessagePort,
    name: string,
    handler: Handler,
    answer: { accepted(peer: Peer): void; refused(why: string): void } | null,
  ): { peer: WirePeer; end(reason: string): void } {
    const wire = new PortWire(port);
    const peer = new WirePeer(name, wire, handler, this.#options);
    let opened = answer === null;
    const end = (reason: string) => {
      port.close();
      if (opened) peer.lost(reason);
      else answer?.refused(reason);
    };
    port.onmessage = ({ data }: { readonly data: Parcel }) => {
      switch (data.kind) {
        case "accepted":
          opened = true;
          peer.start();
          answer?.accepted(peer);
          return;
        case "refused":
          end(data.why);
          return;
        case "frame": {
          port.postMessage({ kind: "taken", bytes: data.frame.byteLength } satisfies Parcel);
          peer.receive(data.frame);
          return;
        }
        case "taken":
          wire.queuedBytes -= data.bytes;
          return;
        case "closed":
          end(data.reason);
          return;
        default:
          data satisfies never;
      }
    };
    port.addEventListener("close", () => end("the thread at the other end has ended"));
    return { peer, end };
  }
}

function refuse(port: MessagePort, why: string): void {
  port.postMessage({ kind: "refused", why } satisfies Parcel);
}

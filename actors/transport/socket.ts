/**
 * Transport between actors over WebSockets: one WebSocket per peer, one or more frames per binary message (bundle.ts). Processes, workers
 * and actors on one thread all use this transport.
 *
 * - The Authorization header holds the token. The listener compares the token before it handles a frame or a plain HTTP request. The
 *   listener refuses WebSockets from browser pages (they send an Origin header).
 * - Without a token a listener accepts a loopback address only.
 * - A frame of more than `frameBytesMax` bytes ends its own connection and no other.
 * - Both ends close a connection on which nothing arrives for `silenceMsMax`.
 */
import type { Server, ServerWebSocket } from "bun";
import { describeError } from "../errors.ts";
import { bearer, isLoopback, sameSecret } from "./address.ts";
import { bundling, takeMessage } from "./bundle.ts";
import { ListenerPeers, WirePeer } from "./peer.ts";
import { reportSeldom } from "./refusals.ts";
import type { SilenceWatch } from "./silence.ts";
import {
  boundTo,
  CONNECT_MS_MAX,
  clientWire,
  parseAddress,
  type SocketOptions,
  serverLimits,
  serverWire,
  TOO_BIG,
  watchSocket,
} from "./socket-wire.ts";
import {
  cannotConnect,
  type Handler,
  type Listener,
  type ListenOptions,
  type Peer,
  TOKEN_REFUSED,
  TokenRefused,
  type Transport,
} from "./transport.ts";

/** When the listener closes, its peers have this much time to read the frames already sent. */
const CLOSE_MS_MAX = 500;

/** HTTP header in which the gate names the guest whose connection it relays. */
export const GUEST_HEADER = "X-Guest";

interface Data {
  readonly guest: string | undefined;
  /** Set when the socket opens. */
  peer?: WirePeer;
  watch?: SilenceWatch;
}

export class SocketTransport implements Transport {
  readonly #options: SocketOptions;

  constructor(options: SocketOptions) {
    this.#options = options;
  }

  async listen(address: string, handler: Handler, { fetch }: ListenOptions = {}): Promise<Listener> {
    const url = parseAddress(address);
    if (url.protocol !== "ws:") throw new Error(`cannot listen on ${address}: only the gate (join.listen) can use TLS`);
    if (!isLoopback(url.hostname) && this.#options.token === "") {
      throw new Error(`cannot listen on ${address}: anyone could join. Set a token, or listen on 127.0.0.1.`);
    }
    const peers = new ListenerPeers(handler);
    let server: Server<Data>;
    try {
      server = this.#serve(url, peers, fetch);
    } catch (error) {
      throw new Error(`cannot listen on ${address}: ${describeError(error)}`, { cause: error });
    }
    const { clock } = this.#options;
    return {
      address: `ws://${url.hostname}:${server.port}`,
      async close() {
        peers.closeAll();
        // A graceful stop would wait without end for a peer whose process is stopped or whose network is cut.
        const cancel = clock.after(CLOSE_MS_MAX, () => void server.stop(true));
        await server.stop();
        cancel();
      },
    };
  }

  connect(address: string, handler: Handler): Promise<Peer> {
    return dial(address, handler, this.#options);
  }

  #serve(url: URL, peers: ListenerPeers, fetch: ListenOptions["fetch"]): Server<Data> {
    const { clock, frameBytesMax, report } = this.#options;
    const refused = reportSeldom(clock, report);
    return Bun.serve<Data>({
      ...boundTo(url),
      maxRequestBodySize: frameBytesMax,
      fetch: (request, server) => {
        const from = server.requestIP(request)?.address ?? "unknown";
        if (!sameSecret(request.headers.get("authorization") ?? "", bearer(this.#options.token))) {
          refused(from, "wrong token");
          return new Response("wrong token\n", { status: 401 });
        }
        if (request.headers.get("upgrade")?.toLowerCase() !== "websocket") {
          return fetch === undefined ? new Response("nothing here\n", { status: 404 }) : fetch(request);
        }
        if (request.headers.has("origin")) {
          refused(from, "a page in a browser");
          return new Response("a page in a browser cannot connect here\n", { status: 403 });
        }
        if (server.upgrade(request, { data: { guest: request.headers.get(GUEST_HEADER) ?? undefined } }))
          return undefined;
        return new Response("not a WebSocket upgrade\n", { status: 400 });
      },
      websocket: {
        ...serverLimits(this.#options),
        open: (socket) => this.#open(socket, peers),
        message({ data: { peer, watch } }, message) {
          watch?.heard();
          if (typeof message === "string") peer?.refuse("badFrame", "bad frame: text, expected bytes");
          else if (peer && message.byteLength > 0) takeMessage(peer, message);
        },
        close({ data: { peer, watch } }, code, reason) {
          watch?.stop();
          if (reason !== TOO_BIG) peer?.lost(reason || lostBy(code));
          else peer?.refuse("oversize", `a frame of more than frameBytesMax (${frameBytesMax} bytes) arrived`);
        },
      },
    });
  }

  #open(socket: ServerWebSocket<Data>, peers: ListenerPeers): void {
    const { clock, frameBytesMax, silenceMsMax } = this.#options;
    const { data, remoteAddress } = socket;
    const wire = bundling(serverWire(socket), frameBytesMax);
    const peer = new WirePeer(remoteAddress, wire, peers.handler, this.#options, data.guest);
    data.peer = peer;
    data.watch = watchSocket(socket, clock, (reason) => peer.lost(reason), silenceMsMax);
    peer.start();
  }
}

/** Connects to a listener. @throws {Error} with the address and the reason, if the connection fails: see `Transport.connect` */
function dial(address: string, handler: Handler, options: SocketOptions): Promise<Peer> {
  const { clock, token, tls = {}, connectMsMax = CONNECT_MS_MAX, silenceMsMax } = options;
  const { promise, resolve, reject } = Promise.withResolvers<Peer>();
  const socket = new WebSocket(parseAddress(address), { headers: { Authorization: bearer(token) }, tls });
  socket.binaryType = "arraybuffer";
  let peer: WirePeer | null = null;
  let watch: SilenceWatch | null = null;
  let refusal = new Error("the connection was closed");
  const cancelDeadline = clock.after(connectMsMax, () => {
    refusal = new Error(`no answer within ${connectMsMax} ms`);
    socket.terminate();
  });

  socket.onopen = () => {
    cancelDeadline();
    const opened = new WirePeer(address, bundling(clientWire(socket), options.frameBytesMax), handler, options);
    peer = opened;
    watch = watchSocket(socket, clock, (reason) => opened.lost(reason), silenceMsMax);
    opened.start();
    resolve(opened);
  };
  socket.onmessage = ({ data }) => {
    watch?.heard();
    if (!(data instanceof ArrayBuffer)) peer?.refuse("badFrame", "bad frame: text, expected bytes");
    else if (peer && data.byteLength > 0) takeMessage(peer, new Uint8Array(data));
  };
  socket.onerror = (event) => {
    refusal = refusalOf(event);
  };
  socket.onclose = ({ code, reason }) => {
    cancelDeadline();
    watch?.stop();
    if (peer === null) reject(cannotConnect(address, refusal));
    else peer.lost(reason === TOO_BIG ? "a frame was larger than the other end allows" : reason || lostBy(code));
  };
  return promise;
}

const lostBy = (code: number): string => `the connection was lost (WebSocket code ${code})`;

/** Reads the HTTP status of a refused upgrade from the error's message, because Bun reports the status nowhere else. */
function refusalOf(event: Event): Error {
  const message = "message" in event ? String(event.message) : "";
  const status = /Expected 101 status code: (\d+)/.exec(message)?.[1];
  if (status === "401") return new TokenRefused(TOKEN_REFUSED);
  if (status === "403") return new TokenRefused("the token does not allow this connection");
  if (status !== undefined) return new Error(`HTTP status ${status} instead of a WebSocket`);
  const tls = /TLS handshake failed: (.*)$/.exec(message)?.[1];
  return new Error(tls === undefined ? "nothing answers there" : `the TLS handshake failed: ${tls}`);
}

/**
 * The gate is the server through which other machines join a run. A guest is a sampler or env server on another machine. The gate checks the
 * token of each request, and passes bytes, unread, between the guest and the actor that the request's path names. The actors themselves
 * listen only on loopback or at the broker, and require another token.
 *
 *   request                     what it is                                                       for guests of role
 *   GET /join?role=ROLE         the settings of a new guest                                      sampler, env server
 *   GET /weights/VERSION        the learner's weights                                            sampler
 *   WS  /actors/NAME?as=GUEST   a connection to the supervisor, the learner or an env server     sampler: any; env server: the supervisor
 *   WS  /offer/NAME             a connection that waits until a sampler wants this env server    env server
 *
 * - The gate compares the token of the Authorization header in constant time, before it reads the path. The gate refuses requests of browser
 *   pages, which have an Origin header. The gate reports refusals at most once a second.
 * - The gate closes the connection after it refuses a token, a browser page, a role or a name. It also closes the connection of an upgrade
 *   beyond `connectionsMax`.
 * - door.ts limits the number and the duration of connections that have shown no token.
 * - The gate refuses a guest's socket while `connectionsMax` sockets are open. This number includes sockets of actors to a guest's env server.
 * - relay.ts limits how many bytes wait for a slow end.
 */
import type { Server, ServerWebSocket, TLSOptions } from "bun";
import { describeError } from "../errors.ts";
import { bearer, httpOf, isBroker, noProxyHere, sameSecret } from "../transport/address.ts";
import { reportSeldom } from "../transport/refusals.ts";
import type { SilenceWatch } from "../transport/silence.ts";
import { GUEST_HEADER } from "../transport/socket.ts";
import {
  boundTo,
  CLOSED_BY_US,
  CONNECT_MS_MAX,
  clientWire,
  closeReason,
  parseAddress,
  serverLimits,
  serverWire,
  watchSocket,
} from "../transport/socket-wire.ts";
import type { Problem, TransportOptions } from "../transport/transport.ts";
import { type ServedFile, serveFile } from "../weights/http.ts";
import { Door, type DoorOptions } from "./door.ts";
import { Offers, Relay, type Side } from "./relay.ts";

export const GUEST_ROLES = ["sampler", "env-server"] as const;
export type GuestRole = (typeof GUEST_ROLES)[number];

/** A token, and the roles that a guest with this token may have. */
export interface JoinToken {
  readonly token: string;
  readonly roles: readonly GuestRole[];
}

export interface GateOptions
  extends Pick<DoorOptions, "connectionsMax" | "strangersMax" | "strangerMs" | "clock">,
    Pick<TransportOptions, "frameBytesMax" | "queuedBytesMax"> {
  /** ws://HOST:PORT, or wss:// with `tls`. */
  readonly listen: string;
  readonly tls: TLSOptions | null;
  readonly joinTokens: readonly JoinToken[];
  /** The token with which actors connect to each other. */
  readonly actorsToken: string;
  /** The address of an actor, on this machine or at a broker, for a guest with these roles; null if the actor has no address now. */
  readonly find: (name: string, roles: readonly GuestRole[]) => string | null;
  /** True for a name that no guest may take. */
  readonly isActor: (name: string) => boolean;
  /** Settings of a new guest, as JSON. */
  readonly joinSettings: (role: GuestRole) => unknown;
  readonly report: (problem: Problem) => void;
}

interface SocketData {
  /** Name of the guest at this socket; "" for an actor of this machine. */
  readonly guest: string;
  readonly side: Side;
  relay: Relay | null;
  watch: SilenceWatch | null;
  withdraw: () => void;
  readonly opened: (socket: ServerWebSocket<SocketData>) => void;
}

const NAME = /^[\w.-]{1,64}$/;

/** How long a sampler waits for an offer. An offer is a connection that a guest's env server opens in advance (relay.ts). */
const OFFER_MS_MAX = 10_000;

export class Gate {
  readonly #options: GateOptions;
  readonly #offers: Offers;
  readonly #sockets = new Set<ServerWebSocket<SocketData>>();
  readonly #refused: (from: string, why: string) => void;
  readonly #door: Door;
  /** The server for other machines, behind the door. */
  readonly #public: Server<SocketData>;
  /** The server for actors of this machine that connect to a guest's env server. */
  readonly #inner: Server<SocketData>;

  /** @throws {Error} in one line, if the gate cannot listen at `listen` */
  constructor(options: GateOptions) {
    this.#options = options;
    this.#offers = new Offers(options.clock, OFFER_MS_MAX);
    this.#refused = reportSeldom(options.clock, options.report);
    this.#public = this.#serve(options.tls, (request, server) => this.#fromOutside(request, server));
    this.#inner = this.#serve(null, (request, server) => this.#fromInside(request, server));
    try {
      const place = boundTo(parseAddress(options.listen));
      this.#door = new Door({ ...options, ...place, serverPort: this.#public.port!, refused: this.#refused });
    } catch (error) {
      void this.#public.stop(true);
      void this.#inner.stop(true);
      throw new Error(`cannot listen on ${options.listen}: ${describeError(error)}`, { cause: error });
    }
  }

  /** The address that a guest gives to `--join`. */
  get address(): string {
    const { protocol, hostname } = parseAddress(this.#options.listen);
    return `${protocol}//${hostname}:${this.#door.port}`;
  }

  /** The address at which actors of this machine reach a guest's env server. */
  urlOf(name: string): string {
    return `ws://127.0.0.1:${this.#inner.port}/${name}`;
  }

  /** Ends every connection of a guest. */
  cut(guest: string, reason: string): void {
    for (const socket of this.#sockets) if (socket.data.guest === guest) this.#close(socket, reason);
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets) this.#close(socket, "the run is over");
    this.#door.stop();
    await Promise.all([this.#public.stop(true), this.#inner.stop(true)]);
  }

  #close(socket: ServerWebSocket<SocketData>, reason: string): void {
    if (socket.data.relay === null) socket.close(CLOSED_BY_US, closeReason(reason));
    else socket.data.relay.close(reason);
  }

  #fromOutside(request: Request, server: Server<SocketData>): Response | Promise<Response> | undefined {
    const port = server.requestIP(request)?.port ?? 0;
    const from = this.#door.fromOf(port);
    const authorization = request.headers.get("authorization") ?? "";
    // Compare all tokens, even after a match, so that the time of the answer does not reveal which token matched.
    const roles = this.#options.joinTokens
      .filter(({ token }) => sameSecret(authorization, bearer(token)))
      .flatMap((joinToken) => joinToken.roles);
    if (roles.length === 0) return this.#refuse(from, "wrong token", 401);
    if (request.headers.has("origin")) return this.#refuse(from, "a page in a browser", 403);
    this.#door.admit(port);
    const { pathname, searchParams } = new URL(request.url);
    const [place = "", name = "", ...rest] = pathname.slice(1).split("/");
    const guest = searchParams.get("as") ?? "";
    if (place === "join") {
      const role = GUEST_ROLES.find((known) => known === searchParams.get("role"));
      if (role === undefined) return new Response(`role must be one of ${GUEST_ROLES.join(", ")}\n`, { status: 400 });
      if (!roles.includes(role)) return this.#refuse(from, `the token is not for the role ${role}`, 403);
      return Response.json(this.#options.joinSettings(role));
    }
    if (!NAME.test(name) || rest.length > 0) return new Response("nothing here\n", { status: 404 });
    const isSupervisor = place === "actors" && name === "supervisor";
    const requiredRole = place === "offer" ? "env-server" : isSupervisor ? null : "sampler";
    if (requiredRole !== null && !roles.includes(requiredRole)) {
      return this.#refuse(from, `the token gives no access to ${place}/${name}`, 403);
    }
    if (place === "weights") return this.#weights(request, pathname);
    if (place !== "offer" && place !== "actors") return new Response("nothing here\n", { status: 404 });
    const who = place === "offer" ? name : guest;
    if (!NAME.test(who)) return new Response("say who you are: ?as=NAME\n", { status: 400 });
    if (this.#options.isActor(who)) return this.#refuse(from, `${who} is an actor of the run's own machine`, 409);
    const open = this.#sockets.size;
    if (open >= this.#options.connectionsMax) {
      return this.#refuse(from, `${open} connections are open, the most allowed (join.connectionsMax)`, 503);
    }
    if (place === "offer") return upgrade(request, server, name, 1, (socket) => this.#offered(name, socket));
    return upgrade(request, server, guest, 0, (socket) => this.#connectTo(name, roles, socket));
  }

  #fromInside(request: Request, server: Server<SocketData>): Response | undefined {
    if (!sameSecret(request.headers.get("authorization") ?? "", bearer(this.#options.actorsToken))) {
      return this.#refuse("127.0.0.1", "wrong token", 401);
    }
    const name = new URL(request.url).pathname.slice(1);
    return upgrade(request, server, "", 0, (socket) => this.#offers.take(name, this.#relay(socket)));
  }

  #refuse(from: string, why: string, status: number): Response {
    this.#refused(from, why);
    return new Response(`${why}\n`, { status, headers: { Connection: "close" } });
  }

  /** Asks the learner for the path of a version's file, and serves this file, so that the learner does not have to send the weights. */
  async #weights(request: Request, path: string): Promise<Response> {
    const learner = this.#options.find("learner", ["sampler"]);
    if (learner === null) return new Response("there is no learner now\n", { status: 503 });
    const headers = { Authorization: bearer(this.#options.actorsToken) };
    try {
      const file = new URL(`${path}/file`, httpOf(learner));
      const answer = await fetch(file, { headers, ...noProxyHere(file) });
      if (!answer.ok) return new Response(await answer.text(), { status: answer.status });
      return serveFile((await answer.json()) as ServedFile, request);
    } catch (error) {
      return new Response(`the learner does not answer: ${describeError(error)}\n`, { status: 503 });
    }
  }

  #connectTo(name: string, roles: readonly GuestRole[], socket: ServerWebSocket<SocketData>): void {
    const relay = this.#relay(socket);
    const address = this.#options.find(name, roles);
    if (address === null && this.#options.isActor(name)) relay.close(`${name} cannot be reached now`);
    // No actor of this machine has this name, but a guest's env server may.
    else if (address === null) this.#offers.take(name, relay);
    else if (isBroker(address)) relay.close(`${name} is reached through the broker; the roster has its address`);
    else this.#dial(address, relay, socket.data.guest);
  }

  #relay(socket: ServerWebSocket<SocketData>): Relay {
    const relay = new Relay(this.#options.queuedBytesMax);
    this.#use(socket, relay);
    return relay;
  }

  #use(socket: ServerWebSocket<SocketData>, relay: Relay): void {
    const { data } = socket;
    data.watch?.stop();
    data.watch = null;
    data.relay = relay;
    relay.attach(data.side, serverWire(socket));
  }

  #offered(name: string, socket: ServerWebSocket<SocketData>): void {
    socket.data.watch = watchSocket(socket, this.#options.clock, () => {});
    socket.data.withdraw = this.#offers.add(name, (relay) => this.#use(socket, relay));
  }

  #dial(address: string, relay: Relay, guest: string): void {
    const headers = { Authorization: bearer(this.#options.actorsToken), [GUEST_HEADER]: guest };
    const socket = new WebSocket(address, { headers });
    socket.binaryType = "arraybuffer";
    const cancel = this.#options.clock.after(CONNECT_MS_MAX, () => socket.terminate());
    socket.onopen = () => {
      cancel();
      relay.attach(1, clientWire(socket));
    };
    socket.onmessage = ({ data }) => {
      if (data instanceof ArrayBuffer) relay.frame(1, new Uint8Array(data));
      else relay.close("text, expected bytes");
    };
    socket.onclose = ({ reason }) => {
      cancel();
      relay.close(reason || "the other end is gone");
    };
  }

  #serve(
    tls: TLSOptions | null,
    fetch: (request: Request, server: Server<SocketData>) => Response | Promise<Response> | undefined,
  ): Server<SocketData> {
    return Bun.serve<SocketData>({
      hostname: "127.0.0.1",
      port: 0,
      maxRequestBodySize: 0,
      ...(tls === null ? {} : { tls }),
      fetch,
      websocket: {
        ...serverLimits(this.#options),
        open: (socket) => {
          this.#sockets.add(socket);
          socket.data.opened(socket);
        },
        message({ data }, message) {
          data.watch?.heard();
          if (typeof message !== "string") data.relay?.frame(data.side, message);
          else data.relay?.close("text, expected bytes");
        },
        close: (socket, _, reason) => {
          this.#sockets.delete(socket);
          const { data } = socket;
          data.watch?.stop();
          data.withdraw();
          data.relay?.close(reason || "the other end is gone");
        },
      },
    });
  }
}

function upgrade(
  request: Request,
  server: Server<SocketData>,
  guest: string,
  side: Side,
  opened: (socket: ServerWebSocket<SocketData>) => void,
): Response | undefined {
  if (server.upgrade(request, { data: { guest, side, relay: null, watch: null, withdraw() {}, opened } }))
    return undefined;
  return new Response("not a WebSocket upgrade\n", { status: 400 });
}

/**
 * The one address of a run that other machines reach. It lets in who has a token, by what that token allows, and passes the
 * bytes on to the actor that the path names; the actors themselves stay on loopback, with a token of their own. Reads no message.
 *
 *   GET /join?role=ROLE      what a newcomer needs to know                               sampler, env server
 *   GET /weights/VERSION      from the learner                                            sampler
 *   WS  /actors/NAME?as=WHO   a connection to the supervisor, the learner, an env server  sampler (env server: supervisor)
 *   WS  /offer/NAME           one that waits until a sampler wants this env server        env server
 *
 * - The token is in the Authorization header and compared in constant time before anything else is looked at. A page in a
 *   browser (an Origin header) is refused. Refusals are reported at most once a second.
 * - At most `connectionsMax` are open; the next is refused. What a slow end leaves unread is bounded: see relay.ts.
 * - Another address than loopback needs tokens that were chosen by a person.
 */
import type { Server, ServerWebSocket } from "bun";
import type { Clock } from "../clock.ts";
import { describeError } from "../errors.ts";
import { httpOf, isBroker } from "../transport/address.ts";
import { reportSeldom } from "../transport/refusals.ts";
import { PING, type SilenceWatch, watchSilence } from "../transport/silence.ts";
import {
  boundTo,
  CLOSED_BY_US,
  CONNECT_MS_MAX,
  clientWire,
  closeReason,
  parseAddress,
  SILENCE_MS_MAX,
  serverLimits,
} from "../transport/socket-wire.ts";
import { type ServerTls, serverOptions } from "../transport/tls.ts";
import { bearer, sameSecret } from "../transport/token.ts";
import type { Problem } from "../transport/transport.ts";
import { type ServedFile, serveFile } from "../weights/http.ts";
import { type Offer, Offers } from "./offers.ts";
import { type End, Relay, type Side } from "./relay.ts";

/** What another machine may lend to a run. */
export const GUEST_ROLES = ["sampler", "env-server"] as const;
export type GuestRole = (typeof GUEST_ROLES)[number];

/** A token, and what may be lent with it. */
export interface Pass {
  readonly token: string;
  readonly roles: readonly GuestRole[];
}

export interface GateOptions {
  /** ws://HOST:PORT, or wss:// with `tls`. */
  readonly listen: string;
  readonly tls: ServerTls | null;
  readonly passes: readonly Pass[];
  /** Of the actors' own listeners. */
  readonly actorsToken: string;
  readonly frameBytesMax: number;
  readonly queuedBytesMax: number;
  readonly connectionsMax: number;
  readonly clock: Clock;
  /** Where an actor of this machine listens that guests may talk to; null: there is none of this name now. */
  readonly find: (name: string, roles: readonly GuestRole[]) => string | null;
  /** What a newcomer is told: JSON. */
  readonly joinSettings: (role: GuestRole) => unknown;
  readonly report: (problem: Problem) => void;
}

/** What is known of one socket. `as` is the guest it belongs to; "" for an actor of this machine. */
interface Data {
  readonly as: string;
  readonly side: Side;
  relay: Relay | null;
  watch: SilenceWatch | null;
  withdraw: () => void;
  /** What to do once it is open. */
  readonly opened: (socket: ServerWebSocket<Data>) => void;
}

const NAME = /^[\w.-]{1,64}$/;

/** How long who wants a guest's env server waits for a connection to it. */
const OFFER_MS_MAX = 10_000;

export class Gate {
  readonly #options: GateOptions;
  readonly #offers: Offers;
  readonly #sockets = new Set<ServerWebSocket<Data>>();
  readonly #refused: (from: string, why: string) => void;
  readonly #public: Server<Data>;
  /** For actors of this machine that want a guest. */
  readonly #inner: Server<Data>;

  /** @throws {Error} in one line, if it cannot listen there, or should not */
  constructor(options: GateOptions) {
    this.#options = options;
    this.#offers = new Offers(options.clock, OFFER_MS_MAX);
    this.#refused = reportSeldom(options.clock, options.report);
    const url = parseAddress(options.listen);
    this.#public = this.#serve(url, options.tls, (request, server) => this.#fromOutside(request, server));
    this.#inner = this.#serve(new URL("ws://127.0.0.1:0"), null, (request, server) =>
      this.#fromInside(request, server),
    );
  }

  /** What `--join` takes. */
  get address(): string {
    const { protocol, hostname } = parseAddress(this.#options.listen);
    return `${protocol}//${hostname}:${this.#public.port}`;
  }

  /** Where actors of this machine reach a guest's env server. */
  urlOf(name: string): string {
    return `ws://127.0.0.1:${this.#inner.port}/${name}`;
  }

  /** End every connection of a guest. */
  cut(as: string, reason: string): void {
    for (const socket of this.#sockets) if (socket.data.as === as) this.#close(socket, reason);
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets) this.#close(socket, "the run is over");
    await Promise.all([this.#public.stop(true), this.#inner.stop(true)]);
  }

  #close(socket: ServerWebSocket<Data>, reason: string): void {
    if (socket.data.relay === null) socket.close(CLOSED_BY_US, closeReason(reason));
    else socket.data.relay.close(reason);
  }

  #fromOutside(request: Request, server: Server<Data>): Response | Promise<Response> | undefined {
    const from = server.requestIP(request)?.address ?? "unknown";
    const given = request.headers.get("authorization") ?? "";
    // All are compared, so that the time does not tell which one it nearly was.
    const roles = this.#options.passes.filter(({ token }) => sameSecret(given, bearer(token))).flatMap((p) => p.roles);
    if (roles.length === 0) return this.#refuse(from, "wrong token", 401);
    if (request.headers.has("origin")) return this.#refuse(from, "a page in a browser", 403);
    const { pathname, searchParams } = new URL(request.url);
    const [place = "", name = "", ...rest] = pathname.slice(1).split("/");
    const as = searchParams.get("as") ?? "";
    if (place === "join") {
      const role = GUEST_ROLES.find((known) => known === searchParams.get("role"));
      if (role === undefined) return new Response(`role must be one of ${GUEST_ROLES.join(", ")}\n`, { status: 400 });
      if (!roles.includes(role)) return this.#refuse(from, `its token is not for the role ${role}`, 403);
      return Response.json(this.#options.joinSettings(role));
    }
    if (!NAME.test(name) || rest.length > 0) return new Response("nothing here\n", { status: 404 });
    const mayReach = place === "offer" ? "env-server" : name === "supervisor" ? null : "sampler";
    if (mayReach !== null && !roles.includes(mayReach)) {
      return this.#refuse(from, `its token may not reach ${place}/${name}`, 403);
    }
    if (place === "weights") return this.#weights(request, pathname);
    if (place !== "offer" && place !== "actors") return new Response("nothing here\n", { status: 404 });
    if (!NAME.test(place === "offer" ? name : as)) return new Response("say who you are: ?as=NAME\n", { status: 400 });
    if (this.#sockets.size >= this.#options.connectionsMax) {
      return this.#refuse(from, `join.connectionsMax, ${this.#options.connectionsMax}, connections are open`, 503);
    }
    if (place === "offer") return upgrade(request, server, name, 1, (socket) => this.#offered(name, socket));
    return upgrade(request, server, as, 0, (socket) => this.#joinTo(name, roles, socket));
  }

  #fromInside(request: Request, server: Server<Data>): Response | undefined {
    if (!sameSecret(request.headers.get("authorization") ?? "", bearer(this.#options.actorsToken))) {
      return this.#refuse("127.0.0.1", "wrong token", 401);
    }
    const name = new URL(request.url).pathname.slice(1);
    return upgrade(request, server, "", 0, (socket) => this.#offers.take(name, this.#relay(socket)));
  }

  #refuse(from: string, why: string, status: number): Response {
    this.#refused(from, why);
    return new Response(`${why}\n`, { status });
  }

  /** The learner knows where a version is; its bytes go from there, without a way through two processes. */
  async #weights(request: Request, path: string): Promise<Response> {
    const learner = this.#options.find("learner", ["sampler"]);
    if (learner === null) return new Response("there is no learner now\n", { status: 503 });
    const headers = { Authorization: bearer(this.#options.actorsToken) };
    const ask = (page: string) => fetch(new URL(`${page}/file`, httpOf(learner)), { headers });
    try {
      const answer = await ask(path);
      if (!answer.ok) return new Response(await answer.text(), { status: answer.status });
      return serveFile((await answer.json()) as ServedFile, request);
    } catch (error) {
      return new Response(`the learner does not answer: ${describeError(error)}\n`, { status: 503 });
    }
  }

  /** A guest wants to talk to an actor of this run. */
  #joinTo(name: string, roles: readonly GuestRole[], socket: ServerWebSocket<Data>): void {
    const relay = this.#relay(socket);
    const address = this.#options.find(name, roles);
    // Who is not on this machine may be another guest.
    if (address === null) this.#offers.take(name, relay);
    else if (isBroker(address)) relay.close(`${name} is reached through the broker, as this run told whoever joined`);
    else this.#dial(address, relay);
  }

  #relay(socket: ServerWebSocket<Data>): Relay {
    const relay = new Relay(this.#options.queuedBytesMax);
    this.#use(socket, relay);
    return relay;
  }

  #use(socket: ServerWebSocket<Data>, relay: Relay): void {
    const { data } = socket;
    data.watch?.stop();
    data.watch = null;
    data.relay = relay;
    relay.attach(data.side, endOf(socket));
  }

  #offered(name: string, socket: ServerWebSocket<Data>): void {
    const offer: Offer = { use: (relay) => this.#use(socket, relay) };
    socket.data.watch = watchSilence({
      clock: this.#options.clock,
      silenceMsMax: SILENCE_MS_MAX,
      ping: () => void socket.sendBinary(PING),
      silent: () => socket.terminate(),
    });
    socket.data.withdraw = this.#offers.add(name, offer);
  }

  #dial(address: string, relay: Relay): void {
    const socket = new WebSocket(address, { headers: { Authorization: bearer(this.#options.actorsToken) } });
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
    url: URL,
    tls: ServerTls | null,
    fetch: (request: Request, server: Server<Data>) => Response | Promise<Response> | undefined,
  ): Server<Data> {
    try {
      return Bun.serve<Data>({
        ...boundTo(url),
        maxRequestBodySize: 0,
        ...(tls === null ? {} : { tls: serverOptions(tls) }),
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
    } catch (error) {
      throw new Error(`cannot listen on ${url.href}: ${describeError(error)}`, { cause: error });
    }
  }
}

function upgrade(
  request: Request,
  server: Server<Data>,
  as: string,
  side: Side,
  opened: (socket: ServerWebSocket<Data>) => void,
): Response | undefined {
  if (server.upgrade(request, { data: { as, side, relay: null, watch: null, withdraw() {}, opened } }))
    return undefined;
  return new Response("not a WebSocket upgrade\n", { status: 400 });
}

const endOf = (socket: ServerWebSocket<Data>): End => ({
  get queuedBytes() {
    return socket.getBufferedAmount();
  },
  // 0 is a frame that was dropped, or a ping: a frame of no bytes, all of which were sent.
  send: (frame) => socket.sendBinary(frame as Uint8Array<ArrayBuffer>) !== 0 || frame.byteLength === 0,
  close: (reason) => socket.close(CLOSED_BY_US, closeReason(reason)),
});

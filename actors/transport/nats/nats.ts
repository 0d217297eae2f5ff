/**
 * Actors that meet at a NATS broker: none of them needs to be reachable, only the broker. A connection is a pair of subjects.
 *
 * - The token is shown to the broker, and proved to the other end without being sent: whoever answers at the broker cannot
 *   learn it, and nothing that comes without a proof is parsed.
 * - Several listeners may share an address: each connection goes to one of them.
 * - HTTP (weights) does not go through the broker: who serves it listens on this machine, and its address says where.
 */
import { createHmac } from "node:crypto";
import { NoRespondersError } from "@nats-io/transport-node";
import { z } from "zod";
import { describeError } from "../../errors.ts";
import { isLoopback } from "../address.ts";
import { WirePeer } from "../peer.ts";
import { ListenerPeers } from "../peers.ts";
import { reportSeldom } from "../refusals.ts";
import { CONNECT_MS_MAX, type SocketOptions } from "../socket-wire.ts";
import { sameSecret } from "../token.ts";
import type { Handler, Listener, ListenOptions, Peer, Transport } from "../transport.ts";
import { Broker } from "./broker.ts";
import { NatsWire } from "./wire.ts";

/** The system does not say that a process at the other side of a broker has died; only its silence does. */
const SILENCE_MS_MAX = 10_000;

const Dial = z.strictObject({ inbox: z.uuid(), id: z.uuid(), proof: z.string().max(100) });
const Dialled = z.union([z.strictObject({ inbox: z.uuid() }), z.strictObject({ refused: z.string().max(1000) })]);

export interface NatsAddress {
  /** Of the broker. */
  readonly url: URL;
  /** Who is meant there; null: nobody yet. */
  readonly name: string | null;
}

/** @throws {Error} if it is not `nats://HOST:PORT/NAME`, or `tls://` where the broker must speak TLS. */
export function parseNatsAddress(address: string): NatsAddress {
  const url = URL.canParse(address) ? new URL(address) : null;
  const name = /^\/?([\w-]{0,64})$/.exec(url?.pathname ?? "!")?.[1];
  if (url === null || !["nats:", "tls:"].includes(url.protocol) || url.host === "" || name === undefined) {
    throw new Error(`cannot use ${address}: expected nats://HOST:PORT/NAME, or tls://HOST:PORT/NAME for TLS`);
  }
  return { url, name: name === "" ? null : name };
}

/** What only those can say who know the token. The id is new for each connection. */
export const proofOf = (token: string, id: string, name: string): string =>
  createHmac("sha256", token).update(`${id} ${name}`).digest("base64url");

export class NatsTransport implements Transport {
  readonly #options: SocketOptions;
  readonly #brokers = new Map<string, Promise<Broker>>();
  readonly #silenceMsMax: number;
  readonly #connectMsMax: number;

  constructor(options: SocketOptions) {
    this.#options = options;
    this.#silenceMsMax = options.silenceMsMax ?? SILENCE_MS_MAX;
    this.#connectMsMax = options.connectMsMax ?? CONNECT_MS_MAX;
  }

  async listen(address: string, handler: Handler, { fetch }: ListenOptions = {}): Promise<Listener> {
    const { url, name } = parseNatsAddress(address);
    const { clock, token, report } = this.#options;
    if (!isLoopback(url.hostname) && token === "") {
      throw new Error(`cannot listen on ${address}: anyone could join. Set a token, or use a broker on 127.0.0.1.`);
    }
    if (fetch !== undefined) throw new Error(`cannot serve HTTP on ${address}: use the socket transport`);
    const broker = await this.#broker(url).catch((error: unknown) => {
      throw new Error(`cannot listen on ${address}: ${describeError(error).replace(/^Error: /, "")}`);
    });
    const chosen = name ?? crypto.randomUUID();
    const peers = new ListenerPeers(handler);
    const refused = reportSeldom(clock, report);
    const stop = await broker.answerDials(chosen, (asked) => {
      const dial = Dial.safeParse(parseJson(asked.data));
      const say = (answer: z.infer<typeof Dialled>) => asked.respond(JSON.stringify(answer));
      if (!dial.success) {
        refused(url.host, "not a dial");
        say({ refused: "it is not a dial" });
        return;
      }
      if (!broker.ready) {
        say({ refused: "it is coming back to its broker" });
        return;
      }
      const { inbox, id, proof } = dial.data;
      if (!sameSecret(proof, proofOf(token, id, chosen)) || broker.ends.has(`${id}h`)) {
        refused(url.host, "wrong token");
        say({ refused: "the token was refused" });
        return;
      }
      const wire = this.#wire(broker, url, `${id}h`, `${inbox}.${id}g`, false);
      say({ inbox: broker.inbox });
      wire.attach(peers.add(new WirePeer(`${url.host}/${chosen}#${id}`, wire, peers.handler, this.#options)));
    });
    return {
      address: `${url.protocol}//${url.host}/${chosen}`,
      close: async () => {
        await stop();
        peers.closeAll();
        await this.#leave(broker, url);
      },
    };
  }

  async connect(address: string, handler: Handler): Promise<Peer> {
    const { url, name } = parseNatsAddress(address);
    try {
      if (name === null) throw new Error("it names nobody: write nats://HOST:PORT/NAME");
      const broker = await this.#broker(url);
      if (!broker.ready) throw new Error("nothing answers there");
      return await this.#dial(broker, url, name, address, handler);
    } catch (error) {
      throw new Error(`cannot connect to ${address}: ${describeError(error).replace(/^Error: /, "")}`);
    }
  }

  async #dial(broker: Broker, url: URL, name: string, address: string, handler: Handler): Promise<Peer> {
    const id = crypto.randomUUID();
    let to = "";
    const wire = this.#wire(broker, url, `${id}g`, () => to, true);
    try {
      const proof = proofOf(this.#options.token, id, name);
      const dial = JSON.stringify({ inbox: broker.inbox, id, proof } satisfies z.infer<typeof Dial>);
      const told = await broker.connection
        .request(`bunraku.dial.${name}`, dial, { timeout: this.#connectMsMax })
        .catch((error: unknown) => {
          const nobody = error instanceof NoRespondersError || (error as Error).cause instanceof NoRespondersError;
          throw new Error(nobody ? "nothing listens there" : `no answer within ${this.#connectMsMax} ms`);
        });
      const answer = Dialled.safeParse(parseJson(told.data));
      if (!answer.success) throw new Error("what answers there is no actor");
      if ("refused" in answer.data) throw new Error(answer.data.refused);
      to = `${answer.data.inbox}.${id}h`;
    } catch (error) {
      wire.lose("never connected");
      throw error;
    }
    const peer = new WirePeer(address, wire, handler, this.#options);
    wire.attach(peer);
    return peer;
  }

  /** @param stores  whether what is worth it goes through the broker's work queue */
  #wire(broker: Broker, url: URL, end: string, to: string | (() => string), stores: boolean): NatsWire {
    const { clock, frameBytesMax, queuedBytesMax } = this.#options;
    const other = typeof to === "string" ? () => to : to;
    const over = () => !broker.ends.has(end);
    const wire = new NatsWire({
      clock,
      frameBytesMax,
      queuedBytesMax,
      silenceMsMax: this.#silenceMsMax,
      parcelBytesMax: broker.parcelBytesMax,
      publish: (parcel) => broker.publish(other(), parcel),
      store: stores ? (parcel, number, ask) => broker.store(other(), parcel, number, ask, over) : null,
      gone: () => {
        broker.ends.delete(end);
        void this.#leave(broker, url);
      },
    });
    broker.ends.set(end, wire);
    return wire;
  }

  #broker(url: URL): Promise<Broker> {
    const key = `${url.protocol}//${url.host}`;
    const known = this.#brokers.get(key);
    if (known !== undefined) return known;
    const { clock, token, tls, report } = this.#options;
    const broker = Broker.connect(url, {
      clock,
      token,
      silenceMsMax: this.#silenceMsMax,
      connectMsMax: this.#connectMsMax,
      ...(tls === undefined ? {} : { tls }),
      ...(report === undefined ? {} : { report }),
    });
    this.#brokers.set(key, broker);
    broker.catch(() => this.#brokers.delete(key));
    return broker;
  }

  /** Nothing stays open for nobody. */
  async #leave(broker: Broker, url: URL): Promise<void> {
    if (!broker.unused) return;
    this.#brokers.delete(`${url.protocol}//${url.host}`);
    await broker.close();
  }
}

function parseJson(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(bytes));
  } catch {
    return null;
  }
}

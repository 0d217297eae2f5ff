/**
 * Transport through a NATS broker: each process needs to reach only the broker. A connection is a pair of NATS subjects, one for each end.
 *
 * - The broker gets the token. The other end gets only a proof of the token (HMAC). So another client of the broker that answers a request
 *   to connect does not learn the token. Each parcel (wire.ts) has a tag. The tag's key comes from the token. No end parses a parcel whose tag
 *   is wrong.
 * - Several listeners may share an address; the broker sends each request to connect to one of them.
 * - HTTP (for weights) does not go through the broker: see routed.ts.
 */
import { createHmac } from "node:crypto";
import { NoRespondersError } from "@nats-io/transport-node";
import { z } from "zod";
import { parsedJson } from "../../checkpoint/json.ts";
import { messageOf } from "../../errors.ts";
import { isLoopback, parseNatsAddress, sameSecret } from "../address.ts";
import { ListenerPeers, WirePeer } from "../peer.ts";
import { reportSeldom } from "../refusals.ts";
import { CONNECT_MS_MAX, type SocketOptions } from "../socket-wire.ts";
import {
  cannotConnect,
  type Handler,
  type Listener,
  type ListenOptions,
  type Peer,
  TOKEN_REFUSED,
  TokenRefused,
  type Transport,
} from "../transport.ts";
import { Broker, type BrokerOptions } from "./broker.ts";
import { NatsWire } from "./wire.ts";

/** Shorter than the limit of a socket, because through a broker only silence shows that the other process has died. */
const SILENCE_MS_MAX = 10_000;

const Dial = z.strictObject({ inbox: z.uuid(), id: z.uuid(), proof: z.string().max(100) });
/** The inbox of the listener's process, or the reason for a refusal. */
const DialAnswer = z.union([z.strictObject({ inbox: z.uuid() }), z.strictObject({ refused: z.string().max(1000) })]);

/** A proof that the connecting end knows the token. `id` is new for each connection. */
export const proofOf = (token: string, id: string, name: string): string =>
  createHmac("sha256", token).update(`${id} ${name}`).digest("base64url");

/** The key, of 32 bytes, for the tags of the parcels that go to one end of a connection. */
export const parcelKey = (token: string, end: string): Buffer =>
  createHmac("sha256", token).update(`parcels for ${end}`).digest();

export class NatsTransport implements Transport {
  readonly #options: SocketOptions & BrokerOptions;
  readonly #brokers = new Map<string, Promise<Broker>>();
  readonly #refused: (from: string, why: string) => void;

  constructor(options: SocketOptions) {
    this.#options = { silenceMsMax: SILENCE_MS_MAX, connectMsMax: CONNECT_MS_MAX, ...options };
    this.#refused = reportSeldom(options.clock, options.report);
  }

  async listen(address: string, handler: Handler, { fetch }: ListenOptions = {}): Promise<Listener> {
    const { url, name } = parseNatsAddress(address);
    const { token } = this.#options;
    if (!isLoopback(url.hostname) && token === "") {
      throw new Error(`cannot listen on ${address}: anyone could join. Set a token, or use a broker on 127.0.0.1.`);
    }
    if (fetch !== undefined) throw new Error(`cannot serve HTTP on ${address}: use the socket transport`);
    const cannotListen = (error: unknown) => new Error(`cannot listen on ${address}: ${messageOf(error)}`);
    const broker = await this.#broker(url).catch((error: unknown) => {
      throw cannotListen(error);
    });
    const chosen = name ?? crypto.randomUUID();
    const peers = new ListenerPeers(handler);
    const answering = broker.answerDials(chosen, (request) => {
      const dial = Dial.safeParse(parsedJson(request.string()));
      const respond = (answer: z.infer<typeof DialAnswer>) => void request.respond(JSON.stringify(answer));
      if (!dial.success) {
        this.#refused(url.host, "not a request to connect");
        return respond({ refused: "the request is not a request to connect" });
      }
      if (!broker.ready) return respond({ refused: "the listener is reconnecting to its broker" });
      const { inbox, id, proof } = dial.data;
      if (!sameSecret(proof, proofOf(token, id, chosen)) || broker.ends.has(`${id}h`)) {
        this.#refused(url.host, "wrong token");
        return respond({ refused: TOKEN_REFUSED });
      }
      const wire = this.#wire(broker, url, [`${id}h`, `${id}g`], () => inbox, false);
      respond({ inbox: broker.inbox });
      wire.attach(new WirePeer(`${url.host}/${chosen}#${id}`, wire, peers.handler, this.#options));
    });
    const stop = await answering.catch(async (error: unknown) => {
      await this.#leave(broker, url);
      throw cannotListen(error);
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
      if (name === null) throw new Error("the address has no actor name; write nats://HOST:PORT/NAME");
      const broker = await this.#broker(url);
      if (!broker.ready) throw new Error("nothing answers there");
      return await this.#dial(broker, url, name, address, handler);
    } catch (error) {
      throw cannotConnect(address, error);
    }
  }

  async #dial(broker: Broker, url: URL, name: string, address: string, handler: Handler): Promise<Peer> {
    const { token, connectMsMax } = this.#options;
    const id = crypto.randomUUID();
    let inbox = "";
    const wire = this.#wire(broker, url, [`${id}g`, `${id}h`], () => inbox, true);
    try {
      const proof = proofOf(token, id, name);
      const dial = JSON.stringify({ inbox: broker.inbox, id, proof } satisfies z.infer<typeof Dial>);
      const response = await broker.connection
        .request(`bunraku.dial.${name}`, dial, { timeout: connectMsMax })
        .catch((error: unknown) => {
          const isAbsent = error instanceof NoRespondersError || (error as Error).cause instanceof NoRespondersError;
          throw new Error(isAbsent ? "nothing listens there" : `no answer within ${connectMsMax} ms`);
        });
      const answer = DialAnswer.safeParse(parsedJson(response.string()));
      if (!answer.success) throw new Error("the program that answers there is no actor");
      if ("refused" in answer.data) {
        const { refused } = answer.data;
        throw refused === TOKEN_REFUSED ? new TokenRefused(refused) : new Error(refused);
      }
      inbox = answer.data.inbox;
    } catch (error) {
      wire.lose("never connected");
      throw error;
    }
    const peer = new WirePeer(address, wire, handler, this.#options);
    wire.attach(peer);
    return peer;
  }

  /**
   * @param inbox  returns the inbox of the other end's process
   * @param stores  true if this end sends finished episodes through the work stream
   */
  #wire(broker: Broker, url: URL, [end, other]: [string, string], inbox: () => string, stores: boolean): NatsWire {
    const { token } = this.#options;
    const to = () => `${inbox()}.${other}`;
    const over = () => !broker.ends.has(end);
    const wire = new NatsWire({
      ...this.#options,
      parcelBytesMax: broker.parcelBytesMax,
      publish: (parcel) => broker.publish(to(), parcel),
      store: stores ? (parcel, number, ask) => broker.store(to(), parcel, number, ask, over) : null,
      keys: { sent: parcelKey(token, other), taken: parcelKey(token, end) },
      forged: () => this.#refused(url.host, "a parcel with a wrong tag came for a connection"),
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
    return this.#brokers.getOrInsertComputed(key, () => {
      const broker = Broker.connect(url, this.#options);
      broker.catch(() => this.#brokers.delete(key));
      return broker;
    });
  }

  /** Closes the connection to a broker that no listener and no connection uses. */
  async #leave(broker: Broker, url: URL): Promise<void> {
    if (!broker.unused) return;
    this.#brokers.delete(`${url.protocol}//${url.host}`);
    await broker.close();
  }
}

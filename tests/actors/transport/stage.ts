/** Two ends of every kind of transport, for tests that must hold on all of them. */
import { connect } from "@nats-io/transport-node";
import { realClock } from "../../../actors/clock.ts";
import { bearer } from "../../../actors/transport/address.ts";
import { NatsTransport, parcelKey, proofOf } from "../../../actors/transport/nats/nats.ts";
import { decodeParcel, encodeParcel } from "../../../actors/transport/nats/wire.ts";
import { SocketTransport } from "../../../actors/transport/socket.ts";
import type { Problem, Transport, TransportOptions } from "../../../actors/transport/transport.ts";
import { MemoryNetwork, MemoryTransport } from "./memory.ts";

export const TOKEN = "a-token-for-tests";

/** A connection that sends bytes instead of messages. */
export interface RawConnection {
  send(bytes: Uint8Array<ArrayBuffer>): void;
  /** Why the other end closed the connection. */
  readonly closed: Promise<string>;
}

export interface Stage {
  readonly host: Transport;
  readonly guest: Transport;
  /** The address to listen on. */
  readonly address: string;
  /** Problems that the host reported. */
  readonly problems: Problem[];
  raw(address: string): Promise<RawConnection>;
  end(): unknown;
}

export interface StageOptions {
  readonly host?: Partial<TransportOptions>;
  readonly guest?: Partial<TransportOptions>;
}

const limits = { clock: realClock, token: TOKEN, frameBytesMax: 1 << 20, queuedBytesMax: 4 << 20 };

function optionsOf({ host, guest }: StageOptions, problems: Problem[]) {
  const report = (problem: Problem) => void problems.push(problem);
  return { host: { ...limits, report, ...host }, guest: { ...limits, ...guest } };
}

function memoryStage(wanted: StageOptions): Stage {
  const problems: Problem[] = [];
  const { host, guest } = optionsOf(wanted, problems);
  const network = new MemoryNetwork();
  return {
    host: new MemoryTransport(network, host),
    guest: new MemoryTransport(network, guest),
    address: "memory:host",
    problems,
    async raw(address) {
      const { promise, resolve } = Promise.withResolvers<string>();
      const wire = { queuedBytes: 0, send: () => true, close: (reason: string) => resolve(reason) };
      const peer = network.listeners.get(address)!.accept("raw", wire);
      peer.start();
      return { send: (bytes) => network.deliver(() => peer.receive(bytes)), closed: promise };
    },
    end() {},
  };
}

function socketStage(wanted: StageOptions): Stage {
  const problems: Problem[] = [];
  const { host, guest } = optionsOf(wanted, problems);
  return {
    host: new SocketTransport(host),
    guest: new SocketTransport(guest),
    address: "ws://127.0.0.1:0",
    problems,
    async raw(address) {
      const socket = new WebSocket(address, { headers: { Authorization: bearer(host.token) } });
      const { promise: opened, resolve: open, reject } = Promise.withResolvers<void>();
      const { promise: closed, resolve: close } = Promise.withResolvers<string>();
      socket.onopen = () => open();
      socket.onerror = () => reject(new Error("no raw connection"));
      socket.onclose = ({ code, reason }) => close(reason || String(code));
      await opened;
      return { send: (bytes) => socket.send(bytes), closed };
    },
    end() {},
  };
}

/** @param broker  nats://HOST:PORT */
export const natsStage =
  (broker: string) =>
  (wanted: StageOptions): Stage => {
    const problems: Problem[] = [];
    const { host, guest } = optionsOf(wanted, problems);
    const name = crypto.randomUUID();
    const leaving: (() => unknown)[] = [];
    return {
      host: new NatsTransport(host),
      guest: new NatsTransport(guest),
      address: `${broker}/${name}`,
      problems,
      async raw() {
        const connection = await connect({ servers: broker.replace("nats://", "") });
        leaving.push(() => connection.close());
        const { promise: closed, resolve: close } = Promise.withResolvers<string>();
        const [inbox, id] = [crypto.randomUUID(), crypto.randomUUID()];
        connection.subscribe(`bunraku.to.${inbox}.${id}g`, {
          callback(_, { data }) {
            const parcel = decodeParcel(parcelKey(host.token, `${id}g`), data);
            if (parcel?.kind === "close") close(new TextDecoder().decode(parcel.body));
          },
        });
        const dial = JSON.stringify({ inbox, id, proof: proofOf(host.token, id, name) });
        const { inbox: to } = (await connection.request(`bunraku.dial.${name}`, dial)).json<{ inbox: string }>();
        let sent = 0;
        const send = (bytes: Uint8Array) =>
          connection.publish(
            `bunraku.to.${to}.${id}h`,
            encodeParcel(parcelKey(host.token, `${id}h`), "last", ++sent, 0, bytes),
          );
        return { send, closed };
      },
      async end() {
        for (const leave of leaving) await leave();
      },
    };
  };

export const stages = { memory: memoryStage, socket: socketStage };

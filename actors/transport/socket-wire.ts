/** What both ends of a WebSocket share: options, addresses and how a connection is closed. */
import type { Clock } from "../clock.ts";
import type { WirePeer } from "./peer.ts";
import { PING, type SilenceWatch, watchSilence } from "./silence.ts";
import type { ClientTls } from "./tls.ts";
import type { TransportOptions } from "./transport.ts";

export interface SocketOptions extends TransportOptions {
  /** Give up a connection after this long without a sign of life. */
  readonly silenceMsMax?: number;
  /** Give up connecting after this long. */
  readonly connectMsMax?: number;
  /** For wss:// addresses that we connect to. */
  readonly tls?: ClientTls;
}

export const SILENCE_MS_MAX = 30_000;
export const CONNECT_MS_MAX = 10_000;

/** Private close code: the reason is in the close frame. */
export const CLOSED_BY_US = 4000;

/** What the runtime says when it refuses a frame while reading it. */
export const TOO_BIG = "Received too big message";

/** Of the runtime's server, for whoever listens. What is sent is bounded before each send too; the runtime only backs that up. */
export const serverLimits = ({
  frameBytesMax,
  queuedBytesMax,
}: Pick<TransportOptions, "frameBytesMax" | "queuedBytesMax">) =>
  ({
    backpressureLimit: queuedBytesMax,
    maxPayloadLength: frameBytesMax,
    perMessageDeflate: false,
    idleTimeout: 0,
    sendPings: false,
  }) as const;

/** Where the runtime's server listens: a port of 0 is any that is free. */
export const boundTo = ({ hostname, port }: URL) => ({
  hostname: hostname.replace(/^\[|\]$/g, ""),
  port: port === "" ? 0 : Number(port),
});

/** What is sent through a socket that connected somewhere. */
export const clientWire = (socket: WebSocket) => ({
  get queuedBytes(): number {
    return socket.bufferedAmount;
  },
  /** False if it was dropped. */
  send(frame: Uint8Array): boolean {
    if (socket.readyState !== WebSocket.OPEN) return false;
    socket.send(frame as Uint8Array<ArrayBuffer>);
    return true;
  },
  close: (reason: string, drop = false) =>
    drop ? socket.terminate() : socket.close(CLOSED_BY_US, closeReason(reason)),
});

/** A close frame holds at most 125 bytes, two of them the code. */
export function closeReason(reason: string): string {
  const bytes = new TextEncoder().encode(reason);
  return bytes.byteLength <= 123 ? reason : new TextDecoder().decode(bytes.subarray(0, 120)).replace(/\uFFFD+$/, "");
}

/** @throws {Error} if it is not `ws://HOST:PORT`, or `wss://` for TLS. */
export function parseAddress(address: string): URL {
  const url = URL.canParse(address) ? new URL(address) : null;
  if (url === null || !["ws:", "wss:"].includes(url.protocol)) {
    throw new Error(`cannot use ${address}: expected ws://HOST:PORT, or wss://HOST:PORT for TLS`);
  }
  return url;
}

/** Ping the other end, and give it up when it stays silent. */
export function watchPeer(
  clock: Clock,
  silenceMsMax: number,
  peer: WirePeer,
  socket: { send(frame: Uint8Array<ArrayBuffer>): unknown; terminate(): void },
): SilenceWatch {
  return watchSilence({
    clock,
    silenceMsMax,
    ping: () => socket.send(PING),
    silent(silentMs) {
      peer.lost(`nothing was heard for ${Math.round(silentMs)} ms (limit ${silenceMsMax} ms)`);
      socket.terminate();
    },
  });
}

/** What both ends of a WebSocket share: options, addresses, limits and closing. */
import type { ServerWebSocket } from "bun";
import type { Clock } from "../clock.ts";
import type { WirePeer } from "./peer.ts";
import { PING, type SilenceWatch, watchSilence } from "./silence.ts";
import type { ClientTls } from "./tls.ts";
import type { TransportOptions } from "./transport.ts";

export interface SocketOptions extends TransportOptions {
  /** A connection on which nothing arrives for this long is closed. */
  readonly silenceMsMax?: number;
  readonly connectMsMax?: number;
  /** For connecting to wss:// addresses. */
  readonly tls?: ClientTls;
}

export const SILENCE_MS_MAX = 30_000;
export const CONNECT_MS_MAX = 10_000;

/** Close code of a deliberate end; the close frame carries the reason. */
export const CLOSED_BY_US = 4000;

/** Bun's close reason for a frame over `maxPayloadLength`. */
export const TOO_BIG = "Received too big message";

/** Limits of `Bun.serve`. Senders check the same limits before each send. */
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

/** Where `Bun.serve` listens; port 0 is any free port. */
export const boundTo = ({ hostname, port }: URL) => ({
  hostname: hostname.replace(/^\[|\]$/g, ""),
  port: port === "" ? 0 : Number(port),
});

/** The sending half of a client's WebSocket. */
export const clientWire = (socket: WebSocket) => ({
  get queuedBytes(): number {
    return socket.bufferedAmount;
  },
  get closing(): boolean {
    return socket.readyState !== WebSocket.OPEN;
  },
  /** @returns false if the frame was dropped */
  send(frame: Uint8Array): boolean {
    if (this.closing) return false;
    socket.send(frame as Uint8Array<ArrayBuffer>);
    return true;
  },
  close: (reason: string, drop = false) =>
    drop ? socket.terminate() : socket.close(CLOSED_BY_US, closeReason(reason)),
});

/** The sending half of a server's WebSocket. */
export const serverWire = (socket: ServerWebSocket<unknown>) => ({
  get queuedBytes(): number {
    return socket.getBufferedAmount();
  },
  get closing(): boolean {
    return socket.readyState !== WebSocket.OPEN;
  },
  // sendBinary returns -1 for a queued frame, which queuedBytes counts, and 0 for a dropped one or for a ping, which has no bytes.
  send: (frame: Uint8Array) => socket.sendBinary(frame as Uint8Array<ArrayBuffer>) !== 0 || frame.byteLength === 0,
  close: (reason: string, drop = false) =>
    drop ? socket.terminate() : socket.close(CLOSED_BY_US, closeReason(reason)),
});

/** Cuts a reason to fit: a close frame holds 125 bytes, two of them for the code. */
export function closeReason(reason: string): string {
  const bytes = new TextEncoder().encode(reason);
  if (bytes.byteLength <= 123) return reason;
  return `${new TextDecoder().decode(bytes.subarray(0, 120)).replace(/\uFFFD+$/, "")}…`;
}

/** @throws {Error} if the address is not `ws://HOST:PORT`, or `wss://` for TLS. */
export function parseAddress(address: string): URL {
  const url = URL.canParse(address) ? new URL(address) : null;
  if (url === null || !["ws:", "wss:"].includes(url.protocol)) {
    throw new Error(`cannot use ${address}: expected ws://HOST:PORT, or wss://HOST:PORT for TLS`);
  }
  return url;
}

/** Pings the other end and ends the connection when nothing arrives for `silenceMsMax`. */
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
    silent(reason) {
      peer.lost(reason);
      socket.terminate();
    },
  });
}

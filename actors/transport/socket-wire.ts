/** Code that both ends of a WebSocket use: options, addresses, limits and closing. */
import type { ServerWebSocket } from "bun";
import type { Clock } from "../clock.ts";
import { PING, type SilenceWatch, watchSilence } from "./silence.ts";
import type { ClientTls } from "./tls.ts";
import type { TransportOptions } from "./transport.ts";

export interface SocketOptions extends TransportOptions {
  /** This end closes a connection on which nothing arrives for this long. */
  readonly silenceMsMax?: number;
  readonly connectMsMax?: number;
  /** For connecting to wss:// addresses. */
  readonly tls?: ClientTls;
}

export const SILENCE_MS_MAX = 30_000;
export const CONNECT_MS_MAX = 10_000;

/** WebSocket close code when an actor closes a connection on purpose. The close frame holds the reason. */
export const CLOSED_BY_US = 4000;

/** Bun's close reason for a frame over `maxPayloadLength`. */
export const TOO_BIG = "Received too big message";

/** Limits for `Bun.serve`. A sender checks the same limits before it sends a frame. */
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

/** The host and port for `Bun.serve`; port 0: the system chooses a free port. A URL does not show the default port of its scheme. */
export const boundTo = ({ protocol, hostname, port }: URL) => ({
  hostname: hostname.replace(/^\[|\]$/g, ""),
  port: port === "" ? DEFAULT_PORTS[protocol as keyof typeof DEFAULT_PORTS] : Number(port),
});

const DEFAULT_PORTS = { "ws:": 80, "wss:": 443 } as const;

/** The sending half of a client's WebSocket. */
export const clientWire = (socket: WebSocket) => ({
  get queuedBytes(): number {
    return socket.bufferedAmount;
  },
  get closing(): boolean {
    return socket.readyState !== WebSocket.OPEN;
  },
  /** @returns false if the socket dropped the frame */
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
  // sendBinary returns -1 for a queued frame; `queuedBytes` counts its bytes. It returns 0 for a dropped frame, and also for a ping, which is empty.
  send: (frame: Uint8Array) => socket.sendBinary(frame as Uint8Array<ArrayBuffer>) !== 0 || frame.byteLength === 0,
  close: (reason: string, drop = false) =>
    drop ? socket.terminate() : socket.close(CLOSED_BY_US, closeReason(reason)),
});

/** Shortens a reason so that it fits into a close frame of 125 bytes. Two of these bytes hold the close code. */
export function closeReason(reason: string): string {
  const bytes = new TextEncoder().encode(reason);
  if (bytes.byteLength <= 123) return reason;
  return `${new TextDecoder().decode(bytes.subarray(0, 120)).replace(/\uFFFD+$/, "")}…`;
}

/** @throws {Error} if the address is neither `ws://HOST:PORT` nor `wss://HOST:PORT`, which uses TLS */
export function parseAddress(address: string): URL {
  const url = URL.parse(address);
  if (url === null || !["ws:", "wss:"].includes(url.protocol)) {
    throw new Error(`cannot use ${address}: expected ws://HOST:PORT, or wss://HOST:PORT for TLS`);
  }
  return url;
}

/** Pings the other end and ends the connection when nothing arrives for `silenceMsMax`. @param lost  gets the reason */
export function watchSocket(
  socket: { send(frame: Uint8Array<ArrayBuffer>): unknown; terminate(): void },
  clock: Clock,
  lost: (reason: string) => void,
  silenceMsMax = SILENCE_MS_MAX,
): SilenceWatch {
  const silent = (reason: string) => {
    lost(reason);
    socket.terminate();
  };
  return watchSilence(clock, silenceMsMax, () => socket.send(PING), silent);
}

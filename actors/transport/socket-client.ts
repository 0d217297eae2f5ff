/** The connecting end of a WebSocket. */
import { WirePeer } from "./peer.ts";
import type { SilenceWatch } from "./silence.ts";
import {
  CONNECT_MS_MAX,
  clientWire,
  parseAddress,
  SILENCE_MS_MAX,
  type SocketOptions,
  TOO_BIG,
  watchPeer,
} from "./socket-wire.ts";
import { bearer } from "./token.ts";
import type { Handler, Peer } from "./transport.ts";

/** @throws {Error} with the address and the reason, if it cannot connect. */
export function dial(address: string, handler: Handler, options: SocketOptions): Promise<Peer> {
  const { clock, token, tls = {}, connectMsMax = CONNECT_MS_MAX, silenceMsMax = SILENCE_MS_MAX } = options;
  const { promise, resolve, reject } = Promise.withResolvers<Peer>();
  const socket = new WebSocket(parseAddress(address), { headers: { Authorization: bearer(token) }, tls });
  socket.binaryType = "arraybuffer";
  let peer: WirePeer | null = null;
  let watch: SilenceWatch | null = null;
  let refusal = "the connection was closed";
  const cancelDeadline = clock.after(connectMsMax, () => {
    refusal = `no answer within ${connectMsMax} ms`;
    socket.terminate();
  });

  socket.onopen = () => {
    cancelDeadline();
    peer = new WirePeer(address, clientWire(socket), handler, options);
    watch = watchPeer(clock, silenceMsMax, peer, socket);
    peer.start();
    resolve(peer);
  };
  socket.onmessage = ({ data }) => {
    watch?.heard();
    if (!(data instanceof ArrayBuffer)) peer?.refuse("badFrame", "bad frame: text, expected bytes");
    else if (data.byteLength > 0) peer?.receive(new Uint8Array(data));
  };
  socket.onerror = (event) => {
    refusal = whyRefused(event);
  };
  socket.onclose = ({ code, reason }) => {
    cancelDeadline();
    watch?.stop();
    if (peer === null) reject(new Error(`cannot connect to ${address}: ${refusal}`));
    else peer.lost(reason === TOO_BIG ? "a frame was larger than the other end allows" : reason || lostBy(code));
  };
  return promise;
}

export const lostBy = (code: number): string => `the connection was lost (WebSocket code ${code})`;

/** Bun reports the status that refused the upgrade only in the error's message. */
function whyRefused(event: Event): string {
  const message = "message" in event ? String(event.message) : "";
  const status = /Expected 101 status code: (\d+)/.exec(message)?.[1];
  if (status === "401") return "the token was refused";
  if (status === "403") return "the token does not allow it";
  if (status !== undefined) return `HTTP status ${status} instead of a WebSocket`;
  const tls = /TLS handshake failed: (.*)$/.exec(message)?.[1];
  if (tls !== undefined) return `the TLS handshake failed: ${tls}`;
  return "nothing answers there";
}

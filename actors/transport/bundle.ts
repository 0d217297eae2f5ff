/**
 * Bundles: several frames in one WebSocket message. An actor often sends many frames at once: a sampler, for example, sends the replies of
 * one decoding step. A message costs each end more time than the encoding of a small frame, so one message for many frames saves time.
 *
 * A bundle begins with the byte `BUNDLE`. Before each frame of the bundle stands the frame's length in 4 bytes, big-endian. A message with
 * one frame is the frame itself, without `BUNDLE` and without a length.
 */
import type { Frame } from "./frame.ts";
import type { Wire, WirePeer } from "./peer.ts";

/** No frame begins with this byte, because msgpack never uses it. */
const BUNDLE = 0xc1;
const LENGTH_BYTES = 4;

/** The sending half of a WebSocket. */
type SendingHalf = Required<Pick<Wire, "queuedBytes" | "closing" | "close">> & {
  /** @returns false if the socket dropped the message */
  send(message: Uint8Array): boolean;
};

/**
 * A wire that collects the frames of one turn of the event loop, and sends them in one message at the end of the turn.
 *
 * @param bytesMax  maximum size of a bundle; a frame that does not fit begins another message
 */
export function bundling(socket: SendingHalf, bytesMax: number): Wire {
  let waiting: Frame[] = [];
  let waitingBytes = 0;
  const flush = () => {
    const frames = waiting;
    waiting = [];
    waitingBytes = 0;
    if (frames.length === 0 || socket.closing) return;
    const sent = socket.send(frames.length === 1 ? frames[0]! : bundleOf(frames));
    if (!sent) socket.close("frames were dropped: the socket is full", true);
  };
  return {
    get queuedBytes() {
      return socket.queuedBytes + waitingBytes;
    },
    get closing() {
      return socket.closing;
    },
    send(frame) {
      if (socket.closing) return false;
      const bytes = LENGTH_BYTES + frame.byteLength;
      if (1 + waitingBytes + bytes > bytesMax) flush();
      waitingBytes += bytes;
      if (waiting.push(frame) === 1) queueMicrotask(flush);
      return true;
    },
    close(reason, drop) {
      if (!drop) flush();
      socket.close(reason, drop);
    },
  };
}

function bundleOf(frames: readonly Frame[]): Uint8Array {
  const bytes = new Uint8Array(frames.reduce((sum, frame) => sum + LENGTH_BYTES + frame.byteLength, 1));
  const view = new DataView(bytes.buffer);
  bytes[0] = BUNDLE;
  let at = 1;
  for (const frame of frames) {
    view.setUint32(at, frame.byteLength);
    bytes.set(frame, at + LENGTH_BYTES);
    at += LENGTH_BYTES + frame.byteLength;
  }
  return bytes;
}

/** Gives a peer the frames of a message, one by one. The peer refuses a bundle without a frame, with an empty frame, or that ends inside a frame. */
export function takeMessage(peer: Pick<WirePeer, "receive" | "refuse" | "closed">, message: Uint8Array): void {
  if (message[0] !== BUNDLE) {
    peer.receive(message);
    return;
  }
  const view = new DataView(message.buffer, message.byteOffset, message.byteLength);
  let fault = message.byteLength === 1 ? "has no frame" : null;
  for (let at = 1; at < message.byteLength && fault === null && !peer.closed; ) {
    const from = at + LENGTH_BYTES;
    const to = from <= message.byteLength ? from + view.getUint32(at) : Number.POSITIVE_INFINITY;
    if (to > message.byteLength) fault = "ends inside a frame";
    else if (to === from) fault = "has an empty frame";
    else peer.receive(message.subarray(from, to));
    at = to;
  }
  if (fault !== null) peer.refuse("badFrame", `bad frame: a bundle of ${message.byteLength} bytes ${fault}`);
}

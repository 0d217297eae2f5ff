/**
 * Bundles: WebSocket messages that hold several frames. A message costs both ends more time than a small frame, and an actor often sends many
 * frames at once. For example, a sampler sends all replies that ended in one decoding step.
 *
 * A bundle begins with a byte that no frame begins with. In front of each frame of the bundle stands the frame's length: 4 bytes, big-endian. A
 * message with one frame is the frame itself.
 */
import type { Frame } from "./frame.ts";
import type { Wire, WirePeer } from "./peer.ts";

/** A frame is msgpack, which never uses this byte. */
const BUNDLE = 0xc1;
const LENGTH_BYTES = 4;

/** The sending half of a WebSocket. */
type SendingHalf = Required<Pick<Wire, "queuedBytes" | "closing" | "close">> & {
  /** @returns false if the message was dropped */
  send(message: Uint8Array): boolean;
};

/**
 * A wire that sends a frame at the end of the current turn of the event loop, together with the other frames of this turn.
 *
 * @param bytesMax  maximum size of a bundle
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

/** Gives a peer the frames of a message. */
export function takeMessage(peer: Pick<WirePeer, "receive" | "refuse" | "closed">, message: Uint8Array): void {
  if (message[0] !== BUNDLE) {
    peer.receive(message);
    return;
  }
  const view = new DataView(message.buffer, message.byteOffset, message.byteLength);
  for (let at = 1; at < message.byteLength && !peer.closed; ) {
    const from = at + LENGTH_BYTES;
    const to = from <= message.byteLength ? from + view.getUint32(at) : from;
    if (to > message.byteLength) {
      peer.refuse("badFrame", `bad frame: a bundle of ${message.byteLength} bytes ends inside a frame`);
      return;
    }
    peer.receive(message.subarray(from, to));
    at = to;
  }
}

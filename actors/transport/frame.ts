/**
 * One message as bytes: msgpack of `[0, tell]`, `[1, id, ask]` or `[2, id, answer]`. This file knows no connection.
 *
 * - A decoded message shares no memory with the frame or with any other message.
 * - `parseMessage` checks every decoded message, and the kind of frame must fit the kind of message.
 * - `decodeFrame` refuses a frame with more than `VALUES_MAX` values before it decodes the frame. To decode 64 MiB of empty lists would take
 *   25 s and 4.8 GB.
 */
import { Packr } from "msgpackr";
import {
  type Answer,
  type Ask,
  answerTypes,
  type Message,
  ProtocolError,
  parseMessage,
  type Tell,
} from "../protocol.ts";

export type Envelope =
  | { readonly kind: "tell"; readonly body: Tell }
  | { readonly kind: "ask"; readonly id: number; readonly body: Ask }
  | { readonly kind: "answer"; readonly id: number; readonly body: Answer };

/** Maximum number of values in a frame: numbers, texts, keys, lists and mappings, at any depth. An episode has about 30 values for each turn. */
const VALUES_MAX = 2 ** 21;

/** A frame owns its buffer, so another thread can take it over. */
export type Frame = Uint8Array<ArrayBuffer>;

const answers: ReadonlySet<string> = new Set(["failed", ...Object.values(answerTypes)]);

const isAsk = (message: Message): message is Ask => Object.hasOwn(answerTypes, message.type);
const isAnswer = (message: Message): message is Answer => answers.has(message.type);

// With `useRecords`, a frame would depend on earlier frames. Without `moreTypes`, the codec decodes typed arrays as Buffers.
const codec = new Packr({ useRecords: false, moreTypes: true });

/** @throws {FrameTooLargeError} */
export function encodeFrame(envelope: Envelope, frameBytesMax: number): Frame {
  const head = envelope.kind === "tell" ? [0] : [envelope.kind === "ask" ? 1 : 2, envelope.id];
  const packed = codec.pack([...head, envelope.body]);
  if (packed.byteLength > frameBytesMax) throw new FrameTooLargeError(packed.byteLength, frameBytesMax, envelope);
  // The codec reuses its buffer for every message, so the frame must be a copy.
  return new Uint8Array(packed);
}

/** @throws {ProtocolError} if the bytes are not one message of the protocol. */
export function decodeFrame(frame: Uint8Array): Envelope {
  const decoded = unpack(frame);
  const [kind, ...rest] = Array.isArray(decoded) ? decoded : [];
  if (kind === 0 && rest.length === 1) {
    const body = parseMessage(rest[0]);
    if (isAsk(body) || isAnswer(body)) throw new ProtocolError(`${body.type} cannot be told`);
    return { kind: "tell", body };
  }
  const [id, raw] = rest;
  if ((kind !== 1 && kind !== 2) || rest.length !== 2 || !Number.isSafeInteger(id) || id < 1) {
    throw new ProtocolError("a frame is [0, message], [1, id, ask] or [2, id, answer]");
  }
  const body = parseMessage(raw);
  if (kind === 1) {
    if (!isAsk(body)) throw new ProtocolError(`${body.type} cannot be asked`);
    return { kind: "ask", id, body };
  }
  if (!isAnswer(body)) throw new ProtocolError(`${body.type} answers nothing`);
  return { kind: "answer", id, body };
}

function unpack(frame: Uint8Array): unknown {
  if (frame.byteLength > VALUES_MAX / ARRAY_VALUES && valuesOf(frame) > VALUES_MAX) {
    throw new ProtocolError(`a frame of ${frame.byteLength} bytes has more than ${VALUES_MAX} values`);
  }
  try {
    return codec.unpack(frame);
  } catch (error) {
    throw new ProtocolError("not msgpack", { cause: error });
  }
}

/**
 * Entry i of both lists describes the msgpack type 0xc0 + i. HEAD_BYTES: the number of bytes after the type byte. These bytes are a number,
 * the count of a list or mapping, an extension of fixed size, or the length of a text, of binary data or of an extension. LENGTH_BYTES: how
 * many of these bytes, from the first on, hold the length of data that follow them; 0, or no entry: no data follow.
 */
const HEAD_BYTES = [0, 0, 0, 0, 1, 2, 4, 2, 3, 5, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 2, 3, 5, 9, 17, 1, 2, 4, 2, 4, 2, 4];
const LENGTH_BYTES = [0, 0, 0, 0, 1, 2, 4, 1, 2, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 4];
const isExtension = (type: number) => (type >= 0xc7 && type <= 0xc9) || (type >= 0xd4 && type <= 0xd8);
/** The codec's extensions that messages use. `valuesOf` refuses others: it cannot count the values inside them. */
const UNDEFINED = 0;
const TYPED_ARRAY = 0x74;
/** `valuesOf` counts a typed array as this many values, because decoding a typed array takes about as long as decoding this many values. */
const ARRAY_VALUES = 64;

/** Counts the values of a frame, and stops above `VALUES_MAX`. @throws {ProtocolError} for an unknown extension; the codec finds other faults */
function valuesOf(frame: Uint8Array): number {
  let values = 0;
  for (let at = 0; at < frame.length && values <= VALUES_MAX; values++) {
    const type = frame[at++]!;
    if (type >= 0xa0 && type < 0xc0) at += type & 31;
    if (type < 0xc0 || type > 0xdf) continue;
    const lengthBytes = LENGTH_BYTES[type - 0xc0] ?? 0;
    let length = 0;
    for (let i = 0; i < lengthBytes; i++) length = length * 256 + frame[at + i]!;
    if (isExtension(type)) {
      const extension = frame[at + lengthBytes];
      if (extension === TYPED_ARRAY) values += ARRAY_VALUES;
      else if (extension !== UNDEFINED) throw new ProtocolError("not data that a message may hold");
    }
    at += HEAD_BYTES[type - 0xc0]! + length;
  }
  return values;
}

export class FrameTooLargeError extends Error {
  override readonly name = "FrameTooLargeError";

  constructor(bytes: number, frameBytesMax: number, envelope: Envelope) {
    super(`cannot send ${envelope.body.type}: ${bytes} bytes, frameBytesMax is ${frameBytesMax}`);
  }
}

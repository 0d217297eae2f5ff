/**
 * Encodes, writes and reads the scalars of TensorBoard event files. A file is a sequence of TFRecords, each with one `Event` message.
 *
 * Source: tensorflow/core/util/event.proto, framework/summary.proto and lib/io/record_writer.h; CRC-32C of RFC 3720, appendix B.4,
 * masked as in lib/hash/crc32c.h.
 */
import { appendFileSync, mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fieldsOf, ProtobufMessage } from "../../model/engine/protobuf.ts";
import { isMetricName, metric } from "../metrics/metrics.ts";
import type { StoredPoint } from "../metrics-sink/records.ts";

/** A file name that `tensorboard --logdir` recognizes. @param startedMs  milliseconds since the epoch */
export const eventFileName = (startedMs: number): string =>
  `events.out.tfevents.${String(Math.floor(startedMs / 1000)).padStart(10, "0")}.bunraku-${startedMs % 1000}`;

/** The first record of an event file. @param atMs  milliseconds since the epoch */
export function fileHead(atMs: number): Uint8Array {
  // Event: wall_time 1, file_version 3.
  const event = new ProtobufMessage().double(1, atMs / 1000);
  return tfRecord(event.text(3, "brain.Event:2").finish());
}

/** An event with the values of one step: for each tag one float32. @param atMs  milliseconds since the epoch */
export function scalarEvent(atMs: number, step: number, values: Iterable<readonly [tag: string, value: number]>) {
  const summary = new ProtobufMessage();
  // Summary: value 1. Summary.Value: tag 1, simple_value 2.
  for (const [tag, value] of values) summary.message(1, new ProtobufMessage().text(1, tag).float(2, value));
  // Event: wall_time 1, step 2, summary 5.
  const event = new ProtobufMessage().double(1, atMs / 1000).int(2, step);
  return tfRecord(event.message(5, summary).finish());
}

/** A TFRecord: length (uint64), checksum of the length, data, checksum of the data; all little-endian. */
export function tfRecord(data: Uint8Array): Uint8Array {
  const record = new Uint8Array(8 + 4 + data.length + 4);
  const view = new DataView(record.buffer);
  view.setBigUint64(0, BigInt(data.length), true);
  view.setUint32(8, masked(crc32c(record.subarray(0, 8))), true);
  record.set(data, 12);
  view.setUint32(12 + data.length, masked(crc32c(data)), true);
  return record;
}

/** Castagnoli's polynomial with its bits reversed. Bun.hash.crc32 uses another polynomial. */
const POLYNOMIAL = 0x82f63b78;
const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let rest = byte;
  for (let bit = 0; bit < 8; bit++) rest = rest & 1 ? (rest >>> 1) ^ POLYNOMIAL : rest >>> 1;
  return rest;
});

export function crc32c(bytes: Uint8Array): number {
  let rest = 0xffffffff;
  for (const byte of bytes) rest = (rest >>> 8) ^ TABLE[(rest ^ byte) & 255]!;
  return (rest ^ 0xffffffff) >>> 0;
}

/** A TFRecord stores each checksum in this masked form. */
const masked = (crc: number): number => (((crc >>> 15) | (crc << 17)) + 0xa282ead8) >>> 0;

export interface Scalar {
  readonly step: number;
  readonly tag: string;
  readonly value: number;
}

/** The scalars of an event file, without an incomplete last record of a run that still writes. @throws {RangeError} for a damaged record */
export function* scalarsOf(bytes: Uint8Array): Generator<Scalar> {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  for (let at = 0; at + 12 <= bytes.length; ) {
    const length = Number(view.getBigUint64(at, true));
    if (view.getUint32(at + 8, true) !== masked(crc32c(bytes.subarray(at, at + 8)))) throw damaged(at);
    const end = at + 12 + length;
    if (end + 4 > bytes.length) return;
    const data = bytes.subarray(at + 12, end);
    if (view.getUint32(end, true) !== masked(crc32c(data))) throw damaged(at);
    yield* scalarsOfEvent(data);
    at = end + 4;
  }
}

const damaged = (at: number) => new RangeError(`no TensorBoard event file, or a damaged one: record at byte ${at}`);

/** Event: step 2, summary 5. Summary: value 1. Summary.Value: tag 1, simple_value 2, tensor 8. */
function* scalarsOfEvent(event: Uint8Array): Generator<Scalar> {
  const fields = new Map(fieldsOf(event));
  const step = Number(fields.get(2) ?? 0);
  const summary = fields.get(5);
  if (!(summary instanceof Uint8Array)) return;
  for (const [, value] of fieldsOf(summary)) {
    const { 1: tag, 2: simple, 8: tensor } = Object.fromEntries(fieldsOf(value as Uint8Array));
    const four = simple instanceof Uint8Array ? simple : floatOf(tensor);
    if (four === null || !(tag instanceof Uint8Array)) continue;
    yield {
      step,
      tag: new TextDecoder().decode(tag),
      value: new DataView(four.buffer, four.byteOffset).getFloat32(0, true),
    };
  }
}

/** The only float32 of a TensorProto; null for any other value. TensorProto: 1 dtype (the value 1 is float), 4 tensor_content, 5 float_val. */
function floatOf(tensor: number | Uint8Array | undefined): Uint8Array | null {
  if (!(tensor instanceof Uint8Array)) return null;
  const { 1: type, 4: content, 5: floats } = Object.fromEntries(fieldsOf(tensor));
  const value = content ?? floats;
  return type === 1 && value instanceof Uint8Array && value.length === 4 ? value : null;
}

const WAITING_BYTES_MAX = 1 << 20;

/** Writes metrics to TensorBoard event files: the run's file in the folder itself, an actor's file in a subfolder with the actor's name. */
export class EventFiles {
  readonly #folder: string;
  readonly #name: string;
  /** Events to append, by path. */
  readonly #waiting = new Map<string, Uint8Array[]>();
  #waitingBytes = 0;
  pointCount = 0;

  /** @param startedMs  start of the session in milliseconds since the epoch; part of the file names */
  constructor(folder: string, startedMs: number) {
    this.#folder = folder;
    this.#name = eventFileName(startedMs);
  }

  get fileCount(): number {
    return this.#waiting.size;
  }

  /** @throws {Error} if a file exists or cannot be written */
  add({ name, actor, step, value, atMs }: Omit<StoredPoint, "id">): void {
    const isPerActor = isMetricName(name) && metric(name).perActor === true;
    const path = join(this.#folder, isPerActor ? actor : "", this.#name);
    const waiting = this.#waiting.getOrInsertComputed(path, () => {
      mkdirSync(dirname(path), { recursive: true });
      writeFileSync(path, fileHead(atMs), { flag: "wx" });
      return [];
    });
    const event = scalarEvent(atMs, step, [[name, value]]);
    waiting.push(event);
    this.pointCount++;
    this.#waitingBytes += event.length;
    if (this.#waitingBytes > WAITING_BYTES_MAX) this.flush();
  }

  flush(): void {
    for (const [path, waiting] of this.#waiting) {
      if (waiting.length > 0) appendFileSync(path, Buffer.concat(waiting.splice(0)));
    }
    this.#waitingBytes = 0;
  }
}

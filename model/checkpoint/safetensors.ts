/**
 * The safetensors format: named arrays of numbers in one file, as Hugging Face reads and writes them.
 *
 * Bytes in, bytes out: it knows no disk, no network and no model. F32, F16 and BF16 are read, all as Float32Array; F32 is written.
 *
 * - Nothing of a bad file is returned: lengths, offsets and names are checked before the first value is copied.
 * - Every data byte belongs to exactly one tensor: no overlaps, no holes, no tail.
 * - Equal tensors and metadata give equal bytes, in whatever order they come.
 * - Arrays returned own their memory; the bytes read may be dropped or reused.
 *
 * Source: https://huggingface.co/docs/safetensors (format). Little-endian machines only, as every one that Bun runs on.
 */
import { z } from "zod";

/** As the reference implementation: a header longer than this is an attack or another format. */
export const HEADER_BYTES_MAX = 100_000_000;

/** Byte length of the little-endian u64 that a file opens with. */
const PREFIX_BYTES = 8;
const ALIGN_BYTES = 8;

export interface NamedTensor {
  /** Row-major; [] is a single number. */
  readonly shape: readonly number[];
  readonly values: Float32Array;
}

export interface Safetensors {
  /** Where it came from; for messages. */
  readonly file: string;
  /** Free text by key, from the writer. */
  readonly metadata: Readonly<Record<string, string>>;
  /** In order of their bytes. */
  readonly tensors: ReadonlyMap<string, NamedTensor>;
}

const DTYPE_BYTES = { F32: 4, F16: 2, BF16: 2 } as const;
type Dtype = keyof typeof DTYPE_BYTES;

const Offset = z.int().nonnegative();
const Row = z.strictObject({ dtype: z.string(), shape: z.array(Offset), data_offsets: z.tuple([Offset, Offset]) });

/** Where one tensor lies; offsets count from the end of the header. */
interface Place {
  readonly name: string;
  readonly dtype: Dtype;
  readonly shape: readonly number[];
  readonly begin: number;
  readonly end: number;
}

export class SafetensorsError extends Error {
  override readonly name = "SafetensorsError";
}

/**
 * @param file  named in every message.
 * @throws {SafetensorsError} if the bytes are not one whole, well-formed file of F32, F16 and BF16 tensors.
 */
export function readSafetensors(bytes: Uint8Array, file: string): Safetensors {
  const refuse = (why: string): never => {
    throw new SafetensorsError(`cannot read ${file}: ${why}`);
  };
  const headerBytes = headerLength(bytes, refuse);
  const dataStart = PREFIX_BYTES + headerBytes;
  const { __metadata__: metadata = {}, ...rows } = headerObject(bytes.subarray(PREFIX_BYTES, dataStart), refuse);
  if (!isTextByKey(metadata)) return refuse("__metadata__ must be an object whose values are text");
  const places = Object.entries(rows).map(([name, row]) => place(name, row, refuse));
  places.sort((a, b) => a.begin - b.begin || a.end - b.end);
  checkCoverage(places, bytes.length - dataStart, refuse);
  const tensors = new Map<string, NamedTensor>();
  for (const { name, dtype, shape, begin, end } of places) {
    tensors.set(name, { shape, values: widen(dtype, bytes.slice(dataStart + begin, dataStart + end)) });
  }
  return { file, metadata, tensors };
}

type Refuse = (why: string) => never;

function headerLength(bytes: Uint8Array, refuse: Refuse): number {
  if (bytes.length < PREFIX_BYTES) {
    return refuse(
      `${bytes.length} bytes, but a safetensors file opens with ${PREFIX_BYTES}; it was cut or is no safetensors file`,
    );
  }
  const length = new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true);
  if (length > HEADER_BYTES_MAX) {
    return refuse(
      `its header claims ${length} bytes, at most ${HEADER_BYTES_MAX} are allowed; is it a safetensors file?`,
    );
  }
  const left = bytes.length - PREFIX_BYTES;
  if (length > left) return refuse(`its header claims ${length} bytes and ${left} are left; the file was cut`);
  return Number(length);
}

function headerObject(bytes: Uint8Array, refuse: Refuse): Record<string, unknown> {
  let header: unknown;
  try {
    header = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch (error) {
    return refuse(`its header is not JSON in UTF-8 (${error instanceof Error ? error.message : error})`);
  }
  if (typeof header !== "object" || header === null || Array.isArray(header)) {
    return refuse(`its header must be a JSON object, found ${JSON.stringify(header)?.slice(0, 40)}`);
  }
  return header as Record<string, unknown>;
}

function place(name: string, raw: unknown, refuse: Refuse): Place {
  const tensor = `tensor ${JSON.stringify(name)}`;
  const row = Row.safeParse(raw);
  if (!row.success) return refuse(`${tensor}: ${z.prettifyError(row.error).replaceAll("\n", " ")}`);
  const { dtype, shape, data_offsets } = row.data;
  const [begin, end] = data_offsets;
  if (!isDtype(dtype)) return refuse(`${tensor} is ${dtype}; readable are ${Object.keys(DTYPE_BYTES).join(", ")}`);
  const needed = sizeOf(shape) * DTYPE_BYTES[dtype];
  if (end - begin !== needed) {
    return refuse(
      `${tensor}: ${dtype} [${shape}] takes ${needed} bytes, its offsets ${begin} to ${end} hold ${end - begin}`,
    );
  }
  return { name, dtype, shape, begin, end };
}

/** @param places  sorted by where they begin. */
function checkCoverage(places: readonly Place[], dataBytes: number, refuse: Refuse): void {
  let covered = 0;
  let before = "the header";
  for (const { name, begin, end } of places) {
    const tensor = `tensor ${JSON.stringify(name)}`;
    if (begin < covered)
      refuse(`${tensor} begins at byte ${begin}, inside ${before}, which ends at ${covered}; they overlap`);
    if (begin > covered) refuse(`bytes ${covered} to ${begin}, between ${before} and ${tensor}, belong to no tensor`);
    covered = end;
    before = tensor;
  }
  if (covered > dataBytes)
    refuse(`${before} ends at byte ${covered} of the data and there are ${dataBytes}; the file was cut`);
  if (covered < dataBytes) refuse(`${dataBytes - covered} bytes after ${before} belong to no tensor`);
}

/** @param bytes  a copy, which starts at offset 0 of its buffer and is therefore aligned. */
function widen(dtype: Dtype, bytes: Uint8Array): Float32Array {
  switch (dtype) {
    case "F32":
      return new Float32Array(bytes.buffer);
    case "F16":
      return Float32Array.from(new Float16Array(bytes.buffer));
    case "BF16":
      // A bfloat16 is the upper half of the float32 of the same value.
      return new Float32Array(Uint32Array.from(new Uint16Array(bytes.buffer), (upper) => upper << 16).buffer);
    default:
      return dtype satisfies never;
  }
}

/**
 * @param tensors   written in order of their names, each as F32.
 * @param metadata  free text by key.
 * @returns a whole file; its data begins at a multiple of 8 bytes.
 * @throws {SafetensorsError} if a name occurs twice or is reserved, or a shape does not fit its values.
 */
export function writeSafetensors(
  tensors: Iterable<readonly [string, NamedTensor]>,
  metadata: Readonly<Record<string, string>> = {},
): Uint8Array {
  const sorted = [...tensors].sort(([a], [b]) => (a < b ? -1 : Number(a > b)));
  const fields: string[] = [];
  const notes = Object.entries(metadata).sort(([a], [b]) => (a < b ? -1 : 1));
  if (notes.length > 0) fields.push(`"__metadata__":${JSON.stringify(Object.fromEntries(notes))}`);
  let end = 0;
  sorted.forEach(([name, { shape, values }], i) => {
    checkWritable(name, shape, values.length, sorted[i - 1]?.[0]);
    const begin = end;
    end += values.byteLength;
    fields.push(`${JSON.stringify(name)}:${JSON.stringify({ dtype: "F32", shape, data_offsets: [begin, end] })}`);
  });
  const text = new TextEncoder().encode(`{${fields.join(",")}}`);
  const headerBytes = Math.ceil(text.length / ALIGN_BYTES) * ALIGN_BYTES;
  const bytes = new Uint8Array(PREFIX_BYTES + headerBytes + end);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(headerBytes), true);
  bytes.fill(0x20, PREFIX_BYTES, PREFIX_BYTES + headerBytes).set(text, PREFIX_BYTES);
  let offset = PREFIX_BYTES + headerBytes;
  for (const [, { values }] of sorted) {
    bytes.set(new Uint8Array(values.buffer, values.byteOffset, values.byteLength), offset);
    offset += values.byteLength;
  }
  return bytes;
}

function checkWritable(name: string, shape: readonly number[], length: number, previous: string | undefined): void {
  const tensor = `cannot write tensor ${JSON.stringify(name)}`;
  if (name === "__metadata__") throw new SafetensorsError(`${tensor}: the format reserves this name`);
  if (name === previous) throw new SafetensorsError(`${tensor}: there are two of this name`);
  if (sizeOf(shape) !== length) {
    throw new SafetensorsError(`${tensor}: shape [${shape}] takes ${sizeOf(shape)} values, found ${length}`);
  }
}

/**
 * Check that a file holds exactly what a model needs.
 *
 * @param shapes  every name, and its shape.
 * @throws {SafetensorsError} naming the first tensor that is missing, not known or of another shape.
 */
export function checkTensors({ file, tensors }: Safetensors, shapes: ReadonlyMap<string, readonly number[]>): void {
  for (const [name, shape] of shapes) {
    const found = tensors.get(name);
    if (found === undefined) throw new SafetensorsError(`${file} has no tensor ${JSON.stringify(name)} [${shape}]`);
    if (found.shape.join() !== shape.join()) {
      throw new SafetensorsError(`${file}: tensor ${JSON.stringify(name)} is [${found.shape}], expected [${shape}]`);
    }
  }
  const unknown = [...tensors.keys()].find((name) => !shapes.has(name));
  if (unknown !== undefined) {
    throw new SafetensorsError(
      `${file} has a tensor ${JSON.stringify(unknown)} that this model does not; is it of another one?`,
    );
  }
}

const isDtype = (dtype: string): dtype is Dtype => Object.hasOwn(DTYPE_BYTES, dtype);
// By hand, because zod's record drops a key named __proto__.
const isTextByKey = (value: unknown): value is Record<string, string> =>
  typeof value === "object" &&
  value !== null &&
  !Array.isArray(value) &&
  Object.values(value).every((text) => typeof text === "string");
const sizeOf = (shape: readonly number[]): number => shape.reduce((product, size) => product * size, 1);

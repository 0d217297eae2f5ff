/**
 * Reads a safetensors file: its header, which has the place of each tensor (`readContents`), and its tensors (`SafetensorsSource`). `widen`
 * converts half-precision numbers to 32-bit floats.
 *
 * - Every data byte belongs to exactly one tensor: no overlaps, no holes, no tail.
 *
 * Source: https://huggingface.co/docs/safetensors (format).
 */
import { z } from "zod";
import { sizeOf } from "../engine/graph.ts";

/** The limit of the reference implementation. A longer header is an attack, or the file has another format. */
const HEADER_BYTES_MAX = 100_000_000;

/** A file begins with the header's length, a little-endian u64. */
export const PREFIX_BYTES = 8;

const DTYPE_BYTES = { F32: 4, F16: 2, BF16: 2 } as const;
export type Dtype = keyof typeof DTYPE_BYTES;

const Offset = z.int().nonnegative();
const Row = z.strictObject({ dtype: z.string(), shape: z.array(Offset), data_offsets: z.tuple([Offset, Offset]) });

/** The place of a tensor, in bytes from the end of the header. */
export interface Place {
  readonly name: string;
  readonly dtype: Dtype;
  readonly shape: readonly number[];
  readonly begin: number;
  readonly end: number;
}

export class SafetensorsError extends Error {
  override readonly name = "SafetensorsError";
}

export interface Contents {
  /** Free text by key. */
  readonly metadata: Readonly<Record<string, string>>;
  /** In the order of their bytes. */
  readonly places: readonly Place[];
}

/**
 * @param header     bytes of the header, without the prefix.
 * @param dataBytes  number of bytes after the header.
 * @param file       name of the file in error texts.
 * @throws {SafetensorsError} if the header is invalid, does not fit the data, or has a tensor that is not F32, F16 or BF16.
 */
export function readContents(header: Uint8Array, dataBytes: number, file: string): Contents {
  const refuse = refusal(file);
  const { __metadata__: metadata = {}, ...rows } = headerObject(header, refuse);
  if (!isTextByKey(metadata)) return refuse("__metadata__ must be an object whose values are text");
  const places = Object.entries(rows).map(([name, row]) => place(name, row, refuse));
  places.sort((a, b) => a.begin - b.begin || a.end - b.end);
  checkCoverage(places, dataBytes, refuse);
  return { metadata, places };
}

/**
 * Byte length of the header, without the prefix.
 *
 * @param start      first bytes of the file, with the prefix.
 * @param fileBytes  length of the whole file.
 */
export function headerLength(start: Uint8Array, fileBytes: number, file: string): number {
  const refuse = refusal(file);
  if (fileBytes < PREFIX_BYTES) {
    return refuse(
      `it has ${fileBytes} bytes, but a safetensors file has at least ${PREFIX_BYTES}; it was cut or is no safetensors file`,
    );
  }
  const length = new DataView(start.buffer, start.byteOffset).getBigUint64(0, true);
  if (length > HEADER_BYTES_MAX) {
    return refuse(
      `its header claims ${length} bytes, but at most ${HEADER_BYTES_MAX} are allowed; is it a safetensors file?`,
    );
  }
  const left = fileBytes - PREFIX_BYTES;
  if (length > left) return refuse(`its header claims ${length} bytes, but ${left} are left; the file was cut`);
  return Number(length);
}

type Refuse = (why: string) => never;

const refusal =
  (file: string): Refuse =>
  (why) => {
    throw new SafetensorsError(`cannot read ${file}: ${why}`);
  };

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
      `${tensor}: ${dtype} [${shape}] takes ${needed} bytes, but its offsets ${begin} to ${end} hold ${end - begin}`,
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
    refuse(`${before} ends at byte ${covered} of the data, but the data has ${dataBytes} bytes; the file was cut`);
  if (covered < dataBytes) refuse(`${dataBytes - covered} bytes after ${before} belong to no tensor`);
}

const isDtype = (dtype: string): dtype is Dtype => Object.hasOwn(DTYPE_BYTES, dtype);
// This check does not use zod, because zod's record drops a key named __proto__.
const isTextByKey = (value: unknown): value is Record<string, string> =>
  typeof value === "object" &&
  value !== null &&
  !Array.isArray(value) &&
  Object.values(value).every((text) => typeof text === "string");

/**
 * Widens the half-precision numbers (halves) at the end of `values`, in place. Each write overwrites only halves that were already read.
 * It reads halves in pairs, because reading a 32-bit word takes no longer than reading a half.
 */
export function widen(dtype: Dtype, { buffer, byteOffset, length }: Float32Array): void {
  const words = new Int32Array(buffer, byteOffset, length);
  let word = length >> 1;
  let into = 0;
  // If the number of halves is odd, the first half is alone in the upper part of a word.
  if (length % 2 === 1 && dtype !== "F32") {
    const half = words[word++]! >>> 16;
    words[into++] = dtype === "F16" ? FLOAT16[half]! : half << 16;
  }
  switch (dtype) {
    case "F32":
      return;
    case "F16":
      for (; word < length; word++, into += 2) {
        const pair = words[word]!;
        words[into] = FLOAT16[pair & 0xffff]!;
        words[into + 1] = FLOAT16[pair >>> 16]!;
      }
      return;
    case "BF16":
      // A bfloat16 is the upper half of the float32 of the same value.
      for (; word < length; word++, into += 2) {
        const pair = words[word]!;
        words[into] = pair << 16;
        words[into + 1] = pair & 0xffff0000;
      }
      return;
    default:
      dtype satisfies never;
  }
}

/** For each float16, the bits of the float32 of the same value. Reading this table is twice as fast as converting. */
const FLOAT16 = new Int32Array(
  Float32Array.from(new Float16Array(Uint16Array.from({ length: 2 ** 16 }, (_, bits) => bits).buffer)).buffer,
);

export interface ByteSource {
  /** For error texts. */
  readonly name: string;
  readonly byteLength: number;
  /** Fills `into` with the bytes from `at` on. @throws {Error} if the source has too few bytes */
  read(into: Uint8Array, at: number): Promise<void>;
}

/** Bytes of the destination that one read fills, and the number of parallel reads. */
const READ_BYTES = 2 ** 23;
const READS = 4;

/**
 * Reads a safetensors file tensor by tensor into existing memory, so a checkpoint of gigabytes needs no second copy. The file is
 * an argument: the reader knows no disk.
 *
 * - It checks the whole header before it reads a value.
 * - It needs no buffer: it reads half precision into the end of the destination and widens the numbers there.
 * - Several reads run in parallel, because page faults in new memory take more time than the copy.
 */
export class SafetensorsSource {
  readonly file: string;
  /** Tensors by name. */
  readonly places: ReadonlyMap<string, Place>;
  readonly #source: ByteSource;
  readonly #dataStart: number;

  private constructor(source: ByteSource, places: readonly Place[], dataStart: number) {
    this.file = source.name;
    this.places = new Map(places.map((place) => [place.name, place]));
    this.#source = source;
    this.#dataStart = dataStart;
  }

  /** @throws {SafetensorsError} if the file is not complete and valid, or has a tensor that is not F32, F16 or BF16. */
  static async open(source: ByteSource): Promise<SafetensorsSource> {
    const prefix = new Uint8Array(Math.min(PREFIX_BYTES, source.byteLength));
    await source.read(prefix, 0);
    const header = new Uint8Array(headerLength(prefix, source.byteLength, source.name));
    await source.read(header, PREFIX_BYTES);
    const dataStart = PREFIX_BYTES + header.length;
    const { places } = readContents(header, source.byteLength - dataStart, source.name);
    return new SafetensorsSource(source, places, dataStart);
  }

  /** Fills `values` with a tensor's values from index `from` on. @throws {RangeError} if the tensor has too few values */
  async read(name: string, values: Float32Array, from = 0): Promise<void> {
    const place = this.places.get(name)!;
    if (from + values.length > sizeOf(place.shape))
      throw new RangeError(`${name} [${place.shape}] has no ${values.length} values from ${from} on`);
    const width = DTYPE_BYTES[place.dtype];
    const at = this.#dataStart + place.begin + from * width;
    const count = READ_BYTES / values.BYTES_PER_ELEMENT;
    let next = 0;
    const readOn = async () => {
      while (next < values.length) {
        const start = next;
        next += count;
        const part = values.subarray(start, start + count);
        const bytes = new Uint8Array(part.buffer, part.byteOffset, part.byteLength);
        await this.#source.read(bytes.subarray(bytes.length - width * part.length), at + width * start);
        widen(place.dtype, part);
      }
    };
    await Promise.all(Array.from({ length: READS }, readOn));
  }
}

/**
 * Reads a safetensors file tensor by tensor into existing memory, so a checkpoint of gigabytes needs no second copy. The file is
 * an argument; this knows no disk.
 *
 * - It checks the whole header before it reads a value.
 * - It needs no buffer: half precision is read into the end of the destination and widened there.
 * - Several reads run at once, because page faults of new memory cost the reader more time than the copy.
 */
import { sizeOf } from "../engine/graph.ts";
import {
  DTYPE_BYTES,
  type Dtype,
  headerLength,
  type Place,
  PREFIX_BYTES,
  readContents,
} from "./safetensors-contents.ts";

export interface ByteSource {
  /** For messages. */
  readonly name: string;
  readonly byteLength: number;
  /** Fills `into` with the bytes from `at` on. @throws {Error} if there are fewer */
  read(into: Uint8Array, at: number): Promise<void>;
}

/** Bytes of destination per read, and reads at once. */
const READ_BYTES = 2 ** 23;
const READS = 4;

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

  /** @throws {SafetensorsError} if the file is not complete and valid, or has another type than F32, F16 and BF16. */
  static async open(source: ByteSource): Promise<SafetensorsSource> {
    const prefix = new Uint8Array(Math.min(PREFIX_BYTES, source.byteLength));
    await source.read(prefix, 0);
    const header = new Uint8Array(headerLength(prefix, source.byteLength, source.name));
    await source.read(header, PREFIX_BYTES);
    const dataStart = PREFIX_BYTES + header.length;
    const { places } = readContents(header, source.byteLength - dataStart, source.name);
    return new SafetensorsSource(source, places, dataStart);
  }

  /** Fills `values` with a tensor's values from index `from` on. @throws {RangeError} if there are fewer */
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

/**
 * Widens the halves at the end of `values` to float32, in place. Each value is written where its half was already read. Halves
 * are read in pairs, because a word is read as fast as a half.
 */
function widen(dtype: Dtype, { buffer, byteOffset, length }: Float32Array): void {
  const words = new Int32Array(buffer, byteOffset, length);
  let word = length >> 1;
  let into = 0;
  // With an odd number, the first half is alone in the upper part of a word.
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

/** The float32's bits by the float16's: a table is twice as fast as converting. */
const FLOAT16 = new Int32Array(
  Float32Array.from(new Float16Array(Uint16Array.from({ length: 2 ** 16 }, (_, bits) => bits).buffer)).buffer,
);

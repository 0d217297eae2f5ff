/**
 * Reads a safetensors file tensor by tensor into existing memory, so a checkpoint of gigabytes needs no second copy. The file is
 * an argument: the reader knows no disk.
 *
 * - It checks the whole header before it reads a value.
 * - It needs no buffer: half precision is read into the end of the destination and widened there.
 * - Several reads run in parallel, because page faults of new memory cost the reader more time than the copy.
 */
import { sizeOf } from "../engine/graph.ts";
import { DTYPE_BYTES, headerLength, type Place, PREFIX_BYTES, readContents, widen } from "./safetensors-contents.ts";

export interface ByteSource {
  /** For error texts. */
  readonly name: string;
  readonly byteLength: number;
  /** Fills `into` with the bytes from `at` on. @throws {Error} if there are fewer */
  read(into: Uint8Array, at: number): Promise<void>;
}

/** Bytes of destination per read, and reads in parallel. */
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

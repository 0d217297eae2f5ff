/**
 * Shorter ways to say the bytes of a version to another host. What is decoded is the same bytes, bit for bit; who decodes checks
 * their sha256 all the same. Knows no network.
 *
 * - `delta`: what differs from a version that the other end holds. The bits that differ (XOR) are laid out by their place in the number
 *   and compressed: an update changes the low bits of a weight, seldom its sign and exponent.
 * - `half`: two bytes a value. Only for versions that were rounded to half precision when they were published.
 *
 * Both are sequences of records: the length of what follows (32 bits, little-endian), and the code of `PIECE_BYTES` (or what is left).
 */

/** What the other end may say it takes, in the header Accept-Weights: `half, delta=VERSION:SHA256`. */
export type Encoding = "delta" | "half";

/** Of the decoded bytes. */
export const PIECE_BYTES = 2 ** 22;

/** Codes are never longer than this; a longer one is none of ours. */
const CODE_BYTES_MAX = PIECE_BYTES + (PIECE_BYTES >> 4);

/** Bytes of a file, or of memory. */
export type Reader = (begin: number, end: number) => Promise<Uint8Array> | Uint8Array;

/** @param base  of equal length; null for `half` */
export async function* encode(next: Reader, base: Reader | null, byteLength: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < byteLength; at += PIECE_BYTES) {
    const end = Math.min(byteLength, at + PIECE_BYTES);
    const bytes = await next(at, end);
    const code =
      base === null ? halves(bytes) : await Bun.zstdCompress(planesOf(bytes, await base(at, end)), { level: 1 });
    const record = new Uint8Array(4 + code.byteLength);
    new DataView(record.buffer).setUint32(0, code.byteLength, true);
    record.set(code, 4);
    yield record;
  }
}

/** @throws {Error} if what comes is not such a code */
export async function* decode(
  stream: AsyncIterable<Uint8Array>,
  base: Reader | null,
  byteLength: number,
): AsyncGenerator<Uint8Array> {
  let at = 0;
  for await (const code of records(stream)) {
    const end = Math.min(byteLength, at + PIECE_BYTES);
    if (at === end) throw new Error("more than was published came");
    const bytes =
      base === null ? fromHalves(code) : fromPlanes(await Bun.zstdDecompress(code), await base(at, end), end - at);
    if (bytes.byteLength !== end - at) throw new Error(`a piece of ${end - at} bytes came as ${bytes.byteLength}`);
    yield bytes;
    at = end;
  }
}

async function* records(stream: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const head = new Uint8Array(4);
  let record: Uint8Array = head;
  let filled = 0;
  for await (let chunk of stream) {
    while (chunk.length > 0) {
      const take = chunk.subarray(0, record.length - filled);
      record.set(take, filled);
      filled += take.length;
      chunk = chunk.subarray(take.length);
      if (filled < record.length) break;
      filled = 0;
      if (record !== head) {
        yield record;
        record = head;
        continue;
      }
      const length = new DataView(head.buffer).getUint32(0, true);
      if (length === 0 || length > CODE_BYTES_MAX) throw new Error(`a piece cannot take ${length} bytes`);
      record = new Uint8Array(length);
    }
  }
  if (record !== head || filled > 0) throw new Error("the connection ended in the middle of a piece");
}

/** The bits in which numbers of 4 bytes differ: all lowest bytes first, then the next ones. */
function planesOf(bytes: Uint8Array, base: Uint8Array): Uint8Array<ArrayBuffer> {
  const count = bytes.length / 4;
  const planes = new Uint8Array(bytes.length);
  for (let i = 0, at = 0; i < count; i++) {
    for (let plane = 0; plane < 4; plane++, at++) planes[plane * count + i] = bytes[at]! ^ base[at]!;
  }
  return planes;
}

function fromPlanes(planes: Uint8Array, base: Uint8Array, byteLength: number): Uint8Array {
  if (planes.length !== byteLength) return planes;
  const count = byteLength / 4;
  const bytes = new Uint8Array(byteLength);
  for (let i = 0, at = 0; i < count; i++) {
    for (let plane = 0; plane < 4; plane++, at++) bytes[at] = planes[plane * count + i]! ^ base[at]!;
  }
  return bytes;
}

const floats = (bytes: Uint8Array) =>
  bytes.byteOffset % 4 === 0
    ? new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4)
    : new Float32Array(bytes.slice().buffer);

const halves = (bytes: Uint8Array) => new Uint8Array(Float16Array.from(floats(bytes)).buffer);
const fromHalves = (code: Uint8Array) =>
  new Uint8Array(Float32Array.from(new Float16Array(code.slice().buffer)).buffer);

/**
 * Values as half precision holds them.
 *
 * @throws {RangeError} naming the first that it cannot hold
 */
export function roundToHalf(values: Float32Array): Float32Array<ArrayBuffer> {
  const rounded = Float32Array.from(Float16Array.from(values));
  const lost = rounded.findIndex((value, i) => !Number.isFinite(value) && Number.isFinite(values[i]!));
  if (lost === -1) return rounded;
  throw new RangeError(
    `weight ${lost} is ${values[lost]}, and half precision ends at 65504; use sampler.precision full`,
  );
}

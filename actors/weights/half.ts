/**
 * Weights in half precision (IEEE 754 binary16). A publisher with `half` rounds every value before it hashes and writes the weights. So
 * another host gets half as many bytes, and decodes them to exactly the published bytes.
 */

/** Rounds the values to half precision. @throws {RangeError} that names the first value that is too large */
export function roundToHalf(values: Float32Array): Float32Array<ArrayBuffer> {
  // For 870,000 weights, constructors and a loop take 3 ms. `from` and `findIndex` would take three times as long.
  const rounded = new Float32Array(new Float16Array(values));
  for (let i = 0; i < rounded.length; i++) {
    if (Number.isFinite(rounded[i]) || !Number.isFinite(values[i])) continue;
    throw new RangeError(`weight ${i} is ${values[i]}, and half precision ends at 65504; use sampler.precision full`);
  }
  return rounded;
}

/** Converts the float32 bytes of rounded values to float16 bytes. */
export async function* encodeHalf(stream: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  for await (const bytes of wholeValues(stream, 4)) {
    yield new Uint8Array(new Float16Array(new Float32Array(bytes)).buffer);
  }
}

/** Converts float16 bytes to float32 bytes. Drops the last value if only one of its bytes arrived. */
export async function* decodeHalf(stream: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  for await (const bytes of wholeValues(stream, 2)) {
    yield new Uint8Array(new Float32Array(new Float16Array(bytes)).buffer);
  }
}

/** Yields the stream's bytes in buffers of whole values. A chunk of the stream may end inside a value. */
async function* wholeValues(stream: AsyncIterable<Uint8Array>, valueBytes: number): AsyncGenerator<ArrayBuffer> {
  let rest = new Uint8Array(0);
  for await (const chunk of stream) {
    const bytes = new Uint8Array(rest.length + chunk.length);
    bytes.set(rest);
    bytes.set(chunk, rest.length);
    const end = bytes.length - (bytes.length % valueBytes);
    if (end > 0) yield bytes.buffer.slice(0, end);
    rest = bytes.slice(end);
  }
}

/**
 * Writes and reads protobuf's wire format, for a few message types of ONNX, TensorBoard and TensorFlow. The code that uses a message
 * has the field numbers and their source.
 */
const utf8 = new TextEncoder();

/** One protobuf message under construction. */
export class ProtobufMessage {
  readonly #chunks: NodeJS.TypedArray[] = [];

  #varint(value: number | bigint): void {
    let rest = BigInt.asUintN(64, BigInt(value));
    const bytes: number[] = [];
    while (rest > 127n) {
      bytes.push(Number(rest & 127n) | 128);
      rest >>= 7n;
    }
    bytes.push(Number(rest));
    this.#chunks.push(Uint8Array.from(bytes));
  }

  int(field: number, value: number | bigint): this {
    this.#varint(field << 3);
    this.#varint(value);
    return this;
  }

  float(field: number, value: number): this {
    this.#varint((field << 3) | 5);
    this.#chunks.push(Float32Array.of(value));
    return this;
  }

  double(field: number, value: number): this {
    this.#varint((field << 3) | 1);
    this.#chunks.push(Float64Array.of(value));
    return this;
  }

  bytes(field: number, bytes: Uint8Array): this {
    this.#varint((field << 3) | 2);
    this.#varint(bytes.length);
    this.#chunks.push(bytes);
    return this;
  }

  text(field: number, text: string): this {
    return this.bytes(field, utf8.encode(text));
  }

  message(field: number, message: ProtobufMessage): this {
    return this.bytes(field, message.finish());
  }

  finish(): Uint8Array {
    return Bun.concatArrayBuffers(this.#chunks, Number.POSITIVE_INFINITY, true);
  }
}

/** A field as it stands on the wire: a varint as a number (of 64 bits with a sign), any other field as its bytes. */
export type Field = readonly [field: number, value: number | Uint8Array];

/** The fields of a message, in their order. @throws {RangeError} if the bytes are no message */
export function* fieldsOf(bytes: Uint8Array): Generator<Field> {
  let at = 0;
  const varint = () => {
    const start = at;
    let value = 0;
    for (let shift = 1; ; shift *= 128) {
      const byte = bytes[at++];
      if (byte === undefined || shift > 2 ** 63) throw new RangeError("a number of a protobuf message has no end");
      value += (byte & 127) * shift;
      // A negative number has ten bytes, as if it were 2^64 larger. The sum of so many bytes is not exact.
      if (byte < 128) return shift < 2 ** 63 ? value : signed(bytes.subarray(start, at));
    }
  };
  while (at < bytes.length) {
    const key = varint();
    const kind = key % 8;
    if (kind === 0) {
      yield [Math.floor(key / 8), varint()];
      continue;
    }
    const length = kind === 1 ? 8 : kind === 5 ? 4 : kind === 2 ? varint() : Number.NaN;
    const value = bytes.subarray(at, at + length);
    if (value.length !== length)
      throw new RangeError(`a field of a protobuf message is cut, or has the unknown wire type ${kind}`);
    at += length;
    yield [Math.floor(key / 8), value];
  }
}

/** The 64-bit number of a varint. */
function signed(varint: Uint8Array): number {
  const bits = varint.reduceRight((high, byte) => (high << 7n) | BigInt(byte & 127), 0n);
  return Number(BigInt.asIntN(64, bits));
}

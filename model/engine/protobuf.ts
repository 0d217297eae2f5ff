/**
 * Writes protobuf's wire format, for a few message types of ONNX and TensorBoard. The code that builds a message has the field
 * numbers and their source.
 */
const utf8 = new TextEncoder();

/** One protobuf message under construction. */
export class ProtobufMessage {
  readonly #chunks: Uint8Array[] = [];
  #length = 0;

  #push(bytes: Uint8Array): void {
    this.#chunks.push(bytes);
    this.#length += bytes.length;
  }

  #varint(value: number | bigint): void {
    let rest = BigInt.asUintN(64, BigInt(value));
    const bytes: number[] = [];
    while (rest > 127n) {
      bytes.push(Number(rest & 127n) | 128);
      rest >>= 7n;
    }
    bytes.push(Number(rest));
    this.#push(Uint8Array.from(bytes));
  }

  int(field: number, value: number | bigint): this {
    this.#varint(field << 3);
    this.#varint(value);
    return this;
  }

  float(field: number, value: number): this {
    this.#varint((field << 3) | 5);
    this.#push(new Uint8Array(Float32Array.of(value).buffer));
    return this;
  }

  double(field: number, value: number): this {
    this.#varint((field << 3) | 1);
    this.#push(new Uint8Array(Float64Array.of(value).buffer));
    return this;
  }

  bytes(field: number, bytes: Uint8Array): this {
    this.#varint((field << 3) | 2);
    this.#varint(bytes.length);
    this.#push(bytes);
    return this;
  }

  text(field: number, text: string): this {
    return this.bytes(field, utf8.encode(text));
  }

  message(field: number, message: ProtobufMessage): this {
    return this.bytes(field, message.finish());
  }

  finish(): Uint8Array {
    const whole = new Uint8Array(this.#length);
    let at = 0;
    for (const chunk of this.#chunks) {
      whole.set(chunk, at);
      at += chunk.length;
    }
    return whole;
  }
}

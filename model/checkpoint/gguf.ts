/**
 * Writes the GGUF format, version 3, which llama.cpp reads. This file knows no models; gguf-model.ts chooses the contents.
 * Source: github.com/ggml-org/ggml, docs/gguf.md.
 */
import { sizeOf } from "../engine/graph.ts";
import type { NamedTensor } from "./safetensors.ts";

/** A value with its GGUF type. */
export type GgufValue =
  | { readonly u32: number }
  | { readonly f32: number }
  | { readonly bool: boolean }
  | { readonly text: string }
  | { readonly texts: readonly string[] }
  | { readonly i32s: readonly number[] };

const VERSION = 3;
const ALIGN_BYTES = 32;
/** Values of ggml's enum gguf_metadata_value_type. */
const TYPES = { u32: 4, i32: 5, f32: 6, bool: 7, text: 8, array: 9 } as const;
/** A value of ggml's enum ggml_type. */
const F32 = 0;

/** Bytes to write; numbers are little-endian. */
class Writer {
  readonly #parts: NodeJS.TypedArray[] = [];

  #put(part: NodeJS.TypedArray): this {
    this.#parts.push(part);
    return this;
  }

  u32(value: number): this {
    return this.#put(Uint32Array.of(value));
  }

  u64(value: number): this {
    return this.#put(BigUint64Array.of(BigInt(value)));
  }

  text(value: string): this {
    const bytes = new TextEncoder().encode(value);
    return this.u64(bytes.length).#put(bytes);
  }

  value(value: GgufValue): this {
    if ("u32" in value) return this.u32(TYPES.u32).u32(value.u32);
    if ("f32" in value) return this.u32(TYPES.f32).#put(Float32Array.of(value.f32));
    if ("bool" in value) return this.u32(TYPES.bool).#put(Uint8Array.of(Number(value.bool)));
    if ("text" in value) return this.u32(TYPES.text).text(value.text);
    if ("texts" in value) {
      this.u32(TYPES.array).u32(TYPES.text).u64(value.texts.length);
      for (const item of value.texts) this.text(item);
      return this;
    }
    return this.u32(TYPES.array).u32(TYPES.i32).u64(value.i32s.length).#put(Int32Array.from(value.i32s));
  }

  /** The bytes, padded with zeros to a multiple of the alignment. */
  aligned(): Uint8Array {
    const length = this.#parts.reduce((sum, { byteLength }) => sum + byteLength, 0);
    const padding = new Uint8Array(-length & (ALIGN_BYTES - 1));
    return Bun.concatArrayBuffers([...this.#parts, padding], Number.POSITIVE_INFINITY, true);
  }
}

/**
 * A whole file, in parts to be written one after the other.
 *
 * @param tensors  (out, in), all F32; GGUF lists the innermost dimension first.
 */
export function ggufParts(
  metadata: ReadonlyMap<string, GgufValue>,
  tensors: ReadonlyMap<string, NamedTensor>,
): Uint8Array[] {
  const header = new Writer().u32(0x46554747).u32(VERSION).u64(tensors.size).u64(metadata.size);
  for (const [key, value] of metadata) header.text(key).value(value);
  const parts: Uint8Array[] = [];
  let offset = 0;
  for (const [name, { shape, values }] of tensors) {
    if (sizeOf(shape) !== values.length)
      throw new RangeError(`${name} [${shape}] does not have ${values.length} values`);
    header.text(name).u32(shape.length);
    for (const size of shape.toReversed()) header.u64(size);
    header.u32(F32).u64(offset);
    const padding = -values.byteLength & (ALIGN_BYTES - 1);
    parts.push(new Uint8Array(values.buffer, values.byteOffset, values.byteLength), new Uint8Array(padding));
    offset += values.byteLength + padding;
  }
  return [header.aligned(), ...parts];
}

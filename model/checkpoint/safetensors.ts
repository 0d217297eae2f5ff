/**
 * The safetensors format of Hugging Face: named arrays of numbers in one file.
 *
 * This file handles bytes; it knows no disk, no network and no model. It reads F32, F16 and BF16 as Float32Array, and writes F32.
 *
 * - It checks lengths, offsets and names before it copies a value.
 * - Equal tensors and metadata, given in any order, give equal bytes.
 * - The arrays that `readSafetensors` returns have memory of their own.
 *
 * Source: https://huggingface.co/docs/safetensors (format). For little-endian machines, the only ones that Bun supports.
 */
import { sizeOf } from "../engine/graph.ts";
import { headerLength, PREFIX_BYTES, readContents, SafetensorsError, widen } from "./safetensors-contents.ts";

const ALIGN_BYTES = 8;

export interface NamedTensor {
  /** [] for a single number. */
  readonly shape: readonly number[];
  readonly values: Float32Array;
}

export interface Safetensors {
  /** For error texts. */
  readonly file: string;
  /** Free text by key. */
  readonly metadata: Readonly<Record<string, string>>;
  /** In the order of their bytes. */
  readonly tensors: ReadonlyMap<string, NamedTensor>;
}

/**
 * @param file  name of the file in error texts.
 * @throws {SafetensorsError} if the file is not complete and valid, or has a tensor that is not F32, F16 or BF16.
 */
export function readSafetensors(bytes: Uint8Array, file: string): Safetensors {
  const dataStart = PREFIX_BYTES + headerLength(bytes, bytes.length, file);
  const { metadata, places } = readContents(bytes.subarray(PREFIX_BYTES, dataStart), bytes.length - dataStart, file);
  const tensors = new Map<string, NamedTensor>();
  for (const { name, dtype, shape, begin, end } of places) {
    const values = new Float32Array(sizeOf(shape));
    new Uint8Array(values.buffer).set(
      bytes.subarray(dataStart + begin, dataStart + end),
      values.byteLength - (end - begin),
    );
    widen(dtype, values);
    tensors.set(name, { shape, values });
  }
  return { file, metadata, tensors };
}

/** `safetensorsParts` in one piece. */
export function writeSafetensors(
  tensors: Iterable<readonly [string, NamedTensor]>,
  metadata: Readonly<Record<string, string>> = {},
): Uint8Array {
  return Bun.concatArrayBuffers(safetensorsParts(tensors, metadata), Number.POSITIVE_INFINITY, true);
}

/**
 * A whole file, in parts to be written one after the other: gigabytes need no second copy.
 *
 * @param tensors   in any order; the file has them in the order of their names.
 * @param metadata  free text by key.
 * @returns the header, then views of the values; the data begins at a multiple of 8 bytes.
 * @throws {SafetensorsError} if a name occurs twice or is reserved, or a shape does not fit its values.
 */
export function safetensorsParts(
  tensors: Iterable<readonly [string, NamedTensor]>,
  metadata: Readonly<Record<string, string>> = {},
): Uint8Array[] {
  const sorted = [...tensors].sort(([a], [b]) => (a < b ? -1 : Number(a > b)));
  const fields: string[] = [];
  const notes = Object.entries(metadata).sort(([a], [b]) => (a < b ? -1 : 1));
  if (notes.length > 0) fields.push(`"__metadata__":${JSON.stringify(Object.fromEntries(notes))}`);
  let end = 0;
  for (const [i, [name, { shape, values }]] of sorted.entries()) {
    checkWritable(name, shape, values.length, sorted[i - 1]?.[0]);
    const begin = end;
    end += values.byteLength;
    fields.push(`${JSON.stringify(name)}:${JSON.stringify({ dtype: "F32", shape, data_offsets: [begin, end] })}`);
  }
  const text = new TextEncoder().encode(`{${fields.join(",")}}`);
  const header = new Uint8Array(PREFIX_BYTES + Math.ceil(text.length / ALIGN_BYTES) * ALIGN_BYTES);
  new DataView(header.buffer).setBigUint64(0, BigInt(header.length - PREFIX_BYTES), true);
  header.fill(0x20, PREFIX_BYTES).set(text, PREFIX_BYTES);
  const bytes = sorted.map(([, { values }]) => new Uint8Array(values.buffer, values.byteOffset, values.byteLength));
  return [header, ...bytes];
}

function checkWritable(name: string, shape: readonly number[], length: number, previous: string | undefined): void {
  const tensor = `cannot write tensor ${JSON.stringify(name)}`;
  if (name === "__metadata__") throw new SafetensorsError(`${tensor}: the format reserves this name`);
  if (name === previous) throw new SafetensorsError(`${tensor}: the name occurs twice; names must be unique`);
  if (sizeOf(shape) !== length) {
    throw new SafetensorsError(`${tensor}: shape [${shape}] takes ${sizeOf(shape)} values, found ${length}`);
  }
}

/**
 * Checks that a file has exactly these tensors.
 *
 * @param shapes  by name.
 * @throws {SafetensorsError} with the first tensor that is missing, extra or of another shape.
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
      `${file} has a tensor ${JSON.stringify(unknown)} that this model lacks; is it a file of another model?`,
    );
  }
}

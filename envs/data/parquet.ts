/**
 * Reads rows of a parquet file synchronously, with hyparquet's decoders. Decodes only the requested columns, one row group
 * at a time. Knows no data set.
 */
import { closeSync, fstatSync, openSync, readSync } from "node:fs";
import { brotliDecompressSync, gunzipSync, zstdDecompressSync } from "node:zlib";
import { parquetMetadata, parquetSchema } from "hyparquet";
import { assembleNested } from "hyparquet/src/assemble.js";
import { readColumn } from "hyparquet/src/column.js";
import { DEFAULT_PARSERS } from "hyparquet/src/convert.js";
import { getTreePath } from "hyparquet/src/schema.js";
import type { Compressors, DecodedArray, RowGroup, SchemaTree } from "hyparquet/src/types.js";
import { flatten } from "hyparquet/src/utils.js";

/** The page codecs of published data sets; hyparquet brings snappy. */
const compressors: Compressors = {
  GZIP: (page, length) => gunzipSync(page, { maxOutputLength: length }),
  BROTLI: (page, length) => brotliDecompressSync(page, { maxOutputLength: length }),
  ZSTD: (page, length) => zstdDecompressSync(page, { maxOutputLength: length }),
};

/** Length of the metadata and magic number at the end of the file. */
const FOOTER_BYTES = 8;

export interface Column {
  readonly name: string;
  /** Missing from the rows if the file has no such column. */
  readonly optional: boolean;
}

/** @throws {Error} if the file is not parquet, lacks a column or uses an unknown codec. */
export function* parquetRows(path: string, wanted: readonly Column[]): Generator<Record<string, unknown>> {
  const file = openSync(path, "r");
  try {
    const size = fstatSync(file).size;
    const metadata = parquetMetadata(readFooter(file, size));
    const schema = parquetSchema(metadata);
    const names = schema.children.map(({ element }) => element.name);
    const absent = wanted.filter(({ name, optional }) => !optional && !names.includes(name)).map(({ name }) => name);
    if (absent.length > 0) throw new Error(`has no column ${absent.join(", ")}; it has ${names.join(", ")}`);
    const columns = wanted.map(({ name }) => name).filter((name) => names.includes(name));
    for (const group of metadata.row_groups) {
      const decoded = columns.map((name) => readGroup(file, group, schema, name));
      for (let row = 0; row < Number(group.num_rows); row++) {
        yield Object.fromEntries(columns.map((name, i) => [name, decoded[i]![row]]));
      }
    }
  } finally {
    closeSync(file);
  }
}

function readFooter(file: number, size: number): ArrayBuffer {
  if (size < FOOTER_BYTES) throw new Error(`is not a parquet file: ${size} bytes`);
  const length = new DataView(read(file, size - FOOTER_BYTES, FOOTER_BYTES)).getUint32(0, true);
  const whole = Math.min(size, length + FOOTER_BYTES);
  return read(file, size - whole, whole);
}

/** One top-level column of a row group: (rows) values, lists as arrays. */
function readGroup(file: number, group: RowGroup, schema: SchemaTree, name: string): DecodedArray {
  const rows = Number(group.num_rows);
  const parts = new Map<string, DecodedArray>();
  for (const { meta_data: meta } of group.columns) {
    if (meta?.path_in_schema[0] !== name) continue;
    const schemaPath = getTreePath(schema, meta.path_in_schema);
    const start = Number(meta.dictionary_page_offset ?? meta.data_page_offset);
    const view = new DataView(read(file, start, Number(meta.total_compressed_size)));
    const { data } = readColumn(
      { view, offset: 0 },
      { groupStart: 0, selectStart: 0, selectEnd: rows, groupRows: rows },
      {
        pathInSchema: meta.path_in_schema,
        type: meta.type,
        codec: meta.codec,
        schemaPath,
        compressors,
        element: schemaPath.at(-1)!.element,
        parsers: DEFAULT_PARSERS,
      },
    );
    parts.set(meta.path_in_schema.join("."), flatten(data));
  }
  const tree = schema.children.find(({ element }) => element.name === name)!;
  if (tree.children.length > 0) assembleNested(parts, tree, DEFAULT_PARSERS);
  return parts.get(name)!;
}

function read(file: number, start: number, length: number): ArrayBuffer {
  const bytes = new Uint8Array(length);
  let filled = 0;
  while (filled < length) {
    const count = readSync(file, bytes, filled, length - filled, start + filled);
    if (count === 0) throw new Error(`ends at byte ${start + filled}, in the middle of its data`);
    filled += count;
  }
  return bytes.buffer;
}

/**
 * Reads rows of a parquet file synchronously. Decodes only the requested columns, one row group at a time. Knows no data
 * set.
 *
 * - The counts of the footer (rows of the groups, values and bytes of the columns) must agree with each other and with the file's size.
 * - An error says what is wrong with the file; the caller puts the file's name before the error's text ("FILE: is damaged").
 */
import { closeSync, fstatSync, openSync, readSync } from "node:fs";
import { brotliDecompressSync, gunzipSync, zstdDecompressSync } from "node:zlib";
import { parquetMetadata, parquetSchema } from "hyparquet";
import { assembleNested } from "hyparquet/src/assemble.js";
import { parquetHeader, readColumn } from "hyparquet/src/column.js";
import { DEFAULT_PARSERS } from "hyparquet/src/convert.js";
import { getTreePath, isFlatColumn } from "hyparquet/src/schema.js";
import type {
  ColumnMetaData,
  Compressors,
  DecodedArray,
  FileMetaData,
  RowGroup,
  SchemaTree,
} from "hyparquet/src/types.js";
import { flatten } from "hyparquet/src/utils.js";

/** Number of bytes at the end of the file: four for the length of the metadata, and four for the magic number. */
const FOOTER_BYTES = 8;

/** Maximum number of values in a page. hyparquet allocates an array of this length, so a damaged count could fill the memory. */
const PAGE_VALUES_MAX = 2 ** 24;

/** A page whose values are all null has length 0, which node:zlib refuses as `maxOutputLength`. */
const unlessEmpty =
  (decompress: (page: Uint8Array, options: { maxOutputLength: number }) => Uint8Array) =>
  (page: Uint8Array, length: number): Uint8Array =>
    length === 0 ? new Uint8Array() : decompress(page, { maxOutputLength: length });

/** The page codecs of published data sets, except snappy: hyparquet itself decodes snappy. */
const compressors: Compressors = {
  GZIP: unlessEmpty(gunzipSync),
  BROTLI: unlessEmpty(brotliDecompressSync),
  ZSTD: unlessEmpty(zstdDecompressSync),
};

export interface Column {
  readonly name: string;
  /** True if the file may lack the column; the rows of such a file lack the column too. */
  readonly optional: boolean;
}

/** @throws {Error} if the file is not parquet, is damaged, lacks a column or uses an unknown codec. */
export function* parquetRows(path: string, wanted: readonly Column[]): Generator<Record<string, unknown>> {
  const file = openSync(path, "r");
  try {
    const size = fstatSync(file).size;
    // hyparquet can loop forever in its search for geometry columns. No data set of Bunraku has geometry columns.
    const metadata = parquetMetadata(readFooter(file, size), { geoparquet: false });
    const schema = parquetSchema(metadata);
    checkFooter(metadata, schema, size);
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
  const end = read(file, size - FOOTER_BYTES, FOOTER_BYTES);
  const whole = new DataView(end).getUint32(0, true) + FOOTER_BYTES;
  if (new TextDecoder("latin1").decode(end.slice(4)) !== "PAR1" || whole > size)
    throw new Error("is not a parquet file, or was cut: its last bytes are not the end of a parquet file");
  return read(file, size - whole, whole);
}

function checkFooter({ num_rows: total, row_groups: groups }: FileMetaData, schema: SchemaTree, size: number): void {
  let sum = 0;
  for (const { num_rows: count, columns } of groups) {
    const rows = Number(count);
    checkRange("rows of a group", rows, 0, Number(total) - sum);
    sum += rows;
    for (const { meta_data: meta } of columns) {
      if (meta === undefined) throw new Error("is damaged: a column has no metadata");
      const path = getTreePath(schema, meta.path_in_schema);
      checkRange("values of a column", Number(meta.num_values), rows, isFlatColumn(path) ? rows : Infinity);
      const start = startOf(meta);
      checkRange("start of a column", start, 0, size);
      checkRange("bytes of a column", Number(meta.total_compressed_size), 0, size - start);
    }
  }
  checkRange("rows of the file", Number(total), sum, sum);
}

/** Offset of a column's first page. Old writers give the dictionary's offset as 0 if a column has no dictionary. */
const startOf = (meta: ColumnMetaData): number => Number(meta.dictionary_page_offset || meta.data_page_offset);

/** (rows) The values of one top-level column in a row group. A value that is a list is an array. */
function readGroup(file: number, group: RowGroup, schema: SchemaTree, name: string): DecodedArray {
  const rows = Number(group.num_rows);
  const parts = new Map<string, DecodedArray>();
  for (const { meta_data: meta } of group.columns) {
    if (meta?.path_in_schema[0] !== name) continue;
    const schemaPath = getTreePath(schema, meta.path_in_schema);
    const view = new DataView(read(file, startOf(meta), Number(meta.total_compressed_size)));
    checkPages(view, Number(meta.num_values));
    const { path_in_schema: pathInSchema, type, codec } = meta;
    const element = schemaPath.at(-1)!.element;
    const decoder = { pathInSchema, type, codec, schemaPath, element, parsers: DEFAULT_PARSERS, compressors };
    const select = { groupStart: 0, groupRows: rows, selectStart: 0, selectEnd: rows };
    parts.set(pathInSchema.join("."), flatten(readColumn({ view, offset: 0 }, select, decoder).data));
  }
  const tree = schema.children.find(({ element }) => element.name === name)!;
  if (tree.children.length > 0) assembleNested(parts, tree, DEFAULT_PARSERS);
  const values = parts.get(name);
  checkRange(`rows of ${name}`, values?.length, rows, rows);
  return values!;
}

/** Checks the counts in the page headers of a column, because hyparquet would loop for hours if a count of values were damaged. */
function checkPages(view: DataView<ArrayBuffer>, valueCount: number): void {
  const reader = { view, offset: 0 };
  for (let seen = 0; seen < valueCount; ) {
    const header = parquetHeader(reader);
    checkRange("bytes of a page", header.compressed_page_size, 0, view.byteLength - reader.offset);
    reader.offset += header.compressed_page_size;
    if (header.dictionary_page_header !== undefined) {
      checkRange("values of a dictionary", header.dictionary_page_header.num_values, 0, PAGE_VALUES_MAX);
      continue;
    }
    const v2 = header.data_page_header_v2;
    const { num_values: values = -1 } = header.data_page_header ?? v2 ?? {};
    checkRange("values of a page", values, 0, Math.min(PAGE_VALUES_MAX, valueCount - seen));
    seen += values;
    if (v2 === undefined) continue;
    checkRange("nulls of a page", v2.num_nulls, 0, values);
    const { repetition_levels_byte_length: repetition, definition_levels_byte_length: definition } = v2;
    checkRange("bytes of repetition levels", repetition, 0, header.compressed_page_size);
    checkRange("bytes of definition levels", definition, 0, header.compressed_page_size - repetition);
  }
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

/** @throws {Error} if the file declares a count that cannot be true */
function checkRange(what: string, value: number | undefined, min: number, max: number): void {
  if (value !== undefined && value >= min && value <= max) return;
  throw new Error(`is damaged: ${what}: ${value}, allowed ${min === max ? min : `${min} to ${max}`}`);
}

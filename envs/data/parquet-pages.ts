/**
 * Decodes the pages of one parquet column with hyparquet's decoders. Knows no file and no data set.
 *
 * hyparquet trusts the counts that a file declares: a damaged count makes it loop for hours or fill the memory. This module
 * checks each count before it decodes, so that the work is bounded by the bytes of the column and its declared values.
 *
 * - Pages follow each other within the column, and their values add up to `num_values`.
 * - Runs of levels and indices add up to the values of their page.
 * - A page that has a checksum matches it.
 * - Error texts begin with a verb: the caller puts the file's name before them.
 *
 * Source: apache/parquet-format README.md, Encodings.md; google/snappy format_description.txt.
 */
import { brotliDecompressSync, crc32, gunzipSync, zstdDecompressSync } from "node:zlib";
import { assembleLists } from "hyparquet/src/assemble.js";
import { parquetHeader } from "hyparquet/src/column.js";
import { convert, convertWithDictionary, DEFAULT_PARSERS } from "hyparquet/src/convert.js";
import { decompressPage, readDataPage, readDataPageV2 } from "hyparquet/src/datapage.js";
import { deltaBinaryUnpack } from "hyparquet/src/delta.js";
import { readRleBitPackedHybrid } from "hyparquet/src/encoding.js";
import { readPlain } from "hyparquet/src/plain.js";
import { getMaxDefinitionLevel, getMaxRepetitionLevel } from "hyparquet/src/schema.js";
import { snappyUncompress } from "hyparquet/src/snappy.js";
import type {
  ColumnDecoder,
  ColumnMetaData,
  Compressors,
  DecodedArray,
  Encoding,
  PageHeader,
  SchemaTree,
} from "hyparquet/src/types.js";
import { flatten } from "hyparquet/src/utils.js";

/** The largest number of values of a page: hyparquet allocates an array of them. */
const PAGE_VALUES_MAX = 2 ** 24;

const INT32_MAX = 2 ** 31 - 1;

/** Writers pad the last bit-packed run with at most this many values. */
const PADDING_MAX = 504;

/** The page codecs of published data sets. */
const compressors: Compressors = {
  GZIP: (page, length) => gunzipSync(page, { maxOutputLength: length }),
  BROTLI: (page, length) => brotliDecompressSync(page, { maxOutputLength: length }),
  ZSTD: (page, length) => zstdDecompressSync(page, { maxOutputLength: length }),
  SNAPPY: (page, length) => {
    checkSnappy(page, length);
    const output = new Uint8Array(length);
    snappyUncompress(page, output);
    return output;
  },
};

/**
 * @param chunk  the bytes of the column
 * @param schemaPath  from the root to the column
 * @returns the values of the column; lists are arrays
 * @throws {Error} if the bytes are damaged
 */
export function decodeColumn(
  chunk: Uint8Array<ArrayBuffer>,
  meta: ColumnMetaData,
  schemaPath: SchemaTree[],
): DecodedArray {
  const decoder: ColumnDecoder = {
    pathInSchema: meta.path_in_schema,
    type: meta.type,
    codec: meta.codec,
    schemaPath,
    compressors,
    element: schemaPath.at(-1)!.element,
    parsers: DEFAULT_PARSERS,
  };
  const reader = { view: viewOf(chunk), offset: 0 };
  const valueCount = Number(meta.num_values);
  const parts: DecodedArray[] = [];
  let dictionary: DecodedArray | undefined;
  let last: DecodedArray | undefined;
  for (let seen = 0; seen < valueCount; ) {
    const header = parquetHeader(reader);
    const { compressed_page_size: size, type } = header;
    checkRange("bytes of a page", size, 0, chunk.length - reader.offset);
    const bytes = chunk.subarray(reader.offset, reader.offset + size);
    reader.offset += size;
    if (header.crc !== undefined && crc32(bytes) !== header.crc >>> 0)
      throw new Error("is damaged: a page differs from its checksum");
    if (type === "DICTIONARY_PAGE") {
      dictionary = readDictionary(bytes, header, decoder);
      continue;
    }
    const values = (header.data_page_header ?? header.data_page_header_v2)?.num_values;
    checkRange("values of a page", values, 0, Math.min(PAGE_VALUES_MAX, valueCount - seen));
    seen += values;
    const decoded = readPage(bytes, header, decoder, dictionary, last);
    // A list may continue on the next page, which then extends the same array.
    if (decoded !== last && decoded.length > 0) parts.push(decoded);
    last = decoded;
  }
  return flatten(parts);
}

function readDictionary(bytes: Uint8Array, header: PageHeader, decoder: ColumnDecoder): DecodedArray {
  const count = header.dictionary_page_header?.num_values;
  checkRange("values of a dictionary", count, 0, PAGE_VALUES_MAX);
  const page = decompressPage(bytes, sizeOf(header), decoder.codec, compressors);
  return convert(
    readPlain({ view: viewOf(page), offset: 0 }, decoder.type, count, decoder.element.type_length),
    decoder,
  );
}

function readPage(
  bytes: Uint8Array,
  header: PageHeader,
  decoder: ColumnDecoder,
  dictionary: DecodedArray | undefined,
  previous: DecodedArray | undefined,
): DecodedArray {
  const { page, encoding } = decoded(bytes, header, decoder);
  const { definitionLevels, repetitionLevels, dataPage } = page;
  if (encoding.endsWith("_DICTIONARY") && dictionary === undefined)
    throw new Error("is damaged: a column lacks its dictionary");
  const values = convertWithDictionary(dataPage, dictionary, encoding, decoder);
  const output = Array.isArray(previous) ? previous : [];
  return assembleLists(output, definitionLevels, repetitionLevels, values, decoder.schemaPath);
}

function decoded(bytes: Uint8Array, header: PageHeader, decoder: ColumnDecoder) {
  if (header.type === "DATA_PAGE" && header.data_page_header !== undefined) {
    const page = decompressPage(bytes, sizeOf(header), decoder.codec, compressors);
    const { num_values: count, encoding } = header.data_page_header;
    let start = 0;
    let nonNull = count;
    for (const level of levelsOf(decoder)) {
      const size = page.length < start + 4 ? -1 : viewOf(page).getUint32(start, true);
      checkRange("bytes of levels", size, 0, page.length - start - 4);
      const full = fullLevels(page.subarray(start + 4, start + 4 + size), count, level.max);
      if (level.kind === "definition") nonNull = full;
      start += 4 + size;
    }
    checkValues(page.subarray(start), encoding, nonNull, decoder);
    return { page: readDataPage(page, header.data_page_header, decoder), encoding };
  }
  if (header.type === "DATA_PAGE_V2" && header.data_page_header_v2 !== undefined) {
    const v2 = header.data_page_header_v2;
    const sizes = { repetition: v2.repetition_levels_byte_length, definition: v2.definition_levels_byte_length };
    checkRange("bytes of repetition levels", sizes.repetition, 0, bytes.length);
    checkRange("bytes of definition levels", sizes.definition, 0, bytes.length - sizes.repetition);
    checkRange("nulls of a page", v2.num_nulls, 0, v2.num_values);
    const nonNull = v2.num_values - v2.num_nulls;
    let start = 0;
    for (const level of levelsOf(decoder)) {
      const size = sizes[level.kind];
      const full = fullLevels(bytes.subarray(start, start + size), v2.num_values, level.max);
      if (level.kind === "definition") checkRange("values that are not null", nonNull, full, full);
      start += size;
    }
    start = sizes.repetition + sizes.definition;
    const rest = bytes.subarray(start);
    const codec = v2.is_compressed === false ? "UNCOMPRESSED" : decoder.codec;
    const values = rest.length === 0 ? rest : decompressPage(rest, sizeOf(header) - start, codec, compressors);
    checkValues(values, v2.encoding, nonNull, decoder);
    const page = new Uint8Array(start + values.length);
    page.set(bytes.subarray(0, start));
    page.set(values, start);
    const plain = {
      ...header,
      uncompressed_page_size: page.length,
      data_page_header_v2: { ...v2, is_compressed: false },
    };
    return { page: readDataPageV2(page, plain, decoder), encoding: v2.encoding };
  }
  throw new Error(`is damaged: a page has the unknown type ${header.type}`);
}

/** The streams of levels before the values, in the order of a page. */
function levelsOf({ schemaPath }: ColumnDecoder) {
  const all = [
    { kind: "repetition" as const, max: getMaxRepetitionLevel(schemaPath) },
    { kind: "definition" as const, max: getMaxDefinitionLevel(schemaPath) },
  ];
  return all.filter(({ max }) => max > 0);
}

/** Checks a stream of levels. @returns how many have the highest level */
function fullLevels(bytes: Uint8Array, count: number, max: number): number {
  const width = 32 - Math.clz32(max);
  checkRuns(bytes, width, count);
  const levels = new Array<number>(count);
  readRleBitPackedHybrid({ view: viewOf(bytes), offset: 0 }, width, levels, bytes.length);
  let full = 0;
  for (const level of levels) {
    checkRange("a level", level, 0, max);
    if (level === max) full++;
  }
  return full;
}

/** Checks the counts inside encoded values. */
function checkValues(bytes: Uint8Array, encoding: Encoding, count: number, { type, element }: ColumnDecoder): void {
  switch (encoding) {
    case "PLAIN":
      return;
    case "BYTE_STREAM_SPLIT":
      if (type === "FIXED_LEN_BYTE_ARRAY") checkRange("bytes of a value", element.type_length, 1, bytes.length / count);
      return;
    case "RLE":
      if (type !== "BOOLEAN") throw new Error(`is damaged: a page has the encoding RLE for values of the type ${type}`);
      // Four bytes of length come first.
      checkRuns(bytes.subarray(4), 1, count);
      return;
    case "PLAIN_DICTIONARY":
    case "RLE_DICTIONARY": {
      if (type === "BOOLEAN") throw new Error("is damaged: a page has a dictionary of Boolean values");
      const width = count === 0 ? 0 : bytes[0];
      checkRange("bits of an index", width, 0, 32);
      if (width > 0) checkRuns(bytes.subarray(1), width, count);
      return;
    }
    case "DELTA_BINARY_PACKED":
    case "DELTA_LENGTH_BYTE_ARRAY":
      checkDelta(bytes, count);
      return;
    case "DELTA_BYTE_ARRAY":
      checkDeltaStrings(bytes, count);
      return;
    default:
      throw new Error(`is damaged: a page has the unknown encoding ${encoding}`);
  }
}

/** Checks that the runs of the RLE and bit-packed hybrid hold `count` values. */
function checkRuns(bytes: Uint8Array, width: number, count: number): void {
  const valueBytes = Math.ceil(width / 8);
  let seen = 0;
  for (let offset = 0; seen < count; ) {
    const [run, next] = varInt(bytes, offset);
    const packed = run % 2 === 1;
    const values = packed ? 8 * (run >>> 1) : run >>> 1;
    checkRange("values of a run", values, packed ? 8 : 0, count - seen + (packed ? PADDING_MAX : 0));
    seen += values;
    offset = next + (packed ? width * (values / 8) : valueBytes);
  }
}

/** Checks the head of delta-encoded values, which says how they are cut into blocks. */
function checkDelta(bytes: Uint8Array, count: number): void {
  const [blockSize, afterSize] = varInt(bytes, 0);
  const [miniblocks, afterMiniblocks] = varInt(bytes, afterSize);
  const [total] = varInt(bytes, afterMiniblocks);
  checkRange("values of a delta block", blockSize, 8, PAGE_VALUES_MAX);
  checkRange("parts of a delta block", miniblocks, 1, blockSize / 8);
  if (blockSize % (8 * miniblocks) !== 0)
    throw new Error(`is damaged: a delta block of ${blockSize} has ${miniblocks} parts`);
  checkRange("delta values", total, count, count);
}

/** Checks strings that each share a prefix with the previous string: the prefixes can declare any amount of memory. */
function checkDeltaStrings(bytes: Uint8Array, count: number): void {
  if (count === 0) return;
  const reader = { view: viewOf(bytes), offset: 0 };
  const [prefixes, suffixes] = [new Int32Array(count), new Int32Array(count)];
  for (const lengths of [prefixes, suffixes]) {
    checkDelta(bytes.subarray(reader.offset), count);
    deltaBinaryUnpack(reader, count, lengths);
  }
  let before = 0;
  let sum = 0;
  for (let i = 0; i < count; i++) {
    checkRange("bytes of a prefix", prefixes[i], 0, before);
    checkRange("bytes of a suffix", suffixes[i], 0, bytes.length);
    before = prefixes[i]! + suffixes[i]!;
    sum += before;
  }
  checkRange("bytes of a page's strings", sum, 0, INT32_MAX);
}

/** Checks that a snappy stream holds `length` bytes: at a literal of a negative length, hyparquet goes backward. */
function checkSnappy(bytes: Uint8Array, length: number): void {
  let [declared, offset] = varInt(bytes, 0);
  checkRange("bytes of a snappy page", declared, length, length);
  let sum = 0;
  while (offset < bytes.length) {
    const tag = bytes[offset++]!;
    const kind = tag & 3;
    let size = (tag >>> 2) + 1;
    if (kind === 0) {
      const extra = Math.max(0, size - 60);
      if (extra > 0) {
        size = 1;
        for (let i = 0; i < extra; i++) size += (bytes[offset + i] ?? 0) * 2 ** (8 * i);
      }
      offset += extra;
      checkRange("bytes of a snappy literal", size, 1, bytes.length - offset);
      offset += size;
    } else {
      if (kind === 1) size = ((tag >>> 2) & 7) + 4;
      offset += kind === 3 ? 4 : kind;
    }
    sum += size;
  }
  checkRange("bytes of a snappy page", sum, length, length);
}

/** @returns the number and the offset after it */
function varInt(bytes: Uint8Array, start: number): [value: number, next: number] {
  let value = 0;
  for (let i = 0; i < 5; i++) {
    const byte = bytes[start + i];
    if (byte === undefined) throw new Error("is damaged: a page ends in the middle of a number");
    value += (byte & 0x7f) * 2 ** (7 * i);
    if (byte < 0x80) {
      checkRange("a number", value, 0, 2 ** 32 - 1);
      return [value, start + i + 1];
    }
  }
  throw new Error("is damaged: a page has a number of more than 5 bytes");
}

function sizeOf({ uncompressed_page_size: size }: PageHeader): number {
  checkRange("bytes of a decompressed page", size, 0, INT32_MAX);
  return size;
}

/** @throws {Error} if the file declares a count that cannot be true */
export function checkRange(what: string, value: number | undefined, min: number, max: number): asserts value is number {
  if (value !== undefined && value >= min && value <= max) return;
  throw new Error(`is damaged: ${what}: ${value}, allowed ${min === max ? min : `${min} to ${max}`}`);
}

function viewOf(bytes: Uint8Array): DataView<ArrayBuffer> {
  return new DataView(bytes.buffer as ArrayBuffer, bytes.byteOffset, bytes.byteLength);
}

/**
 * Reads the rows of a local data set from `.parquet`, `.jsonl` or `.json` (one array). Knows no env.
 *
 * - An invalid row causes an error with the file and the row's number. The reader skips no row.
 * - Only one piece of the file is in memory at a time.
 */
import { existsSync, statSync } from "node:fs";
import { extname } from "node:path";
import type { z } from "zod";
import { chunksOf, digitsOf, exactJson, jsonElements } from "./json-parts.ts";

/** A data file that is missing or invalid. */
export class DataError extends Error {
  override readonly name = "DataError";
}

/** Longest accepted line of a jsonl file. */
const LINE_BYTES_MAX = 64 * 2 ** 20;

/** Why `path` is not a file, in one line; null if `path` is a file. @param how  how to get the file */
export function missingFile(path: string | null, what: string, how: string): string | null {
  if (path === null) return `${what} needs a file: ${how}`;
  if (!existsSync(path)) return `${what}: there is no file ${path}; ${how}`;
  return statSync(path).isFile() ? null : `${what}: ${path} is not a file; ${how}`;
}

/**
 * @param schema  schema of a row; the schema's keys are the columns to read, and optional columns may be missing.
 * @throws {DataError} naming the file, the row (from 1) and what is wrong with it.
 */
export function* readRows<S extends z.ZodObject>(path: string, schema: S): Generator<z.infer<S>> {
  let number = 0;
  try {
    for (const row of rowsOf(path, schema)) {
      number++;
      const parsed = schema.safeParse(row, { reportInput: true });
      if (!parsed.success) {
        const [issue] = parsed.error.issues;
        const digits = digitsOf(issue!.input);
        const fault = digits === null ? issue!.message : `${digits} is too large for an exact number`;
        throw new DataError(`${path}, row ${number}: ${issue!.path.join(".") || "the row"}: ${fault}`);
      }
      yield parsed.data;
    }
  } catch (error) {
    if (error instanceof DataError) throw error;
    const where = number === 0 ? path : `${path}, after row ${number}`;
    // An error of the JavaScript engine may have further lines that quote code.
    const [reason] = (error instanceof Error ? error.message : String(error)).split("\n");
    throw new DataError(`${where}: ${reason}`, { cause: error });
  }
}

/** Loads the decoders only for the first parquet file, because every process imports every env, but few processes read a parquet file. */
const parquetReader = () => require("./parquet.ts") as typeof import("./parquet.ts");

function rowsOf(path: string, schema: z.ZodObject): Iterable<unknown> {
  switch (extname(path)) {
    case ".parquet": {
      const mayLack = (name: string) => (schema.shape[name] as z.ZodType).safeParse(undefined).success;
      const columns = Object.keys(schema.shape).map((name) => ({ name, optional: mayLack(name) }));
      return withoutBigints(parquetReader().parquetRows(path, columns));
    }
    case ".jsonl":
      return jsonLines(path);
    case ".json":
      return jsonElements(path);
    default:
      throw new Error("is not a .parquet, .jsonl or .json file");
  }
}

/** Converts parquet's 64-bit integers to numbers, also inside of lists and structs. */
function* withoutBigints(rows: Iterable<Record<string, unknown>>): Generator<unknown> {
  for (const row of rows) {
    for (const [name, value] of Object.entries(row)) row[name] = asNumbers(value);
    yield row;
  }
}

function asNumbers(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(asNumbers);
  if (isPlainObject(value)) return Object.fromEntries(Object.entries(value).map(([key, of]) => [key, asNumbers(of)]));
  if (typeof value !== "bigint") return value;
  if (Number.isSafeInteger(Number(value))) return Number(value);
  throw new RangeError(`${value} is too large for an exact number`);
}

const isPlainObject = (value: unknown): value is object =>
  typeof value === "object" && value !== null && Object.getPrototypeOf(value) === Object.prototype;

function* jsonLines(path: string): Generator<unknown> {
  const decoder = new TextDecoder("utf-8", { fatal: true });
  let line = "";
  for (const chunk of chunksOf(path)) {
    const [end, ...next] = decoder.decode(chunk, { stream: true }).split("\n");
    line += end;
    if (line.length > LINE_BYTES_MAX) throw new Error(`a line is longer than ${LINE_BYTES_MAX} bytes`);
    for (const begun of next) {
      yield* parsed(line);
      line = begun;
    }
  }
  yield* parsed(line + decoder.decode());
}

/** Yields the value of a line, or nothing if the line is empty. */
function* parsed(line: string): Generator<unknown> {
  if (line.trim() !== "") yield exactJson(line);
}

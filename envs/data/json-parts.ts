/**
 * Reads the top-level members of a JSON file one at a time, so that a file of gigabytes needs only the memory of its
 * largest member. `members` splits the text at commas of the outermost level; `exactJson` parses and checks each member.
 */
import { isUtf8 } from "node:buffer";
import { closeSync, openSync, readSync } from "node:fs";

const CHUNK_BYTES = 2 ** 20;

/** Longest accepted member. */
const MEMBER_BYTES_MAX = 64 * 2 ** 20;

const [OPEN_BRACKET, CLOSE_BRACKET, OPEN_BRACE, CLOSE_BRACE] = [0x5b, 0x5d, 0x7b, 0x7d];
const [QUOTE, BACKSLASH, COMMA] = [0x22, 0x5c, 0x2c];
/** UTF-8's byte order mark, which editors on Windows write before a text. */
const BYTE_ORDER_MARK = [0xef, 0xbb, 0xbf];
const isSpace = (byte: number) => byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09;

const closingOf = (opening: number) => (opening === OPEN_BRACE ? CLOSE_BRACE : CLOSE_BRACKET);

/** Elements of the array in the file. @throws {Error} if the file is not one valid JSON array, or an element is longer than 64 MiB. */
export function* jsonElements(path: string): Generator<unknown> {
  for (const text of members(path, OPEN_BRACKET, "an array")) yield exactJson(text);
}

/** Keys and values of the object in the file. @throws {Error} if the file is not one valid JSON object, or a member is longer than 64 MiB. */
export function* jsonEntries(path: string): Generator<[key: string, value: unknown]> {
  for (const text of members(path, OPEN_BRACE, "an object")) {
    const pairs = Object.entries(exactJson(`{${text}}`) as Record<string, unknown>);
    if (pairs.length !== 1) throw new Error("has a comma without a member");
    yield pairs[0]!;
  }
}

/** The bytes of a file in order. Each chunk is valid until the next one. */
export function* chunksOf(path: string): Generator<Uint8Array> {
  const file = openSync(path, "r");
  try {
    const chunk = new Uint8Array(CHUNK_BYTES);
    for (let count = readSync(file, chunk); count > 0; count = readSync(file, chunk)) yield chunk.subarray(0, count);
  } finally {
    closeSync(file);
  }
}

/** The texts between commas of the outermost level. */
function* members(path: string, opening: number, what: string): Generator<string> {
  const member = new Member();
  let depth = 0;
  let inString = false;
  let escaped = false;
  let ended = false;
  let isFirst = true;
  for (const chunk of chunksOf(path)) {
    let start = 0;
    for (let i = 0; i < chunk.length; i++) {
      const byte = chunk[i]!;
      if (inString) {
        if (escaped) escaped = false;
        else if (byte === BACKSLASH) escaped = true;
        else if (byte === QUOTE) inString = false;
      } else if (depth === 0) {
        if (isSpace(byte) || (isFirst && i < BYTE_ORDER_MARK.length && byte === BYTE_ORDER_MARK[i])) continue;
        if (ended || byte !== opening) throw new Error(ended ? "has data after its end" : `does not hold ${what}`);
        depth = 1;
        start = i + 1;
      } else if (byte === QUOTE) inString = true;
      else if (byte === OPEN_BRACE || byte === OPEN_BRACKET) depth++;
      else if (byte === CLOSE_BRACE || byte === CLOSE_BRACKET) {
        depth--;
        if (depth > 0) continue;
        if (byte !== closingOf(opening)) throw new Error(`does not hold ${what}: its brackets do not match`);
        ended = true;
        member.add(chunk.subarray(start, i));
        const last = member.take();
        if (/[^ \t\r\n]/.test(last) || member.count > 0) yield last;
      } else if (byte === COMMA && depth === 1) {
        member.add(chunk.subarray(start, i));
        start = i + 1;
        member.count++;
        yield member.take();
      }
    }
    if (depth > 0) member.add(chunk.subarray(start));
    isFirst = false;
  }
  if (!ended) throw new Error("ends in the middle of its data");
}

/** Collects the bytes of a member over several chunks. */
class Member {
  /** Number of commas of the outermost level so far. */
  count = 0;
  #parts: Uint8Array[] = [];
  #length = 0;

  add(bytes: Uint8Array): void {
    this.#length += bytes.length;
    if (this.#length > MEMBER_BYTES_MAX) throw new Error(`a member is longer than ${MEMBER_BYTES_MAX} bytes`);
    // The reader overwrites the chunk, so keep a copy.
    this.#parts.push(bytes.slice());
  }

  take(): string {
    const bytes = Buffer.concat(this.#parts);
    this.#parts = [];
    this.#length = 0;
    if (!isUtf8(bytes)) throw new Error("has bytes that are not UTF-8");
    return bytes.toString("utf8");
  }
}

// TypeScript's lib lacks these two functions. Source: tc39.es/proposal-json-parse-with-source.
const { rawJSON, isRawJSON } = JSON as typeof JSON & {
  rawJSON(text: string): object;
  isRawJSON(value: unknown): value is { readonly rawJSON: string };
};

/** Parses JSON. An integer that a number cannot hold exactly becomes raw JSON, which `JSON.stringify` writes unchanged. @throws {SyntaxError} */
export function exactJson(text: string): unknown {
  // Parsing with a reviver takes many times as long as parsing without a reviver.
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  return JSON.parse(text, (_, value: unknown, { source = "" }: { readonly source?: string } = {}) => {
    // The text of -0 is "0", but -0 is exact.
    const isRounded = typeof value === "number" && value !== 0 && /^-?\d+$/.test(source) && String(value) !== source;
    return isRounded ? rawJSON(source) : value;
  });
}

/** The digits of an integer that a number cannot hold exactly; null for any other value. */
export const digitsOf = (value: unknown): string | null => (isRawJSON(value) ? value.rawJSON : null);

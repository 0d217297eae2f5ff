/** Writes and reads JSON files and files of JSON lines. A kill or a full disk may have cut the last line of a file of JSON lines. */
import {
  closeSync,
  constants,
  existsSync,
  ftruncateSync,
  openSync,
  readFileSync,
  renameSync,
  writeFileSync,
} from "node:fs";
import type { z } from "zod";
import { schemaFaults } from "../errors.ts";

/** Writes a value as indented JSON. After a kill or a full disk, `file` has the whole old or the whole new text. @throws {Error} of the disk */
export function saveJson(file: string, value: unknown): void {
  const pending = `${file}.new`;
  writeFileSync(pending, `${JSON.stringify(value, null, 2)}\n`, { flush: true });
  renameSync(pending, file);
}

/** Appends a line to a file of JSON lines. First removes a last line that was cut. @throws {Error} of the disk */
export function appendJsonLine(file: string, value: unknown, mode = 0o666): void {
  const { O_APPEND, O_CREAT, O_NOFOLLOW, O_RDWR } = constants;
  const opened = openSync(file, O_APPEND | O_CREAT | O_NOFOLLOW | O_RDWR, mode);
  try {
    const bytes = readFileSync(opened);
    const end = bytes.lastIndexOf("\n") + 1;
    const last = bytes.subarray(end).toString();
    if (isHalf(last)) ftruncateSync(opened, end);
    else if (last !== "") writeFileSync(opened, "\n");
    writeFileSync(opened, `${JSON.stringify(value)}\n`);
  } finally {
    closeSync(opened);
  }
}

/**
 * The values in a file of JSON lines, without a last line that was cut; empty if there is no file.
 *
 * @throws {Error} in one line that names the file and the number of a line that does not fit `schema`
 */
export function readJsonLines<T>(file: string, schema: z.ZodType<T>): T[] {
  if (!existsSync(file)) return [];
  const lines = readFileSync(file, "utf8").split("\n");
  if (isHalf(lines.at(-1)!)) lines.pop();
  return lines.flatMap((line, i) => {
    if (line === "") return [];
    const parsed = schema.safeParse(parsedJson(line));
    if (parsed.success) return [parsed.data];
    throw new Error(`cannot read ${file}, line ${i + 1}: ${schemaFaults(parsed.error, "line")}`);
  });
}

/** @param last  the text after the last line break */
const isHalf = (last: string): boolean => last !== "" && parsedJson(last) === undefined;

/** The value of a JSON text; undefined if the text is no JSON. */
export function parsedJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/**
 * Checks that JSON keeps a value unchanged. JSON.stringify turns NaN into null, drops undefined, and turns typed arrays into objects. The check
 * lets -0 pass, although JSON.stringify turns it into 0: in a learner's state the two mean the same.
 *
 * @throws {TypeError} naming the first value that JSON would change
 */
export function checkJson(value: unknown, at: string): void {
  if (value === null || typeof value === "boolean" || typeof value === "string") return;
  if (typeof value === "number" && Number.isFinite(value)) return;
  if (Array.isArray(value)) {
    value.forEach((item, i) => {
      checkJson(item, `${at}[${i}]`);
    });
    return;
  }
  if (typeof value === "object" && Object.getPrototypeOf(value) === Object.prototype) {
    for (const [key, item] of Object.entries(value)) checkJson(item, `${at}.${key}`);
    return;
  }
  // The class of an object: "Float32Array", "Date".
  const kind = typeof value === "object" ? Object.getPrototypeOf(value)?.constructor?.name : String(value);
  throw new TypeError(`${at} cannot be saved as JSON: it is ${kind ?? "an object without a prototype"}`);
}

/** Reads a YAML file of settings, which may be a pipe. */
import { closeSync, openSync, readSync } from "node:fs";
import { ConfigError } from "../errors.ts";
import { type Layer, parseLayer } from "./layers.ts";

/** A preset has about 2,000 bytes. */
const FILE_BYTES_MAX = 1 << 18;

/**
 * @throws {ConfigError} naming the file, if it is too large, not YAML or not a mapping
 * @throws {Error} of the system, if the file cannot be read
 */
export function readLayer(file: string): Layer {
  const text = readAtMost(file, FILE_BYTES_MAX);
  if (text === null)
    throw new ConfigError(
      `${file}: a config has at most ${FILE_BYTES_MAX / 2 ** 10} KiB, and this file has more; name another file`,
    );
  return parseLayer(text, file);
}

/** The text of a file, which may be a pipe or have no end; null if it has more bytes. @throws {Error} of the system */
export function readAtMost(file: string, bytesMax: number): string | null {
  const bytes = Buffer.alloc(bytesMax + 1);
  const opened = openSync(file, "r");
  let length = 0;
  try {
    while (length < bytes.length) {
      const read = readSync(opened, bytes, length, bytes.length - length, null);
      if (read === 0) break;
      length += read;
    }
  } finally {
    closeSync(opened);
  }
  return length > bytesMax ? null : bytes.toString("utf8", 0, length);
}

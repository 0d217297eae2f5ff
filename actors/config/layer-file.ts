/** Reads a YAML file of settings, which may be a pipe. */
import { closeSync, openSync, readSync } from "node:fs";
import { ConfigError } from "./error.ts";
import { type Layer, parseLayer } from "./layers.ts";

/** Characters of a preset: about 2,000. */
const FILE_BYTES_MAX = 1 << 18;

/**
 * @throws {ConfigError} naming the file, if it is too large, not YAML or not a mapping
 * @throws {Error} of the system, if it cannot be read
 */
export function readLayer(file: string): Layer {
  const bytes = Buffer.alloc(FILE_BYTES_MAX + 1);
  const opened = openSync(file, "r");
  let length = 0;
  try {
    for (let read = -1; read !== 0 && length < bytes.length; length += read) {
      read = readSync(opened, bytes, length, bytes.length - length, null);
    }
  } finally {
    closeSync(opened);
  }
  if (length > FILE_BYTES_MAX)
    throw new ConfigError(`${file}: is larger than ${FILE_BYTES_MAX / 2 ** 10} KiB; a config has a few`);
  return parseLayer(bytes.toString("utf8", 0, length), file);
}

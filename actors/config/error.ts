/** A config that cannot be run. The message has one line per fault, each with the file or flag that set it. */
export class ConfigError extends Error {
  override readonly name = "ConfigError";
}

/** A config that cannot be run. The message is one line per fault, each saying where it was set; the user's to mend. */
export class ConfigError extends Error {
  override readonly name = "ConfigError";
}

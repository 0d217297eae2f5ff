/** Which of an episode's failures are data, and where each happened. Anything else thrown by an actor is a bug. */

/** Where a failure happened. Recorded on the episode, so a bad rollout is data and not a crash. */
export type Boundary = "env" | "policy" | "protocol" | "capacity" | "closed";

/** A failure that belongs to one episode. Anything else thrown by an actor is a bug and restarts it. */
export class EpisodeError extends Error {
  override readonly name = "EpisodeError";
  readonly boundary: Boundary;

  constructor(message: string, boundary: Boundary, options?: ErrorOptions) {
    super(message, options);
    this.boundary = boundary;
  }
}

/**
 * Run foreign code and name the boundary it failed at. Envs throw plain errors; only this function types them.
 * An `EpisodeError` passes through unchanged: it already crossed a nearer boundary. A promise is treated alike.
 */
export function within<T>(boundary: Boundary, what: string, run: () => T): T {
  const named = (error: unknown): never => {
    if (error instanceof EpisodeError) throw error;
    throw new EpisodeError(`${what}: ${describeError(error)}`, boundary, { cause: error });
  };
  try {
    const result = run();
    return result instanceof Promise ? (result.catch(named) as T) : result;
  } catch (error) {
    return named(error);
  }
}

/** One line for people: the name and message, whatever was thrown. */
export function describeError(error: unknown): string {
  return oneLine(error instanceof Error ? `${error.name}: ${error.message}` : String(error));
}

/** One line for people: the message alone, where the name of the error's class says nothing new. */
export const messageOf = (error: unknown): string => oneLine(error instanceof Error ? error.message : String(error));

/**
 * One line for people: every fault that a zod schema found, as `path: message`.
 *
 * @param whole  what the value is called where the fault is of the value itself: "body"
 */
export const schemaFaults = ({ issues }: SchemaError, whole: string): string =>
  issues.map(({ path, message }) => `${path.join(".") || whole}: ${message}`).join("; ");

interface SchemaError {
  readonly issues: readonly { readonly path: readonly PropertyKey[]; readonly message: string }[];
}

export const oneLine = (text: string): string => text.trim().replaceAll(/\s*\n\s*/g, " ");

/** For a log: where it was thrown, one call a line, and the same of each of its causes. Its own words are left out. */
export function stackOf(error: unknown): string {
  if (!(error instanceof Error)) return "";
  const calls = (error.stack ?? "").split("\n").filter((line) => /^\s+at /.test(line));
  const { cause } = error;
  const before = cause instanceof Error ? [`caused by ${describeError(cause)}`, stackOf(cause)] : [];
  return [...calls.map((line) => line.trim()), ...before].join("\n");
}

/** Exit code of an actor that ended by a `RunError`. */
export const RUN_ERROR_CODE = 3;

/** The run cannot go on, and starting its actor again would end the same way. */
export class RunError extends Error {
  override readonly name = "RunError";
}

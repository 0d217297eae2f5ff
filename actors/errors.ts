/**
 * Error classes, and functions that write errors as text. An `EpisodeError` is the failure of one episode; the run records it as data.
 * After a `RunError` the supervisor does not restart the actor, because the restarted actor would fail in the same way. Any other error of an
 * actor is a bug, and the supervisor restarts the actor.
 */
import { relative } from "node:path";
import { fileURLToPath } from "node:url";
import type { z } from "zod";

/** Where an episode failed. "capacity": it reached a limit. "closed": the episode or the connection closed, or no answer came in time. */
export type Boundary = "env" | "policy" | "protocol" | "capacity" | "closed";

export class EpisodeError extends Error {
  override readonly name = "EpisodeError";
  readonly boundary: Boundary;

  constructor(message: string, boundary: Boundary, options?: ErrorOptions) {
    super(message, options);
    this.boundary = boundary;
  }
}

/**
 * Runs code of an env or a policy. If the code throws, or its promise rejects, the error becomes an `EpisodeError` with this boundary. So
 * an env may throw plain errors. An `EpisodeError` passes unchanged, because an inner call of `within` has already set the boundary.
 */
export function within<T>(boundary: Boundary, what: string, run: () => T): T {
  const fail = (error: unknown): never => {
    if (error instanceof EpisodeError) throw error;
    const place = boundary === "env" ? placeOf(error) : "";
    throw new EpisodeError(`${what}: ${describeError(error)}${place}`, boundary, { cause: error });
  };
  try {
    const result = run();
    return result instanceof Promise ? (result.catch(fail) as T) : result;
  } catch (error) {
    return fail(error);
  }
}

/** One line for people: `error.name` and the message. */
export function describeError(error: unknown): string {
  return oneLine(error instanceof Error ? `${error.name}: ${error.message}` : String(error));
}

/** One line for people: only the message, for errors whose name adds nothing. */
export const messageOf = (error: unknown): string => oneLine(error instanceof Error ? error.message : String(error));

const OWN = fileURLToPath(new URL("..", import.meta.url));

/** The innermost call outside of Bunraku's own code, as " (FILE:LINE:COLUMN)"; an empty text if all calls are Bunraku's. */
export function placeOf(error: unknown): string {
  // Errors of Bun's parser and linker have a position; other errors have a stack. Code may also throw undefined or null.
  const position = (error as { position?: { file: string; line: number; column: number } } | null | undefined)
    ?.position;
  if (position?.file) return ` (${fromHere(position.file)}:${position.line}:${position.column})`;
  const calls = stackOf(error).matchAll(/(?:\(|at (?:async )?)(\/[^()\n]+):(\d+):(\d+)\)?$/gm);
  const outside = calls.find(([, file]) => !file!.startsWith(OWN));
  return outside === undefined ? "" : ` (${fromHere(outside[1]!)}:${outside[2]}:${outside[3]})`;
}

function fromHere(file: string): string {
  const path = relative(process.cwd(), file);
  return path.startsWith("..") ? file : path;
}

/** One line for people: every fault that a zod schema found, as `path: message`. @param whole  stands for the path of the whole value */
export const schemaFaults = ({ issues }: Pick<z.ZodError, "issues">, whole: string): string =>
  issues.map(({ path, message }) => `${path.join(".") || whole}: ${message}`).join("; ");

export const oneLine = (text: string): string => text.trim().replaceAll(/\s*\n\s*/g, " ");

/** For a log: the calls of an error's stack, one per line; then each cause, with its message and calls. Leaves out the error's own message. */
export function stackOf(error: unknown): string {
  if (!(error instanceof Error)) return "";
  const calls = (error.stack ?? "").split("\n").filter((line) => /^\s+at /.test(line));
  const { cause } = error;
  const causes = cause instanceof Error ? [`caused by ${describeError(cause)}`, stackOf(cause)] : [];
  return [...calls.map((line) => line.trim()), ...causes].join("\n");
}

export const RUN_ERROR_CODE = 3;

export class RunError extends Error {
  override readonly name = "RunError";
}

/** A config that Bunraku cannot run. The message has one line per fault. Each line names the file or flag that set the faulty key. */
export class ConfigError extends Error {
  override readonly name = "ConfigError";
}

export class WeightsError extends Error {
  override readonly name = "WeightsError";
}

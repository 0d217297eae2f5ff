/** Runs one command in this process, and turns its failure into lines and an exit code. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { visible } from "../../actors/dashboard/client/text.ts";
import { messageOf } from "../../actors/errors.ts";
import { type Command, helpText, type Parsed, parseOptions } from "./options.ts";

interface CommandModule {
  readonly command: Command;
  /** @param typed  the arguments as the user typed them; in `options`, the tag of an env replaces the path of its module */
  main(options: Parsed<Command>, typed: readonly string[]): Promise<number>;
}

/**
 * Calls `main` of scripts/NAME.ts with the parsed arguments, or prints the help of its `command`.
 *
 * @param args  with --verbose a failure also prints its stack
 * @returns the exit code of `main`, or the exit code for its failure
 */
export async function runCommand(name: string, args: readonly string[]): Promise<number> {
  try {
    const typed = args.filter((arg) => arg !== "--verbose");
    const words = await wordsInProject(name, typed);
    const { command, main } = (await import(`../${name}.ts`)) as CommandModule;
    if (words.some((word) => word === "--help" || word === "-h")) {
      console.log(helpText(name, command));
      return 0;
    }
    return await main(parseOptions(name, command, words), typed);
  } catch (error) {
    return failed(error, args.includes("--verbose"));
  }
}

/** Reads the project of this folder. @returns the words; the tag of an env replaces the path of its module */
async function wordsInProject(name: string, words: string[]): Promise<string[]> {
  const folder = process.cwd();
  // The value of --env may be a list.
  const namesModule = words.some((word) => /(^|[=,])\.{0,2}\/[^,]*\.[mc]?[jt]sx?(,|$)/.test(word));
  if (!namesModule && !existsSync(join(folder, "bunraku.config.ts"))) return words;
  // This import must not be at the top: the packages of these modules may be missing when Bun imports this file.
  const { loadProject, withTagsForPaths } = await import("../../library/project.ts");
  const { inProject } = await import("./presets.ts");
  inProject(await loadProject(folder));
  return withTagsForPaths(name, words, folder);
}

/** Prints a failure: one line; for wrong usage, one line for each fault. @returns the exit code: 2 for wrong usage, 1 for another failure */
export function failed(error: unknown, verbose: boolean): number {
  if (verbose) console.error(visible(Bun.inspect(error)));
  const wrongUsage = error instanceof Error && ["UsageError", "ConfigError"].includes(error.name);
  return wrongUsage ? printErrors(error.message, 2) : printErrors(messageOf(error), 1);
}

/** Prints each line of the message as an error. A message may quote a model or a server, so the function makes control characters visible. */
export function printErrors(message: string, code: number): number {
  for (const line of message.split("\n")) console.error(visible(`error: ${line}`));
  return code;
}

/** Runs one command in this process, and turns its failure into lines and an exit code. */
import { visible } from "../../actors/dashboard/client/text.ts";
import { messageOf } from "../../actors/errors.ts";

interface CommandModule {
  main(args: string[]): Promise<number>;
}

/**
 * Calls `main` of scripts/NAME.ts.
 *
 * @param args  with --verbose a failure also prints its stack
 * @returns the exit code: that of `main`, or of its failure
 */
export async function runCommand(name: string, args: readonly string[]): Promise<number> {
  try {
    const folder = process.cwd();
    // Their packages may not have been installed when this file was imported.
    const [{ loadProject, withTagsForPaths }, { inProject }] = await Promise.all([
      import("../../library/project.ts"),
      import("./presets.ts"),
    ]);
    inProject(await loadProject(folder));
    const command = (await import(`../${name}.ts`)) as CommandModule;
    const words = args.filter((arg) => arg !== "--verbose");
    return await command.main(await withTagsForPaths(words, folder));
  } catch (error) {
    return failed(error, args.includes("--verbose"));
  }
}

/** Prints a failure: one line, or one for each fault of a wrong usage. @returns the exit code: 2 for wrong usage, 1 for the rest */
export function failed(error: unknown, verbose: boolean): number {
  if (verbose) console.error(visible(Bun.inspect(error)));
  const wrongUsage = error instanceof Error && ["UsageError", "ConfigError"].includes(error.name);
  return wrongUsage ? printErrors(error.message, 2) : printErrors(messageOf(error), 1);
}

/** Prints each line of the message as an error. It may quote a model or a server, so control characters are made visible. */
export function printErrors(message: string, code: number): number {
  for (const line of message.split("\n")) console.error(visible(`error: ${line}`));
  return code;
}

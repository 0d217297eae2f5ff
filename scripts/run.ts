/**
 * `bun run COMMAND …`: every command of package.json starts here. Makes sure that the dependencies are installed, then
 * hands over to scripts/COMMAND.ts. Until then nothing but built-in modules may be loaded: there may be nothing else.
 *
 * A command is a file of this folder that exports `main(args): Promise<number>`; its opening comment says what it does.
 * Exit codes: 0 done, 1 failed, 2 asked for wrongly. A failure is one line on standard error, a line for each fault if it was asked
 * for wrongly; --verbose adds the stack.
 */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { visible } from "../actors/dashboard/client/text.ts";
import { oneLine } from "../actors/errors.ts";
import { nearest } from "../envs/text/nearest.ts";
import { install } from "./cli/install.ts";

const BUN_NEEDED = "1.4.4";

interface CommandModule {
  main(args: string[]): Promise<number>;
}

process.exitCode = await run(process.argv.slice(2));

async function run([name, ...args]: string[]): Promise<number> {
  if (Bun.semver.order(Bun.version, BUN_NEEDED) < 0) {
    return fail(
      `Bun ${Bun.version} is too old, ${BUN_NEEDED} is needed; use \`npx -y bun@${BUN_NEEDED} run ${name ?? ""}\``,
      1,
    );
  }
  const commands = findCommands();
  if (name === undefined || name === "--help" || name === "-h" || name === "help") {
    console.log(overview(commands));
    return name === undefined ? 2 : 0;
  }
  if (!commands.has(name)) {
    const near = nearest(name, commands.keys());
    return fail(`no command "${name}"; ${near === null ? "`bun run help` lists them" : `did you mean ${near}?`}`, 2);
  }
  const failed = (error: unknown) => {
    if (args.includes("--verbose")) console.error(visible(Bun.inspect(error)));
    const usage = error instanceof Error && ["UsageError", "ConfigError"].includes(error.name);
    const message = error instanceof Error ? error.message : String(error);
    return usage ? fail(message, 2) : fail(oneLine(message), 1);
  };
  for (const kind of ["uncaughtException", "unhandledRejection"]) {
    process.on(kind, (error) => process.exit(failed(error)));
  }
  // A closed terminal (EIO), a closed pipe (EPIPE) or a full disk (ENOSPC) must not end a run that has not saved yet.
  process.stderr.on("error", () => {});
  try {
    // Bun remembers which packages it did not find, so a process that saw none has to start over: same id, same streams.
    if (await install(join(import.meta.dir, ".."))) process.execve!(process.execPath, process.argv, process.env);
    const command = (await import(`./${name}.ts`)) as CommandModule;
    return await command.main(args.filter((arg) => arg !== "--verbose"));
  } catch (error) {
    // What it left open must not keep it.
    process.exit(failed(error));
  }
}

/** Name and summary of each command: the first sentence of its file, after the name. */
function findCommands(): Map<string, string> {
  const commands = new Map<string, string>();
  for (const file of readdirSync(import.meta.dir).sort()) {
    if (!file.endsWith(".ts")) continue;
    const code = readFileSync(join(import.meta.dir, file), "utf8");
    if (!/^export (async function main\b|\{[^}]*\bmain\b[^}]*\})/m.test(code)) continue;
    const opening = /^\/\*\*(.*?)\*\//s.exec(code)?.[1]?.replaceAll(/\s*\n \* ?/g, " ") ?? "";
    commands.set(file.slice(0, -".ts".length), /^\s*`[^`]*`: (.*?)\.(?:\s|$)/.exec(opening)?.[1] ?? "");
  }
  return commands;
}

function overview(commands: ReadonlyMap<string, string>): string {
  const width = Math.max(...[...commands.keys()].map((name) => name.length));
  const rows = [...commands].map(([name, summary]) => `  ${name.padEnd(width)}  ${summary}`);
  return ["bun run COMMAND [--help] [--verbose] …", "", ...rows].join("\n");
}

/** Each of its lines is an error. It may quote what a model or a server wrote. */
function fail(message: string, code: number): number {
  for (const line of message.split("\n")) console.error(visible(`error: ${line}`));
  return code;
}

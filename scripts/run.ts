/**
 * `bun run COMMAND …`: every command of package.json starts here. Installs the dependencies if they are missing, then calls
 * `main` of scripts/COMMAND.ts, which returns the exit code.
 *
 * - Before the install this file can import only built-in modules and our own files without dependencies.
 * - Exit codes: 0 done, 1 failed, 2 wrong usage.
 * - A failure prints one line on standard error. Wrong usage prints one line for each fault. --verbose adds the stack.
 */
import { join } from "node:path";
import { didYouMean, nearest } from "../envs/text/nearest.ts";
import { CLONE_ONLY, COMMANDS } from "./cli/commands.ts";
import { install, isPackage } from "./cli/install.ts";
import { print } from "./cli/print.ts";
import { failed, printErrors, runCommand } from "./cli/run-command.ts";

const BUN_NEEDED = "1.4.4";

console.log = print;
process.exitCode = await run(process.argv.slice(2)).catch((error) => failed(error, false));

async function run([name, ...args]: string[]): Promise<number> {
  if (Bun.semver.order(Bun.version, BUN_NEEDED) < 0) {
    const command = `npx -y bun@${BUN_NEEDED} run ${name ?? ""}`;
    return printErrors(`Bun ${Bun.version} is too old; Bunraku needs ${BUN_NEEDED} or newer; use \`${command}\``, 1);
  }
  if (name === undefined || name === "--help" || name === "-h" || name === "help") {
    console.log(overview());
    return name === undefined ? 2 : 0;
  }
  if (!Object.hasOwn(COMMANDS, name)) {
    const hint = didYouMean(nearest(name, Object.keys(COMMANDS))) || "; `bun run help` lists them";
    return printErrors(`no command "${name}"${hint}`, 2);
  }
  if (isPackage && CLONE_ONLY.includes(name)) return printErrors(`"${name}" works in a clone of Bunraku only`, 2);
  for (const kind of ["uncaughtException", "unhandledRejection"]) {
    process.on(kind, (error) => process.exit(failed(error, args.includes("--verbose"))));
  }
  // A closed terminal (EIO), a closed pipe (EPIPE) or a full disk (ENOSPC) must not end a run that has not saved yet.
  process.stderr.on("error", () => {});
  try {
    // Bun remembers which packages it did not find. So after an install this process starts Bun again in place of itself, with the same id and
    // streams.
    if (!isPackage && (await install(join(import.meta.dir, ".."))))
      process.execve!(process.execPath, process.argv, process.env);
  } catch (error) {
    return failed(error, args.includes("--verbose"));
  }
  const code = await runCommand(name, args);
  // Sockets, timers and workers that a failed command left open would keep the process alive.
  if (code !== 0) process.exit(code);
  return code;
}

function overview(): string {
  const shown = Object.entries(COMMANDS).filter(([name]) => !isPackage || !CLONE_ONLY.includes(name));
  const width = Math.max(...shown.map(([name]) => name.length));
  const rows = shown.map(([name, summary]) => `  ${name.padEnd(width)}  ${summary}`);
  return [`${isPackage ? "bunx bunraku" : "bun run"} COMMAND [--help] [--verbose] …`, "", ...rows].join("\n");
}

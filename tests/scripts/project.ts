/** A small project to run commands in, with one package that needs no network. */
import { cpSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "./command.ts";
import { temporaryFolder } from "./temporary.ts";

const COMMAND = "export const command = { flags: {} }; ";

const files: Record<string, string> = {
  "package.json": JSON.stringify({
    name: "small",
    scripts: { hello: "bun scripts/run.ts hello" },
    dependencies: { greeting: "file:./greeting" },
  }),
  "greeting/package.json": JSON.stringify({ name: "greeting", version: "1.0.0", main: "index.js" }),
  "greeting/index.js": "export const greeting = 'good evening';",
  "scripts/hello.ts":
    "import { greeting } from 'greeting';\n" +
    "export const command = { flags: {}, passesOn: true };\n" +
    "export async function main({ words }) { console.log([greeting, ...words].join(' ')); return words.length; }",
  "scripts/fall.ts": `${COMMAND}export async function main() { throw new Error('cannot stand: 1 leg of 2'); }`,
  "scripts/trip.ts": `${COMMAND}export async function main() { setTimeout(() => { throw new TypeError('a stone'); }); await new Promise(() => {}); }`,
  "scripts/misuse.ts":
    `${COMMAND}class UsageError extends Error { name = 'UsageError'; }\n` +
    "export async function main() { throw new UsageError('first fault\\nsecond fault'); }",
  "scripts/cli/commands.ts": `export const COMMANDS = ${JSON.stringify({
    hello: "say hello",
    fall: "fail",
    trip: "fail in a timer",
    misuse: "refuse its arguments",
    test: "run tests",
    bench: "run benchmarks",
    check: "run checks",
  })};\nexport const CLONE_ONLY = [];`,
  "scripts/part.ts": "export const part = 1;",
};

/**
 * A fresh copy in a temporary folder, locked but not installed.
 *
 * @param extra  further files, by path.
 * @param copied further files of this repository to copy.
 */
export async function smallProject(extra: Record<string, string> = {}, copied: string[] = []): Promise<string> {
  const folder = temporaryFolder();
  for (const name of [
    "scripts/run.ts",
    "scripts/cli/install.ts",
    "scripts/cli/options.ts",
    "scripts/cli/print.ts",
    "scripts/cli/run-command.ts",
    "actors/errors.ts",
    "envs/text/nearest.ts",
    "actors/dashboard/client/text.ts",
    ...copied,
  ]) {
    cpSync(join(root, name), join(folder, name), { recursive: true });
  }
  for (const [name, text] of Object.entries({ ...files, ...extra })) {
    mkdirSync(join(folder, name, ".."), { recursive: true });
    writeFileSync(join(folder, name), text);
  }
  const lock = Bun.spawn([process.execPath, "install", "--lockfile-only"], {
    cwd: folder,
    stdio: ["ignore", "ignore", "pipe"],
  });
  if ((await lock.exited) !== 0) throw new Error(`cannot lock the small project: ${await lock.stderr.text()}`);
  return folder;
}

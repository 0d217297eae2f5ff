/** `bun run check`: checks types, lint, format and which folders import which. Changes no file. Exit code 1 if a check fails. */
import { join } from "node:path";
import type { Command } from "./cli/options.ts";

const root = join(import.meta.dir, "..");

export const command = {
  flags: {},
  examples: ["bun run check", "bun x biome check --write   (fixes the format)"],
} as const satisfies Command;

const FORMAT = "lint and format";

const steps: readonly { readonly name: string; readonly run: readonly string[] }[] = [
  { name: "types", run: ["node_modules/typescript/bin/tsc", "--noEmit", "--pretty"] },
  {
    name: "types of the page's scripts",
    run: ["node_modules/typescript/bin/tsc", "--noEmit", "--pretty", "-p", "actors/dashboard/client"],
  },
  { name: FORMAT, run: ["node_modules/@biomejs/biome/bin/biome", "check", "--error-on-warnings"] },
  { name: "folders", run: ["test", "--only-failures", "tests/tidy.test.ts"] },
];

export async function main(): Promise<number> {
  const failed: string[] = [];
  for (const { name, run } of steps) {
    const started = performance.now();
    const child = Bun.spawn([process.execPath, ...run], { cwd: root, stdio: ["ignore", "pipe", "pipe"] });
    const [out, err, code] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited]);
    const seconds = ((performance.now() - started) / 1000).toFixed(1);
    console.log(`${code === 0 ? "ok    " : "failed"}  ${name} (${seconds} s)`);
    if (code === 0) continue;
    failed.push(name);
    console.log(`${out}${err}`);
  }
  const mend = failed.includes(FORMAT) ? "; `bun x biome check --write` fixes the format" : "";
  if (failed.length > 0) console.error(`error: ${failed.join(", ")} failed, as shown above${mend}`);
  return failed.length > 0 ? 1 : 0;
}

/** `bun run setup`: installs the dependencies and says what is there. Every command does the same by itself. */
import { rmSync } from "node:fs";
import { join } from "node:path";
import { packagesFinding } from "./doctor/project.ts";
import { install } from "./install.ts";
import { type Command, helped, parseOptions } from "./options.ts";

const root = join(import.meta.dir, "..");

const command = {
  name: "setup",
  summary: "install the dependencies and say what is there; every command does the same by itself",
  flags: { again: { type: "switch", text: "Compare with the lock file again, even if the stamp says it is done" } },
  examples: ["bun run setup", "bun run setup --again"],
} as const satisfies Command;

export async function main(args: string[]): Promise<number> {
  if (helped(command, args)) return 0;
  const { flags } = parseOptions(command, args);
  if (flags.again) {
    rmSync(join(root, "node_modules", ".bunraku", "installed"), { force: true });
    await install(root);
  }
  const packages = packagesFinding(root);
  if (packages.state !== "ok") throw new Error(`${packages.found}; ${packages.means}`);
  console.log(`packages: ${packages.found}; ${packages.means}`);
  return 0;
}

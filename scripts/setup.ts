/** `bun run setup`: installs the dependencies, as every command does by itself, and the optional libtensorflow. */
import { rmSync } from "node:fs";
import { join } from "node:path";
import { nvidiaGpus } from "../actors/engine/nvidia.ts";
import { install } from "./cli/install.ts";
import { type Command, helped, parseOptions, UsageError } from "./cli/options.ts";
import { packagesFinding } from "./doctor/project.ts";
import { officialSources, setUpTensorflow } from "./setup/tensorflow.ts";

const root = join(import.meta.dir, "..");

const command = {
  name: "setup",
  words: { show: "[tensorflow]", text: "Also download libtensorflow, for a learner on an NVIDIA GPU", max: 1 },
  flags: { again: { type: "switch", text: "Install again, even if the packages match the lock file" } },
  examples: ["bun run setup", "bun run setup --again", "bun run setup tensorflow"],
} as const satisfies Command;

export async function main(args: string[]): Promise<number> {
  if (helped(command, args)) return 0;
  const { flags, words } = parseOptions(command, args);
  if (words.length > 0 && words[0] !== "tensorflow") {
    throw new UsageError(`setup does not know "${words[0]}"; it takes tensorflow`);
  }
  if (flags.again) {
    rmSync(join(root, "node_modules", ".bunraku", "installed"), { force: true });
    await install(root);
  }
  const packages = packagesFinding(root);
  if (packages.state !== "ok") throw new Error(`${packages.found}; ${packages.means}`);
  console.log(`packages: ${packages.found}; ${packages.means}`);
  if (words.length === 0) return 0;
  const gpu = nvidiaGpus().length > 0;
  const path = await setUpTensorflow(officialSources(gpu, (text) => console.error(`tensorflow: ${text}`)));
  console.log(`tensorflow: ${path}`);
  return 0;
}

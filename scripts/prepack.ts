/**
 * `bun run prepack`, which `bun pm pack` runs first: writes the declarations of library/ to types/, and the manifest of the package.
 * The clone's manifest is kept beside it until `bun run postpack`.
 */
import { renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Command, helped, parseOptions } from "./cli/options.ts";

const command = { name: "prepack", flags: {}, examples: ["bun run prepack"] } as const satisfies Command;

const root = join(import.meta.dir, "..");
export const MANIFEST = join(root, "package.json");
export const KEPT_MANIFEST = join(root, "types/package.clone.json");

/** Packages that only another engine than the default one uses. An install from the package leaves them out. */
const OPTIONAL = ["@tensorflow/tfjs-node-gpu"];

export async function main(args: string[]): Promise<number> {
  if (helped(command, args)) return 0;
  parseOptions(command, args);
  rmSync(join(root, "types"), { recursive: true, force: true });
  const tsc = [process.execPath, "node_modules/.bin/tsc", "-p", "library/tsconfig.json"];
  const child = Bun.spawn(tsc, { cwd: root, stdio: ["ignore", 2, 2] });
  if ((await child.exited) !== 0) throw new Error("cannot write the declarations, for the reason above");
  const { dependencies, devDependencies: _, scripts, ...manifest } = await Bun.file(MANIFEST).json();
  const isOptional = ([name]: [string, unknown]) => OPTIONAL.includes(name);
  const all = Object.entries(dependencies as Record<string, string>);
  const packed = {
    ...manifest,
    // Bun reads this manifest before it runs postpack.
    scripts: { postpack: scripts.postpack },
    dependencies: Object.fromEntries(all.filter((entry) => !isOptional(entry))),
    peerDependencies: Object.fromEntries(all.filter(isOptional)),
    peerDependenciesMeta: Object.fromEntries(OPTIONAL.map((name) => [name, { optional: true }])),
  };
  renameSync(MANIFEST, KEPT_MANIFEST);
  writeFileSync(MANIFEST, `${JSON.stringify(packed, null, 2)}\n`);
  return 0;
}

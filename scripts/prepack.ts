/**
 * `bun run prepack`, which `bun pm pack` runs first: writes the declarations of library/ to types/, and replaces the clone's manifest by the
 * package's. types/ keeps the clone's manifest until `bun run postpack`.
 */
import { renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Command } from "./cli/options.ts";

export const command = { flags: {}, examples: ["bun run prepack"] } as const satisfies Command;

const root = join(import.meta.dir, "..");
export const MANIFEST = join(root, "package.json");
export const KEPT_MANIFEST = join(root, "types/package.clone.json");

/** The default engine does not use this package. */
const GPU = "@tensorflow/tfjs-node-gpu";
/** Versions of the AI SDK that `bunraku/ai` fits. */
const AI_SDK = "6 || 7";

export async function main(): Promise<number> {
  rmSync(join(root, "types"), { recursive: true, force: true });
  const tsc = [process.execPath, "node_modules/.bin/tsc", "-p", "library/tsconfig.json"];
  const child = Bun.spawn(tsc, { cwd: root, stdio: ["ignore", 2, 2] });
  if ((await child.exited) !== 0) throw new Error("cannot write the declarations, for the reason above");
  const { dependencies, devDependencies: _, scripts, ...manifest } = await Bun.file(MANIFEST).json();
  const { [GPU]: gpu, ...needed } = dependencies as Record<string, string>;
  const packed = {
    ...manifest,
    // Bun reads this manifest before it runs postpack, so the manifest must name postpack.
    scripts: { postpack: scripts.postpack },
    dependencies: needed,
    // These two packages are optional, so an install of Bunraku does not install them.
    peerDependencies: { [GPU]: gpu, ai: AI_SDK },
    peerDependenciesMeta: { [GPU]: { optional: true }, ai: { optional: true } },
  };
  renameSync(MANIFEST, KEPT_MANIFEST);
  writeFileSync(MANIFEST, `${JSON.stringify(packed, null, 2)}\n`);
  return 0;
}

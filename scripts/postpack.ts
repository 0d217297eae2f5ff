/** `bun run postpack`, which `bun pm pack` runs last: restores the clone's manifest. */
import { existsSync, renameSync } from "node:fs";
import type { Command } from "./cli/options.ts";
import { KEPT_MANIFEST, MANIFEST } from "./prepack.ts";

export const command = { flags: {}, examples: ["bun run postpack"] } as const satisfies Command;

export async function main(): Promise<number> {
  if (existsSync(KEPT_MANIFEST)) renameSync(KEPT_MANIFEST, MANIFEST);
  return 0;
}

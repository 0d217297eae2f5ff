/** For an error about a folder that is no run: whether the folder holds runs, as that of a sweep does. */
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";

/** @returns the end of a message; empty if no run is in the folder */
export function runsWithin(folder: string): string {
  const names = existsSync(folder) ? readdirSync(folder, { withFileTypes: true }) : [];
  const runs = names.filter((entry) => entry.isDirectory() && existsSync(join(folder, entry.name, "config.json")));
  const first = runs.map(({ name }) => name).sort()[0];
  return first === undefined ? "" : `; the folder holds runs: name one, such as ${join(folder, first)}`;
}

/** Which settings differ between runs. */
import { isDeepStrictEqual } from "node:util";

/** Settings by path; a list is one setting. */
export function settingsByPath(tree: object, path = ""): Map<string, unknown> {
  const leaves = new Map<string, unknown>();
  for (const [key, value] of Object.entries(tree)) {
    const here = path === "" ? key : `${path}.${key}`;
    const isSection = typeof value === "object" && value !== null && !Array.isArray(value);
    for (const [leaf, leafValue] of isSection ? settingsByPath(value, here) : [[here, value]]) {
      leaves.set(leaf, leafValue);
    }
  }
  return leaves;
}

/** By path, the value in each config; only where they differ. Null: the config lacks the key. */
export function differingSettings(configs: readonly object[]): Record<string, unknown[]> {
  const settings = configs.map((config) => settingsByPath(config));
  const paths = new Set(settings.flatMap((one) => [...one.keys()]));
  const rows = [...paths].map((path) => [path, settings.map((one) => one.get(path) ?? null)] as const);
  return Object.fromEntries(rows.filter(([, values]) => values.some((value) => !isDeepStrictEqual(value, values[0]))));
}

/** Which settings differ between runs. */
import { isDeepStrictEqual } from "node:util";
import { valuesByPath } from "../../actors/config/layers.ts";

/** By path, the value in each config; only where they differ. Null: the config lacks the key. */
export function differingSettings(configs: readonly object[]): Record<string, unknown[]> {
  const settings = configs.map((config) => new Map(valuesByPath(config)));
  const paths = new Set(settings.flatMap((one) => [...one.keys()]));
  const rows = [...paths].map((path) => [path, settings.map((one) => one.get(path) ?? null)] as const);
  return Object.fromEntries(rows.filter(([, values]) => values.some((value) => !isDeepStrictEqual(value, values[0]))));
}

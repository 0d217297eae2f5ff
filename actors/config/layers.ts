/**
 * Layers of settings: presets, files, flags. Knows no particular key.
 * Mappings merge key by key; lists and values of a higher layer replace those of a lower one.
 */
import { ConfigError } from "./error.ts";

export type Tree = { [key: string]: unknown };

export interface Layer {
  /** For messages: "configs/starpo-s.yaml", "--learner.gamma=2". */
  readonly source: string;
  readonly values: Tree;
}

/**
 * A YAML file's text as a layer. An empty file sets nothing.
 *
 * @throws {ConfigError} naming the file if it is not YAML or not a mapping.
 */
export function parseLayer(text: string, file: string): Layer {
  let values: unknown;
  try {
    values = Bun.YAML.parse(text) ?? {};
  } catch (error) {
    throw new ConfigError(`${file}: not YAML: ${error instanceof Error ? error.message : error}`);
  }
  if (!isTree(values)) throw new ConfigError(`${file}: must be a mapping of sections, as "learner: {gamma: 1}"`);
  return { source: file, values };
}

/** A layer with one value at a dotted path. */
export function oneValue(source: string, path: string, value: unknown): Layer {
  const parts = path.split(".");
  return { source, values: parts.reduceRight<unknown>((inner, part) => ({ [part]: inner }), value) as Tree };
}

/**
 * All layers as one tree. A numeric name sets one item of a list in a lower layer: `stages.1.steps`.
 *
 * @throws {ConfigError} if that list has no such item.
 */
export function merge(layers: readonly Layer[]): Tree {
  return layers.reduce<Tree>((merged, { source, values }) => over(merged, values, source) as Tree, {});
}

function over(lower: unknown, upper: unknown, source: string): unknown {
  if (!isTree(upper)) return upper;
  if (Array.isArray(lower) && Object.keys(upper).every((name) => /^\d+$/.test(name))) {
    const items = [...lower];
    for (const [name, value] of Object.entries(upper)) {
      if (Number(name) >= items.length) {
        throw new ConfigError(`${source}: no item ${name} in a list of ${items.length}; the first is 0`);
      }
      items[Number(name)] = over(items[Number(name)], value, source);
    }
    return items;
  }
  const merged = new Map(isTree(lower) ? Object.entries(lower) : []);
  for (const [name, value] of Object.entries(upper)) merged.set(name, over(merged.get(name), value, source));
  return Object.fromEntries(merged);
}

/** Index of the highest layer that sets anything at or below `path`, or that replaced it whole; -1 if none does. */
export function lastToSet(layers: readonly Layer[], path: string): number {
  return layers.findLastIndex((layer) => {
    let node: unknown = layer.values;
    for (const part of path.split(".")) {
      if (!isTree(node)) return Array.isArray(node);
      if (!Object.hasOwn(node, part)) return false;
      node = node[part];
    }
    return true;
  });
}

export function isTree(value: unknown): value is Tree {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

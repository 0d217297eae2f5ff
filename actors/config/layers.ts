/**
 * Layers of settings: presets, files and flags. This file names no particular key.
 * Mappings of two layers merge key by key. Any other value of a higher layer, such as a list, replaces the lower layer's value.
 */
import { closeSync, openSync, readSync } from "node:fs";
import { isDeepStrictEqual } from "node:util";
import { ConfigError } from "../errors.ts";

export type Tree = { [key: string]: unknown };

export interface Layer {
  /** Where the settings come from, for messages: "configs/starpo-s.yaml", "--learner.gamma=2". */
  readonly source: string;
  readonly values: Tree;
}

/**
 * A YAML file's text as a layer. An empty file sets nothing.
 *
 * @throws {ConfigError} that names the file, if the text is not one mapping of YAML in which each key is set once.
 */
export function parseLayer(text: string, file: string): Layer {
  let values: unknown;
  try {
    values = Bun.YAML.parse(text) ?? {};
  } catch (error) {
    throw new ConfigError(`${file}: not YAML: ${error instanceof Error ? error.message : error}`);
  }
  if (documentsIn(text) > 1)
    throw new ConfigError(`${file}: has ${documentsIn(text)} documents (a line --- begins a new document); keep one`);
  if (!isTree(values)) throw new ConfigError(`${file}: must be a mapping of sections, as "learner: {gamma: 1}"`);
  if (holdsItself(values))
    throw new ConfigError(`${file}: an anchor (&) contains its own alias (*); write the values out`);
  const twice = keyTwice(text);
  if (twice !== null) throw new ConfigError(`${file}: ${twice} is set twice; leave one out`);
  return { source: file, values };
}

/** Number of documents in a YAML text. Bun's parser does not refuse a text with several documents: it returns a list. */
function documentsIn(text: string): number {
  const [head, ...others] = text.split(/^---(?=\s|$)/m);
  // Before its first document a file may have comments (#) and directives (%).
  return others.length + Number(/^\s*[^\s#%]/m.test(head!));
}

function holdsItself(value: unknown, ancestors = new Set<unknown>(), seen = new Set<unknown>()): boolean {
  if (typeof value !== "object" || value === null || ancestors.has(value)) return ancestors.has(value);
  if (seen.has(value)) return false;
  seen.add(value);
  const inside = new Set([...ancestors, value]);
  return Object.values(value).some((inner) => holdsItself(inner, inside, seen));
}

/**
 * The first key that a block sets twice; null if there is none. YAML forbids a second value, but Bun's parser accepts it. This function does
 * not check keys in {braces}. Lines of a block of text (| or >) are not keys.
 */
function keyTwice(text: string): string | null {
  let open: { readonly indent: number; readonly keys: Set<string> }[] = [];
  let textBeyond = Number.POSITIVE_INFINITY;
  for (const line of text.replace(/^\uFEFF/, "").split(/\r?\n/)) {
    const first = line.search(/\S/);
    if (first === -1 || first > textBeyond) continue;
    const [, indent, dash, , key] = /^( *)((?:- +)*)(["']?)([A-Za-z_][\w.-]*)\3 *:(?:[ \t]|$)/.exec(line) ?? [];
    const column = (indent ?? "").length + (dash ?? "").length;
    const beginsText = /[\s:-][|>][-+\d]*\s*$/.test(line.replace(/\s#.*/, ""));
    textBeyond = beginsText ? (key === undefined ? first : column) : Number.POSITIVE_INFINITY;
    if (indent === undefined || dash === undefined || key === undefined) continue;
    // A dash begins a new item, which may repeat the keys of the previous item.
    open = open.filter((block) => block.indent < (dash === "" ? column + 1 : indent.length + 1));
    const block = open.find((one) => one.indent === column) ?? { indent: column, keys: new Set<string>() };
    if (block.keys.has(key)) return key;
    block.keys.add(key);
    if (!open.includes(block)) open.push(block);
  }
  return null;
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
        throw new ConfigError(`${source}: no item ${name} in a list of ${items.length}; items are numbered from 0`);
      }
      items[Number(name)] = over(items[Number(name)], value, source);
    }
    return items;
  }
  const merged = new Map(isTree(lower) ? Object.entries(lower) : []);
  for (const [name, value] of Object.entries(upper)) merged.set(name, over(merged.get(name), value, source));
  return Object.fromEntries(merged);
}

/**
 * Index of the highest layer that sets `path`, a key below `path`, or a whole list that contains `path`; -1 if there is no such layer.
 *
 * @param path  a text with dots, or a list of names. A name that contains a dot needs the list.
 */
export function lastToSet(layers: readonly Layer[], path: string | readonly string[]): number {
  const parts = typeof path === "string" ? path.split(".") : path;
  return layers.findLastIndex((layer) => {
    let node: unknown = layer.values;
    for (const part of parts) {
      if (!isTree(node)) return Array.isArray(node);
      if (!Object.hasOwn(node, part)) return false;
      node = node[part];
    }
    return true;
  });
}

/** The type of the value at a dotted path; `never` if the type has no such path. */
export type At<T, P extends string> = P extends `${infer Name}.${infer Rest}`
  ? Name extends keyof T
    ? At<T[Name], Rest>
    : never
  : P extends keyof T
    ? T[P]
    : never;

/** The value at a dotted path; undefined if there is none. */
export const valueAt = (tree: Tree, path: string): unknown =>
  path.split(".").reduce<unknown>((node, name) => (isTree(node) ? node[name] : undefined), tree);

/** All values of a tree, each with its dotted path; a list is one value. */
export function valuesByPath(tree: object): [path: string, value: unknown][] {
  return Object.entries(tree).flatMap(([name, value]): [string, unknown][] =>
    isTree(value) ? valuesByPath(value).map(([path, inner]) => [`${name}.${path}`, inner]) : [[name, value]],
  );
}

export function isTree(value: unknown): value is Tree {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Maximum number of bytes of a config file. The largest preset has about 1,000 bytes. */
const FILE_BYTES_MAX = 1 << 18;

/**
 * @throws {ConfigError} that names the file, if the file is too large, or if `parseLayer` refuses the text
 * @throws {Error} of the system, if the file cannot be read
 */
export function readLayer(file: string): Layer {
  const text = readAtMost(file, FILE_BYTES_MAX);
  if (text === null)
    throw new ConfigError(
      `${file}: a config has at most ${FILE_BYTES_MAX / 2 ** 10} KiB, and this file has more; name another file`,
    );
  return parseLayer(text, file);
}

/** The text of a file, or of a pipe that may never end; null if the text has more than `bytesMax` bytes. @throws {Error} of the system */
export function readAtMost(file: string, bytesMax: number): string | null {
  const bytes = Buffer.alloc(bytesMax + 1);
  const opened = openSync(file, "r");
  let length = 0;
  try {
    while (length < bytes.length) {
      const read = readSync(opened, bytes, length, bytes.length - length, null);
      if (read === 0) break;
      length += read;
    }
  } finally {
    closeSync(opened);
  }
  return length > bytesMax ? null : bytes.toString("utf8", 0, length);
}

/** The settings that differ between configs: for each path, one value per config; null for a config that lacks the key. */
export function differingSettings(configs: readonly object[]): Record<string, unknown[]> {
  const settings = configs.map((config) => new Map(valuesByPath(config)));
  const paths = new Set(settings.flatMap((one) => [...one.keys()]));
  const rows = [...paths].map((path) => [path, settings.map((one) => one.get(path) ?? null)] as const);
  return Object.fromEntries(rows.filter(([, values]) => values.some((value) => !isDeepStrictEqual(value, values[0]))));
}

/**
 * The keys of a schema as data: path, type, default, description. Help, suggestions, typed overrides and docs come from this data, so they
 * always agree with the schema. This file names no particular key; former-keys.ts lists the former keys.
 */
import { z } from "zod";
import { didYouMean, nearest } from "../../envs/text/nearest.ts";
import { parsedJson } from "../checkpoint/json.ts";
import { ConfigError } from "../errors.ts";
import { formerKeyText } from "./former-keys.ts";
import { isTree } from "./layers.ts";

/** The part of JSON Schema that zod generates for our configs. */
interface Node {
  readonly type?: string | string[];
  readonly properties?: Readonly<Record<string, Node>>;
  readonly additionalProperties?: Node | boolean;
  readonly items?: Node;
  readonly anyOf?: readonly Node[];
  readonly enum?: readonly unknown[];
  readonly default?: unknown;
  readonly description?: string;
}

export interface Key {
  /** "learner.kl.target". */
  readonly path: string;
  /** "number", "true | false", "compact | ragen-v1", "a JSON list", … */
  readonly type: string;
  readonly default: unknown;
  readonly description: string;
}

export class Keys {
  readonly #schema: z.ZodType;
  #root: Node | null = null;

  constructor(schema: z.ZodType) {
    this.#schema = schema;
  }

  /** Every key that has a value, in the order of the schema. A section is not in this list. */
  get all(): readonly Key[] {
    return leaves(this.#read(), "");
  }

  /** Paths of all keys and sections. `nearest` looks here for the key that a user meant. */
  paths(): string[] {
    const paths = this.all.map((key) => key.path);
    const sections = paths.flatMap((path) => path.split(".").map((_, i, parts) => parts.slice(0, i).join(".")));
    return [...new Set([...sections.filter((path) => path !== ""), ...paths])];
  }

  /**
   * Converts `text` to the type that the schema gives the key at `path`.
   *
   * @throws {ConfigError} if there is no such key, or the text is not of the key's type. The schema checks ranges later.
   */
  value(path: string, text: string): unknown {
    const node = this.#find(path);
    if (node === null) throw new ConfigError(this.unknown(path));
    if (node.properties !== undefined) {
      throw new ConfigError(`${path} is a section; set one of ${Object.keys(node.properties).join(", ")}`);
    }
    const value = typed(node, text);
    if (value === undefined) throw new ConfigError(`${path} takes ${typeName(node)}, got ${JSON.stringify(text)}`);
    return value;
  }

  /** The error for a path that is no key. */
  unknown(path: string): string {
    const former = formerKeyText(path);
    if (former !== null) return former;
    const near = this.nearest(path);
    // The key exists, but a file wrote its whole path as one name with dots. Only a flag may do this.
    if (near === path) {
      const [section, ...names] = path.split(".");
      const nested = names.reduceRight((inner, name) => `{${name}: ${inner}}`, "VALUE");
      return `unknown key "${path}"; keys of a section are nested: write ${section}: ${nested}`;
    }
    return `unknown key ${path}${near === null ? "; `bun run config` lists the keys" : didYouMean(near)}`;
  }

  /** The path that a user may have meant: a path with the same last name, else the most similar path; null if no path is similar. */
  nearest(path: string): string | null {
    const last = path.split(".").at(-1)!;
    const paths = this.paths();
    return paths.find((known) => known.split(".").at(-1) === last) ?? nearest(path, paths) ?? this.#nearestLast(last);
  }

  /** Reads the schema at the first call only. One read takes a quarter of the time of all imports of an actor. */
  #read(): Node {
    this.#root ??= z.toJSONSchema(this.#schema, { io: "input" }) as Node;
    return this.#root;
  }

  #nearestLast(last: string): string | null {
    const names = new Map(this.paths().map((path) => [path.split(".").at(-1)!, path]));
    const near = nearest(last, names.keys());
    return near === null ? null : names.get(near)!;
  }

  #find(path: string): Node | null {
    let node: Node | undefined = this.#read();
    for (const part of path.split(".")) {
      if (node?.properties !== undefined)
        node = Object.hasOwn(node.properties, part) ? node.properties[part] : undefined;
      else if (node?.items !== undefined && /^\d+$/.test(part)) node = node.items;
      else if (typeof node?.additionalProperties === "object") node = node.additionalProperties;
      // A node that allows any value may hold an object, so every key below it is valid.
      else if (node === undefined || node.enum !== undefined || types(node).length > 0) return null;
    }
    return node ?? null;
  }
}

function leaves(node: Node, path: string): Key[] {
  if (node.properties === undefined) {
    return [{ path, type: typeName(node), default: node.default, description: node.description ?? "" }];
  }
  return Object.entries(node.properties).flatMap(([name, child]) =>
    leaves(child, path === "" ? name : `${path}.${name}`),
  );
}

/** The JSON types that a node allows; empty if it allows any value. */
function types(node: Node): string[] {
  if (node.anyOf !== undefined) return node.anyOf.flatMap(types);
  return node.type === undefined ? [] : [node.type].flat();
}

function typeName(node: Node): string {
  if (node.enum !== undefined) return node.enum.join(" | ");
  const names: Record<string, string> = { array: "a JSON list", object: "a JSON object", boolean: "true | false" };
  return (
    types(node)
      .map((type) => names[type] ?? type)
      .join(" | ") || "any value"
  );
}

/** Converts the text to a value of one of the node's types; undefined if the text fits none of these types. */
function typed(node: Node, text: string): unknown {
  const allowed = types(node);
  if (allowed.length === 0) {
    const value = parsedJson(text);
    return value === undefined ? text : value;
  }
  if (allowed.includes("null") && text === "null") return null;
  if (allowed.includes("boolean") && (text === "true" || text === "false")) return text === "true";
  if (allowed.includes("number") || allowed.includes("integer")) {
    const number = text.trim() === "" ? Number.NaN : Number(text);
    if (Number.isFinite(number)) return number;
  }
  if (allowed.includes("string")) return text;
  const value = parsedJson(text);
  if (allowed.includes("array") && Array.isArray(value)) return value;
  if (allowed.includes("object") && isTree(value)) return value;
  return undefined;
}

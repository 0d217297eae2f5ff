/**
 * Parses the words after a command's name. One table for each command defines parsing, help and suggestions. This file has no code for any
 * particular command.
 *
 * - `parseOptions` returns `--section.key=value` as text; the config's schema gives it a type (presets.ts).
 * - An unknown, missing or ill-typed option is a `UsageError`: one line, exit code 2.
 */
import { parseArgs } from "node:util";
import { didYouMean, nearest } from "../../envs/text/nearest.ts";
import { COMMANDS } from "./commands.ts";
import { isPackage } from "./install.ts";

export interface Flag {
  /** A flag of type "list" may occur several times, and all its values count. For the other types only the last value counts. */
  readonly type: "text" | "number" | "count" | "positive" | "port" | "switch" | "list";
  /** Placeholder in help: "FILE", "N". */
  readonly value?: string;
  readonly text: string;
  /** The config key that the flag abbreviates: `--updates 5` is `--learner.updates=5`. */
  readonly key?: string;
}

const flagOf =
  <T extends Exclude<Flag["type"], "switch">>(type: T) =>
  (value: string, text: string, key?: string) => ({ type, value, text, ...(key !== undefined && { key }) });

/** Flags by type. Their arguments are the `value`, `text` and `key` of `Flag`. */
export const flag = {
  text: flagOf("text"),
  number: flagOf("number"),
  count: flagOf("count"),
  positive: flagOf("positive"),
  port: flagOf("port"),
  list: flagOf("list"),
  switch: (text: string) => ({ type: "switch", text }) as const,
};

/** A command without its name, which is the name of its file. */
export interface Command {
  readonly flags: Readonly<Record<string, Flag>>;
  readonly examples: readonly string[];
  /**
   * Arguments that are not flags: their placeholder and text in the help, and their maximum number. If omitted, the command takes no such
   * arguments.
   */
  readonly words?: { readonly show: string; readonly text: string; readonly max: number };
  /** True if the arguments go to another program: all of them are words. */
  readonly passesOn?: true;
  /** Present if the command takes `--section.key=value`. `nearest` suggests a key for a mistyped key without a dot. */
  readonly overrides?: { nearest(path: string): string | null };
  /** The keys that `--section.key=value` may set, for the help. If omitted, the flag may set every key of the config. */
  readonly keys?: string;
}

interface Values {
  readonly text: string;
  readonly number: number;
  readonly count: number;
  readonly positive: number;
  readonly port: number;
  readonly switch: boolean;
  readonly list: readonly string[];
}
type ValueOf<F extends Flag> = Values[F["type"]];

export type FlagValues<F extends Readonly<Record<string, Flag>>> = { readonly [K in keyof F]?: ValueOf<F[K]> };

export interface Parsed<C extends Command> {
  readonly flags: FlagValues<C["flags"]>;
  readonly words: readonly string[];
  /** In the order of the command line. */
  readonly overrides: readonly Override[];
}

export interface Override {
  readonly path: string;
  readonly text: string;
  /** The flag and its value, for error messages. */
  readonly source: string;
}

export class UsageError extends Error {
  override readonly name = "UsageError";
}

/** @throws {UsageError} for the first option that the command does not take. */
export function parseOptions<const C extends Command>(name: string, command: C, args: readonly string[]): Parsed<C> {
  if (command.passesOn) return { flags: {}, words: args, overrides: [] };
  const { tokens } = parseArgs({
    args: [...args],
    options: Object.fromEntries(
      Object.entries(command.flags).map(([key, { type }]) => [key, { type: type === "switch" ? "boolean" : "string" }]),
    ),
    strict: false,
    tokens: true,
  });
  const flags: Record<string, Values[keyof Values]> = {};
  const words: string[] = [];
  const overrides: Override[] = [];
  for (const token of tokens) {
    if (token.kind === "option-terminator") continue;
    if (token.kind === "positional") {
      words.push(token.value);
      continue;
    }
    const { name: key, rawName, inlineValue } = token;
    const flag = Object.hasOwn(command.flags, key) ? command.flags[key] : undefined;
    if (flag !== undefined) {
      // In "--run-dir --smoke" the second word is a flag, not a folder.
      const isNextFlag = inlineValue === false && token.value.startsWith("--");
      const value = flagValue(rawName, flag, isNextFlag ? undefined : token.value);
      flags[key] = flag.type === "list" ? [...((flags[key] as string[]) ?? []), String(value)] : value;
      if (flag.key !== undefined) {
        overrides.push({ path: flag.key, text: String(value), source: `${rawName} ${value}` });
      }
    } else if (command.overrides && key.includes(".")) {
      if (token.value === undefined) throw new UsageError(`${rawName} needs a value: write ${rawName}=VALUE`);
      overrides.push({ path: key, text: token.value, source: `${rawName}=${token.value}` });
    } else {
      throw new UsageError(`${name} has no flag ${rawName}${flagHint(command, key)}`);
    }
  }
  const max = command.words?.max ?? 0;
  if (words.length > max) {
    const allowed = max === 0 ? "takes flags only" : `takes at most ${max} (${command.words!.show})`;
    throw new UsageError(`${name} does not understand "${words[max]}": it ${allowed}`);
  }
  return { flags: flags as Parsed<C>["flags"], words, overrides };
}

/** @throws {UsageError} for the first setting whose path does not match `taken`. @param why  the reason in the error */
export function expectOnly(taken: RegExp, overrides: readonly Override[], why: string): void {
  const other = overrides.find(({ path }) => !taken.test(path));
  if (other !== undefined) throw new UsageError(`${other.source}: ${why}; leave it out`);
}

const NUMBERS = {
  number: { is: Number.isFinite, words: "number" },
  count: { is: (n: number) => Number.isSafeInteger(n) && n >= 0, words: "whole number, 0 or more" },
  positive: { is: (n: number) => Number.isSafeInteger(n) && n >= 1, words: "whole number, 1 or more" },
  port: { is: (n: number) => Number.isInteger(n) && n >= 0 && n <= 65_535, words: "number from 0 to 65535" },
};

function flagValue(name: string, flag: Flag, value: string | undefined): string | number | boolean {
  if (flag.type === "switch") {
    if (value !== undefined) throw new UsageError(`${name} takes no value, got "${value}"`);
    return true;
  }
  if (value === undefined || value === "") {
    throw new UsageError(`${name} needs a value: write ${name} ${flag.value ?? "VALUE"}`);
  }
  if (flag.type === "text" || flag.type === "list") return value;
  const number = Number(value);
  const { is, words } = NUMBERS[flag.type];
  if (value.trim() === "" || !is(number)) throw new UsageError(`${name} takes a ${words}, got "${value}"`);
  return number;
}

function flagHint(command: Command, name: string): string {
  const flags = [...Object.keys(command.flags), "help", "verbose"];
  const key = command.overrides?.nearest(name) ?? null;
  // The nearest key may be a section with exactly the typed name, such as `model`. A section is not a useful suggestion.
  const other = key === name ? null : key;
  const near = nearest(name, flags) ?? flags.find((flag) => flag.startsWith(`${name}-`)) ?? other;
  return near === null ? "; `--help` lists its flags" : didYouMean(`--${near}`);
}

export function helpText(name: string, command: Command): string {
  const rows: [string, string][] = Object.entries(command.flags).map(([key, flag]) => [
    flag.type === "switch" ? `--${key}` : `--${key} ${flag.value ?? "VALUE"}`,
    flag.text,
  ]);
  if (command.words !== undefined) rows.unshift([command.words.show, command.words.text]);
  if (command.overrides)
    rows.push(["--section.key=VALUE", command.keys ?? "Any config key; `bun run config` lists them"]);
  rows.push(["--help", "Print this page"], ["--verbose", "Print the stack of an error"]);
  const width = Math.max(...rows.map(([left]) => left.length));
  const page = [
    `bun run ${name}: ${COMMANDS[name]}`,
    "",
    ...rows.map(([left, right]) => `  ${left.padEnd(width)}  ${right}`),
    "",
    "Examples:",
    ...command.examples.map((example) => `  ${example}`),
  ].join("\n");
  return isPackage ? page.replaceAll("bun run ", "bunx bunraku ") : page;
}

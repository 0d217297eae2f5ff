/**
 * What a person types after a command's name. One table per command gives parsing, help and suggestions.
 * Knows no command; `--section.key=value` is handed on as text, to be typed by the config's schema (presets.ts).
 *
 * Anything unknown, missing or ill-typed is a `UsageError`: one line, exit code 2.
 */
import { parseArgs } from "node:util";
import { didYouMean, nearest } from "../../envs/text/nearest.ts";
import { COMMANDS, type CommandName } from "./commands.ts";

export interface Flag {
  /** A list is a text for each time that the flag is given; of any other, the last one holds. */
  readonly type: "text" | "number" | "count" | "switch" | "list";
  /** Placeholder in help: "FILE", "N". */
  readonly value?: string;
  readonly text: string;
  /** The config key that the flag is short for: `--updates 5` is `--learner.updates=5`. */
  readonly key?: string;
}

export interface Command {
  readonly name: CommandName;
  readonly flags: Readonly<Record<string, Flag>>;
  readonly examples: readonly string[];
  /** Words besides flags: how help shows them, and the most there may be. None if left out. */
  readonly words?: { readonly show: string; readonly text: string; readonly max: number };
  /** Left out if `--section.key=value` is not taken; else it knows which key a mistyped one may have meant. */
  readonly overrides?: { nearest(path: string): string | null };
}

interface Values {
  readonly text: string;
  readonly number: number;
  readonly count: number;
  readonly switch: boolean;
  readonly list: readonly string[];
}
type ValueOf<F extends Flag> = Values[F["type"]];

export interface Parsed<C extends Command> {
  readonly flags: { readonly [K in keyof C["flags"]]?: ValueOf<C["flags"][K]> };
  readonly words: readonly string[];
  /** In the order given. `source` is what was typed. */
  readonly overrides: readonly Override[];
}

export interface Override {
  readonly path: string;
  readonly text: string;
  readonly source: string;
}

export class UsageError extends Error {
  override readonly name = "UsageError";
}

/** @throws {UsageError} for the first thing that the command does not take. */
export function parseOptions<const C extends Command>(command: C, args: readonly string[]): Parsed<C> {
  const { tokens } = parseArgs({
    args: [...args],
    options: Object.fromEntries(
      Object.entries(command.flags).map(([name, { type }]) => [
        name,
        { type: type === "switch" ? "boolean" : "string" },
      ]),
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
    const flag = Object.hasOwn(command.flags, token.name) ? command.flags[token.name] : undefined;
    if (flag !== undefined) {
      const value = flagValue(token.rawName, flag, token.value);
      flags[token.name] = flag.type === "list" ? [...((flags[token.name] as string[]) ?? []), String(value)] : value;
      if (flag.key !== undefined) {
        overrides.push({ path: flag.key, text: String(value), source: `${token.rawName} ${value}` });
      }
    } else if (command.overrides && token.name.includes(".")) {
      if (token.value === undefined)
        throw new UsageError(`${token.rawName} needs a value: write ${token.rawName}=VALUE`);
      overrides.push({ path: token.name, text: token.value, source: `${token.rawName}=${token.value}` });
    } else {
      throw unknownFlag(command, token.rawName, token.name);
    }
  }
  checkWords(command, words);
  return { flags: flags as Parsed<C>["flags"], words, overrides };
}

function flagValue(name: string, flag: Flag, value: string | undefined): string | number | boolean {
  if (flag.type === "switch") {
    if (value !== undefined) throw new UsageError(`${name} takes no value, got "${value}"`);
    return true;
  }
  if (value === undefined || value === "")
    throw new UsageError(`${name} needs a value: write ${name} ${flag.value ?? "VALUE"}`);
  if (flag.type === "text" || flag.type === "list") return value;
  const number = Number(value);
  const good = flag.type === "count" ? Number.isSafeInteger(number) && number >= 0 : Number.isFinite(number);
  if (value.trim() === "" || !good) {
    throw new UsageError(
      `${name} takes a ${flag.type === "count" ? "whole number, 0 or more" : "number"}, got "${value}"`,
    );
  }
  return number;
}

function unknownFlag(command: Command, rawName: string, name: string): UsageError {
  const near = nearest(name, [...Object.keys(command.flags), "help"]) ?? command.overrides?.nearest(name) ?? null;
  return new UsageError(`${command.name} has no flag ${rawName}${didYouMean(near && `--${near}`)}`);
}

function checkWords(command: Command, words: readonly string[]): void {
  const max = command.words?.max ?? 0;
  if (words.length <= max) return;
  const taken = max === 0 ? "takes flags only" : `takes at most ${max} (${command.words!.show})`;
  throw new UsageError(`${command.name} does not understand "${words[max]}": it ${taken}`);
}

/** The command's page of help. */
export function helpText(command: Command): string {
  const rows: [string, string][] = Object.entries(command.flags).map(([name, flag]) => [
    flag.type === "switch" ? `--${name}` : `--${name} ${flag.value ?? "VALUE"}`,
    flag.text,
  ]);
  if (command.words !== undefined) rows.unshift([command.words.show, command.words.text]);
  if (command.overrides) rows.push(["--section.key=VALUE", "Any key of the config; `bun run config` lists them"]);
  rows.push(["--help", "This page"], ["--verbose", "With an error, also where in the code it came from"]);
  const width = Math.max(...rows.map(([left]) => left.length));
  return [
    `bun run ${command.name}: ${COMMANDS[command.name]}`,
    "",
    ...rows.map(([left, right]) => `  ${left.padEnd(width)}  ${right}`),
    "",
    "Examples:",
    ...command.examples.map((example) => `  ${example}`),
  ].join("\n");
}

/** True if help was asked for; then it has been printed, and the command is done. */
export function helped(command: Command, args: readonly string[]): boolean {
  if (!args.some((arg) => arg === "--help" || arg === "-h")) return false;
  console.log(helpText(command));
  return true;
}

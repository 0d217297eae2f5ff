/**
 * Reads the logs of other trainers: TRL's trainer_state.json, TensorBoard event files, CSV and JSON Lines, as W&B and verl write them.
 * This file does not interpret the metrics.
 *
 * - If a trainer is still writing or was killed, the last line or record may be incomplete. The reader leaves out this line or record. (In a CSV
 *   file, a last line without a line break is incomplete if it lacks cells.)
 */
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { basename, join } from "node:path";
import { isTree } from "../../actors/config/layers.ts";
import { messageOf } from "../../actors/errors.ts";
import { scalarsOf } from "../../actors/record/tensorboard.ts";
import { firstRepeated } from "../../envs/text/repeats.ts";
import { UsageError } from "../cli/options.ts";

const LOG_BYTES_MAX = 512 * 2 ** 20;

export interface Log {
  /** The kind of the file, as the report prints it. */
  readonly kind: string;
  /** Values by step and name; all are finite. */
  readonly steps: ReadonlyMap<number, ReadonlyMap<string, number>>;
  /** Values that were NaN or infinite, and are left out. */
  readonly notFinite: number;
}

const EVENT_FILE = /tfevents/;
const STEPS = ["step", "_step", "global_step", "training/global_step", "train/global_step", "trainer/global_step"];

/** @throws {UsageError} if there is nothing at this path, or nothing that can be read as a log */
export function readLog(path: string): Log {
  if (!existsSync(path)) throw new UsageError(`no run and no log at ${path}`);
  const log = new LogBuilder();
  try {
    if (statSync(path).isDirectory()) return ofFolder(path, log);
    const name = basename(path);
    if (EVENT_FILE.test(name)) return ofEvents([path], log);
    const text = new TextDecoder().decode(bytesOf(path));
    if (name.endsWith(".csv")) return ofCsv(text, log);
    if (name.endsWith(".jsonl")) return ofJsonLines(text, log);
    if (name.endsWith(".json")) return ofTrainerState(text, log);
  } catch (error) {
    throw new UsageError(`cannot read the log ${path}: ${messageOf(error)}`);
  }
  throw new UsageError(
    `${path} is not a log that diagnose can read: trainer_state.json, .csv, .jsonl or a TensorBoard event file`,
  );
}

function bytesOf(path: string): Uint8Array {
  const { size } = statSync(path);
  if (size > LOG_BYTES_MAX) throw new Error(`it has ${size} bytes; the limit is ${LOG_BYTES_MAX}`);
  return readFileSync(path);
}

function ofFolder(path: string, log: LogBuilder): Log {
  const state = join(path, "trainer_state.json");
  if (existsSync(state)) return ofTrainerState(new TextDecoder().decode(bytesOf(state)), log);
  const events = readdirSync(path).filter((name) => EVENT_FILE.test(name));
  const paths = events.sort().map((name) => join(path, name));
  if (paths.length > 0) return ofEvents(paths, log);
  throw new Error("the folder has no run.sqlite, no trainer_state.json and no TensorBoard event file");
}

/** The state of Hugging Face's Trainer, which TRL extends: `log_history` is a list of {step, name: value}. */
function ofTrainerState(text: string, log: LogBuilder): Log {
  const state = pythonJson(text);
  const history = isTree(state) ? state["log_history"] : undefined;
  if (!Array.isArray(history)) throw new Error("it has no log_history; give TRL's trainer_state.json");
  for (const entry of history) if (isTree(entry)) log.addRow(entry);
  return log.finish("TRL's trainer_state.json");
}

/** Python's `json` also writes NaN and Infinity, which JSON lacks. */
function pythonJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // Text, such as a prompt that the log quotes, stays as it is.
    const tokens = /"(?:[^"\\]|\\.)*"|-?Infinity|NaN/g;
    return JSON.parse(text.replaceAll(tokens, (token) => (token.startsWith('"') ? token : '"NaN"')));
  }
}

function ofEvents(paths: readonly string[], log: LogBuilder): Log {
  for (const path of paths) {
    for (const { step, tag, value } of scalarsOf(bytesOf(path))) log.add(step, tag, value);
  }
  return log.finish("TensorBoard event files");
}

/** A line is {step, name: value} (W&B's history), or {step, data: {name: value}} (verl's file logger). */
function ofJsonLines(text: string, log: LogBuilder): Log {
  const lines = text.split("\n");
  for (const [i, line] of lines.entries()) {
    if (line.trim() === "") continue;
    let row: unknown;
    try {
      row = pythonJson(line);
    } catch {
      if (i === lines.length - 1) break;
      throw new Error(`line ${i + 1} is not JSON`);
    }
    if (!isTree(row)) throw new Error(`line ${i + 1} is not an object`);
    const { data, ...others } = row;
    log.addRow(isTree(data) ? { ...others, ...data } : row);
  }
  return log.finish("JSON Lines");
}

/** A column for each metric. An export of W&B's page names a column "RUN - METRIC", with "…__MIN" and "…__MAX" beside it. */
function ofCsv(text: string, log: LogBuilder): Log {
  const [head, ...rows] = csvRows(text);
  if (head === undefined) throw new Error("it is empty");
  const columns = head.map((name) => name.replace(/^.* - (?=\S+$)/, ""));
  const repeated = firstRepeated(columns);
  if (repeated !== undefined) throw new Error(`it has several columns of ${repeated}; export one run`);
  const isCut = !text.endsWith("\n") && (rows.at(-1)?.length ?? 0) < head.length;
  for (const cells of isCut ? rows.slice(0, -1) : rows) {
    log.addRow(Object.fromEntries(columns.map((name, i) => [name, cells[i] ?? ""])));
  }
  return log.finish("CSV");
}

/** The rows of a CSV file (RFC 4180). */
function csvRows(text: string): string[][] {
  const rows: string[][] = [];
  let row: string[] = [];
  for (const [, quoted, plain, end] of text.matchAll(/(?:"((?:[^"]|"")*)"|([^",\r\n][^,\r\n]*|))(,|\r?\n|$)/g)) {
    row.push(quoted === undefined ? plain! : quoted.replaceAll('""', '"'));
    if (end === ",") continue;
    if (row.length > 1 || row[0] !== "") rows.push(row);
    row = [];
  }
  return rows;
}

const isBlank = (value: unknown): boolean => value == null || (typeof value === "string" && value.trim() === "");

/** A number as text; "nan" and "inf" are numbers that are not finite. */
const NUMBER = /^\s*[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|nan|inf(?:inity)?)\s*$/i;

class LogBuilder {
  #stepKey: string | null | undefined;
  readonly #steps = new Map<number, Map<string, number>>();
  #notFinite = 0;

  /** Leaves out a value that is not finite, and counts it. If a step is repeated, its last finite value counts. */
  add(step: number, name: string, value: number): void {
    if (!Number.isFinite(value)) {
      this.#notFinite++;
      return;
    }
    this.#steps.getOrInsertComputed(step, () => new Map()).set(name, value);
  }

  /** Leaves out text that is no number. */
  addRow(row: Readonly<Record<string, unknown>>): void {
    // The first row decides, so that one log has one kind of step.
    this.#stepKey ??=
      STEPS.flatMap((step) => Object.keys(row).filter((name) => name.toLowerCase() === step))[0] ?? null;
    const key = this.#stepKey;
    if (key === null) throw new Error(`it has no column of steps (${STEPS.join(", ")})`);
    const step = isBlank(row[key]) ? Number.NaN : Number(row[key]);
    if (!Number.isFinite(step)) throw new Error(`its step ${JSON.stringify(row[key]) ?? "(none)"} is not a number`);
    for (const [name, value] of Object.entries(row)) {
      if (name === key || (typeof value !== "number" && typeof value !== "string")) continue;
      if (typeof value === "number" || NUMBER.test(value)) this.add(step, name, Number(value));
    }
  }

  finish(kind: string): Log {
    if (this.#steps.size === 0) throw new Error("it holds no numbers");
    return { kind, steps: new Map([...this.#steps].sort(([a], [b]) => a - b)), notFinite: this.#notFinite };
  }
}

/** Observes a run from outside: its growing log, its living processes, and its files in shared memory. */
import { closeSync, existsSync, openSync, readdirSync, readSync, statSync } from "node:fs";
import { parsedJson } from "../../actors/checkpoint/json.ts";
import { runningSince } from "../../actors/weights/files.ts";

export interface LogEntry {
  readonly kind: string;
  readonly text?: string;
  readonly child?: string;
  readonly pid?: number;
}

/** Reads a log that grows. Each `read` adds the new lines to `entries`. */
export class LogTail {
  readonly #path: string;
  readonly entries: LogEntry[] = [];
  /** Bytes of the log that `entries` already has. */
  #offset = 0;

  constructor(path: string) {
    this.#path = path;
  }

  read(): void {
    // Most reads find nothing new.
    const size = statSync(this.#path, { throwIfNoEntry: false })?.size ?? 0;
    if (size <= this.#offset) return;
    const bytes = Buffer.alloc(size - this.#offset);
    const file = openSync(this.#path, "r");
    readSync(file, bytes, 0, bytes.length, this.#offset);
    closeSync(file);
    const end = bytes.lastIndexOf("\n") + 1;
    this.#offset += end;
    for (const line of bytes.toString("utf8", 0, end).split("\n").slice(0, -1)) this.#parse(line);
  }

  /** A killed supervisor may leave half a line in the log. The first line of the next supervisor then follows on the same line. */
  #parse(line: string): void {
    const entry = parsedJson(line);
    const whole = line.indexOf('{"', 1);
    if (entry !== undefined) this.entries.push(entry as LogEntry);
    else if (whole !== -1) this.#parse(line.slice(whole));
  }
}

/** True while the process runs; false for a zombie. */
export const isAlive = (pid: number): boolean => runningSince(pid) !== null;

/** Files of a run's weights that are still in shared memory. */
export const weightFiles = (run: string): string[] =>
  existsSync("/dev/shm") ? readdirSync("/dev/shm").filter((name) => name.startsWith(`bunraku-${run}-`)) : [];

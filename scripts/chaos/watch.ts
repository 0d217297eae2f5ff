/** Observes a run from outside: its growing log, its living processes, and its files in shared memory. */
import { closeSync, existsSync, openSync, readdirSync, readSync, statSync } from "node:fs";
import { runningSince } from "../../actors/weights/files.ts";

export interface LogEntry {
  readonly kind: string;
  readonly text?: string;
  readonly child?: string;
  readonly pid?: number;
}

const CHUNK_BYTES = 1 << 16;

/** Reads a log that grows. Each `read` adds the new lines to `entries`. */
export class LogTail {
  readonly #path: string;
  readonly #decoder = new TextDecoder();
  readonly #bytes = new Uint8Array(CHUNK_BYTES);
  readonly entries: LogEntry[] = [];
  #offset = 0;
  #rest = "";

  constructor(path: string) {
    this.#path = path;
  }

  read(): void {
    // Most reads find nothing new.
    const size = statSync(this.#path, { throwIfNoEntry: false })?.size ?? 0;
    if (size <= this.#offset) return;
    const file = openSync(this.#path, "r");
    const bytes = this.#bytes;
    try {
      for (;;) {
        const count = readSync(file, bytes, 0, bytes.length, this.#offset);
        if (count === 0) return;
        this.#offset += count;
        const lines = (this.#rest + this.#decoder.decode(bytes.subarray(0, count), { stream: true })).split("\n");
        this.#rest = lines.pop()!;
        for (const line of lines) this.#parse(line);
      }
    } finally {
      closeSync(file);
    }
  }

  /** A killed supervisor may leave half a line in the log. The first line of the next supervisor then follows on the same line. */
  #parse(line: string): void {
    try {
      this.entries.push(JSON.parse(line) as LogEntry);
    } catch {
      const whole = line.indexOf('{"', 1);
      if (whole !== -1) this.#parse(line.slice(whole));
    }
  }
}

/** True while the process runs; false for a zombie. */
export const isAlive = (pid: number): boolean => runningSince(pid) !== null;

/** Files of a run's weights that are still in shared memory. */
export const weightFiles = (run: string): string[] =>
  existsSync("/dev/shm") ? readdirSync("/dev/shm").filter((name) => name.startsWith(`bunraku-${run}-`)) : [];

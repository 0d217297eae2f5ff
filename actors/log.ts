/**
 * What an actor writes for people and machines: one JSON object per line. Knows neither files nor terminals.
 *
 * - No line holds a secret: each secret given at the start is replaced wherever it would appear.
 * - No line is longer than a pipe takes in one piece, so lines of different processes never mix.
 */
export const LEVELS = ["debug", "info", "warning", "error"] as const;
export type Level = (typeof LEVELS)[number];

/** Further facts of a line, by name. */
export type Fields = Readonly<Record<string, string | number | boolean | null>>;
type Write = (kind: string, text: string, fields?: Fields) => void;

/** `kind` is for programs ("peer.lost"), `text` for people. */
export type Log = Readonly<Record<Level, Write>>;

export interface LogOptions {
  readonly actor: string;
  /** Lines below this level are not written. */
  readonly level: Level;
  /** Strings that must never be written, such as tokens. */
  readonly secrets: readonly string[];
  /** Takes one line with its newline. */
  readonly write: (line: string) => void;
  /** Time of day, for the reader of the log. */
  readonly date: () => Date;
}

/** What a pipe takes in one piece. */
const LINE_BYTES = 4096;

/** Characters of a text: as many of `most` as its line has room for, and no text is cut to fewer than `least`. */
const TEXT = { most: 3000, least: 100 };

export function makeLog({ actor, level: lowest, secrets, write, date }: LogOptions): Log {
  const hidden = secrets.filter((secret) => secret !== "");
  const safe = (text: string) => hidden.reduce((rest, secret) => rest.replaceAll(secret, "(hidden)"), text);
  const at =
    (level: Level): Write =>
    (kind, text, fields = {}) => {
      if (LEVELS.indexOf(level) < LEVELS.indexOf(lowest)) return;
      const entry = { time: date().toISOString(), level, actor, kind, text, ...fields };
      let line: string;
      let max = TEXT.most;
      do {
        const shown = (_: string, value: unknown) => (typeof value === "string" ? cut(safe(value), max) : value);
        line = `${JSON.stringify(entry, shown)}\n`;
        max /= 2;
      } while (Buffer.byteLength(line) > LINE_BYTES && max >= TEXT.least);
      write(line);
    };
  return { debug: at("debug"), info: at("info"), warning: at("warning"), error: at("error") };
}

function cut(text: string, max: number): string {
  return text.length <= max ? text : `${text.slice(0, max)}… (${text.length} characters)`;
}

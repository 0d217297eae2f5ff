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

/** Characters of one text; a pipe takes 4096 bytes in one piece. */
const TEXT_MAX = 3000;

export function makeLog({ actor, level: lowest, secrets, write, date }: LogOptions): Log {
  const hidden = secrets.filter((secret) => secret !== "").map((secret) => JSON.stringify(secret).slice(1, -1));
  const at =
    (level: Level): Write =>
    (kind, text, fields = {}) => {
      if (LEVELS.indexOf(level) < LEVELS.indexOf(lowest)) return;
      const shown = text.length <= TEXT_MAX ? text : `${text.slice(0, TEXT_MAX)}… (${text.length} characters)`;
      const line = JSON.stringify({ time: date().toISOString(), level, actor, kind, text: shown, ...fields });
      write(`${hidden.reduce((safe, secret) => safe.replaceAll(secret, "(hidden)"), line)}\n`);
    };
  return { debug: at("debug"), info: at("info"), warning: at("warning"), error: at("error") };
}

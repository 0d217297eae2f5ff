/**
 * An actor's log: one JSON object per line. `LogOptions.write` takes the lines.
 *
 * - No line holds a secret: "(hidden)" replaces each secret.
 * - The log cuts long texts, so that a pipe takes each line in one piece and lines of different processes do not mix.
 */
export const LEVELS = ["debug", "info", "warning", "error"] as const;
export type Level = (typeof LEVELS)[number];

type Fields = Readonly<Record<string, string | number | boolean | null>>;
type Write = (kind: string, text: string, fields?: Fields) => void;

/** `kind` is for programs ("peer.lost"), `text` for people. */
export type Log = Readonly<Record<Level, Write>>;

export interface LogOptions {
  readonly actor: string;
  /** The log drops lines below this level. */
  readonly level: Level;
  /** Strings that the log must not write, such as tokens. */
  readonly secrets: readonly string[];
  readonly write: (line: string) => void;
  readonly date: () => Date;
}

/** Maximum number of bytes that a pipe takes in one piece. */
const LINE_BYTES = 4096;

/** The log cuts the texts of a line to `max` characters. It halves this limit, but not below `min`, until the line fits `LINE_BYTES`. */
const TEXT_CHARACTERS = { max: 3000, min: 100 };

export function makeLog({ actor, level: lowest, secrets, write, date }: LogOptions): Log {
  const hidden = secrets.filter((secret) => secret !== "");
  const withoutSecrets = (text: string) => hidden.reduce((rest, secret) => rest.replaceAll(secret, "(hidden)"), text);
  const at =
    (level: Level): Write =>
    (kind, text, fields = {}) => {
      if (LEVELS.indexOf(level) < LEVELS.indexOf(lowest)) return;
      const entry = { time: date().toISOString(), level, actor, kind, text, ...fields };
      let line: string;
      let max = TEXT_CHARACTERS.max;
      do {
        const shorten = (_: string, value: unknown) =>
          typeof value === "string" ? cut(withoutSecrets(value), max) : value;
        line = `${JSON.stringify(entry, shorten)}\n`;
        max /= 2;
      } while (Buffer.byteLength(line) > LINE_BYTES && max >= TEXT_CHARACTERS.min);
      write(line);
    };
  return { debug: at("debug"), info: at("info"), warning: at("warning"), error: at("error") };
}

function cut(text: string, max: number): string {
  return text.length <= max ? text : `${text.slice(0, max)}… (${text.length} characters)`;
}

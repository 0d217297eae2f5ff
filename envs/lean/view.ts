/**
 * The observation of a proof: the statement, the code, the last steps and Lean's messages. Long lines wrap as in Python's `textwrap`.
 * Source: RAGEN-2.
 */
import { isUnsolved, type LeanMessage } from "./kimina.ts";
import { linesOf } from "./theorem.ts";

export interface ProofView {
  readonly stepsMax: number;
  readonly informal: string;
  /** The theorem as Lean code, with the accepted tactics. */
  readonly code: string;
  readonly log: readonly { readonly action: string; readonly accepted: boolean }[];
  /** The verdict of the last step; null before the first step. */
  readonly verdict: { readonly accepted: boolean; readonly messages: readonly LeanMessage[] } | null;
  /** Maximum number of characters shown of each message; 0 shows all. */
  readonly messageCharactersMax: number;
}

const LINE_MAX = 88;
const CODE_LINES_MAX = 40;
const LOG_STEPS_MAX = 5;

export function proofText(view: ProofView): string {
  const { stepsMax, informal, code, log, verdict } = view;
  const accepted = log.filter((step) => step.accepted).length;
  const lines = [
    `Steps taken: ${log.length}/${stepsMax} | accepted tactics: ${accepted}`,
    "",
    "Informal statement:",
    ...(informal === "" ? ["  (not provided)"] : wrapped(informal, LINE_MAX).map((line) => `  ${line}`)),
    "",
    "Proof transcript:",
    ...codeLines(code).map((line) => `  ${line}`),
  ];
  if (log.length > 0) lines.push("", "Proof log (latest 5 steps):", ...logLines(log));
  if (verdict !== null) {
    lines.push("", "Last Lean feedback:", `  accepted: ${verdict.accepted ? "True" : "False"}`, "  messages:");
    lines.push(...messageLines(verdict.messages, view.messageCharactersMax));
  }
  return lines.join("\n");
}

function codeLines(code: string): string[] {
  const lines = linesOf(code.replace(/\n+$/, ""));
  if (lines.length === 0) return ["(empty proof)"];
  const from = Math.max(0, lines.length - CODE_LINES_MAX);
  const width = Math.max(3, String(lines.length).length);
  const shown = lines.slice(from).map((line, i) => `${String(from + i + 1).padStart(width)} | ${line}`);
  return from === 0 ? shown : [`... (${from} earlier lines omitted)`, ...shown];
}

function logLines(log: ProofView["log"]): string[] {
  const from = Math.max(0, log.length - LOG_STEPS_MAX);
  const shown = log.slice(from).map(({ action, accepted }, i) => {
    return `  ${twoDigits(from + i + 1)}. ${action} [${accepted ? "✓ accepted" : "✗ rejected"}]`;
  });
  return from === 0 ? shown : [`  ... (${from} earlier steps omitted)`, ...shown];
}

function messageLines(messages: readonly LeanMessage[], charactersMax: number): string[] {
  if (messages.length === 0) return ["(no Lean messages)"];
  return messages.map((message, i) => {
    const { severity, pos, endPos } = message;
    const data = charactersMax === 0 ? message.data : cut(message.data.trim(), charactersMax);
    const error = severity.toLowerCase() === "error";
    const kind = error && isUnsolved({ ...message, data }) ? "UNSOLVED GOALS" : severity.toUpperCase();
    const places = [pos, endPos].filter((place) => place !== null && place !== undefined);
    const place = places.map(({ line, column }) => (column == null ? `${line}` : `${line}:${column}`)).join(" → ");
    return `${twoDigits(i + 1)}. [${kind}${place === "" ? "" : ` ${place}`}] ${data}`.trimEnd();
  });
}

const twoDigits = (index: number): string => String(index).padStart(2, "0");

/** Counts characters as Python does. */
function cut(text: string, max: number): string {
  const characters = [...text];
  return characters.length <= max ? text : `${characters.slice(0, Math.max(0, max - 3)).join("")}...`;
}

const WORD = "[\\p{L}\\p{N}_]";
const PUNCTUATED = "[\\p{L}\\p{N}_!\"'&.,?]";
const LETTER = "[\\p{L}\\p{Nl}\\p{No}_]";
const SPACE = "[\\t\\n\\v\\f\\r ]";
const OTHER = "[^\\t\\n\\v\\f\\r ]";

/** Spaces; dashes between words; words up to their next hyphen or end. Source: CPython Lib/textwrap.py. */
const CHUNK = new RegExp(
  `(${SPACE}+|(?<=${PUNCTUATED})-{2,}(?=${WORD})|${OTHER}+?(?:` +
    `-(?:(?<=${LETTER}{2}-)|(?<=${LETTER}-${LETTER}-))(?=${LETTER}-?${LETTER})` +
    `|(?=${SPACE}|$)|(?<=${PUNCTUATED})(?=-{2,}${WORD})))`,
  "u",
);

/** Python's `textwrap.wrap`: wraps words and hyphenated parts into lines of at most `width` characters. */
export function wrapped(text: string, width: number): string[] {
  const plain = withoutTabs(text).replaceAll(/[\t\n\v\f\r]/g, " ");
  const chunks = plain
    .split(CHUNK)
    .filter((chunk) => chunk !== "")
    .map((chunk) => [...chunk]);
  const lines: string[] = [];
  let next = 0;
  while (next < chunks.length) {
    if (lines.length > 0 && isBlank(chunks[next]!)) next++;
    const line: string[][] = [];
    let length = 0;
    while (next < chunks.length && length + chunks[next]!.length <= width) {
      line.push(chunks[next]!);
      length += chunks[next++]!.length;
    }
    const long = chunks[next];
    if (long !== undefined && long.length > width) {
      const cut = hyphenBefore(long, width - length);
      line.push(long.slice(0, cut));
      chunks[next] = long.slice(cut);
    }
    if (line.length > 0 && isBlank(line.at(-1)!)) line.pop();
    if (line.length > 0) lines.push(line.flat().join(""));
  }
  return lines;
}

/**
 * The index at which to break a word that is too long: after the word's last hyphen among its first `room` characters, or at `room` if there is
 * no such hyphen.
 */
function hyphenBefore(word: readonly string[], room: number): number {
  const hyphen = room < 1 ? -1 : word.slice(0, room).lastIndexOf("-");
  return hyphen > 0 && word.slice(0, hyphen).some((character) => character !== "-") ? hyphen + 1 : room;
}

const isBlank = (chunk: readonly string[]): boolean => chunk.every((character) => character === " ");

/** Expands tabs to columns of eight. */
function withoutTabs(text: string): string {
  let column = 0;
  let out = "";
  for (const character of text) {
    const spaces = character === "\t" ? 8 - (column % 8) : 0;
    out += character === "\t" ? " ".repeat(spaces) : character;
    column = character === "\n" || character === "\r" ? 0 : column + (spaces || 1);
  }
  return out;
}

/** Python's `textwrap.wrap`: wraps words and hyphenated parts into lines of at most `width` characters. */

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

/** Where to break a word that is too long: after its last hyphen within `room`, else at `room`. */
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

/**
 * Makes text of a model or an env readable and harmless. Runs in the browser, in commands and in tests.
 *
 * - The page puts these strings into text nodes only, never into HTML.
 * - Visible codes replace characters that move or hide text (controls, ANSI escapes, bidirectional marks, zero width).
 */

/** Maximum number of UTF-16 units of a text that the page shows. /api/episodes/ID has the whole text. */
const SHOWN_MAX = 4000;

// Controls, formats (bidirectional, zero width, tags), line and paragraph separators, unpaired surrogates. \n and \t stay.
const HIDDEN = /(?![\n\t])[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;

/** "\u001b[31m" becomes "‹1B›[31m". */
export function visible(text: string): string {
  const shown = text.replace(HIDDEN, (char) => `‹${char.codePointAt(0)!.toString(16).toUpperCase().padStart(2, "0")}›`);
  if (shown.length <= SHOWN_MAX) return shown;
  // Remove the first half of a character of two units, if the cut left it.
  const kept = shown.slice(0, SHOWN_MAX).replace(/[\uD800-\uDBFF]$/, "");
  const hiddenCount = shown.length - kept.length;
  return `${kept} … and ${hiddenCount.toLocaleString("en")} more characters`;
}

/** The thought and the answer of a reply, for display; null if the reply has none. The env's parser decides what counts as an answer. */
export function splitReply(reply: string): { readonly thought: string | null; readonly answer: string | null } {
  const within = (tag: string) => new RegExp(`<${tag}>(.*?)</${tag}>`, "s").exec(reply)?.[1]?.trim() ?? null;
  return { thought: within("think"), answer: within("answer") };
}

export type Block =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "board"; readonly rows: string[][] };

/** Minimum number of rows and columns of a grid that counts as a board. */
const BOARD_MIN = 3;
/** Maximum number of rows of a board, and of characters of a row. The page shows a larger grid as text. */
const BOARD_MAX = 80;

/** The cells of a line of a grid, such as "#_P#" or "# _ P #"; null if the line is no line of a grid. */
function cellsOf(line: string): string[] | null {
  const trimmed = line.trim();
  if (trimmed.length > BOARD_MAX || /[a-z]/.test(trimmed)) return null;
  const cells = /\s/.test(trimmed) ? trimmed.split(/\s+/) : [...trimmed];
  return cells.length >= BOARD_MIN && cells.every((cell) => [...cell].length === 1) ? cells : null;
}

/** Finds the boards in an observation. All lines of a board have the same number of cells. */
export function blocksOf(observation: string): Block[] {
  const blocks: Block[] = [];
  let words: string[] = [];
  const endWords = () => {
    const text = words.join("\n").trim();
    if (text !== "") blocks.push({ kind: "text", text });
    words = [];
  };
  const lines = observation.split("\n").map((line) => ({ line, cells: cellsOf(line) }));
  for (let at = 0; at < lines.length; ) {
    const width = lines[at]!.cells?.length;
    const end = lines.findIndex(({ cells }, i) => i > at && cells?.length !== width);
    const group = lines.slice(at, end === -1 ? lines.length : end);
    at += group.length;
    if (width !== undefined && group.length >= BOARD_MIN && group.length <= BOARD_MAX) {
      endWords();
      blocks.push({ kind: "board", rows: group.map(({ cells }) => cells!) });
    } else {
      words.push(...group.map(({ line }) => line));
    }
  }
  endWords();
  return blocks;
}

export const signed = (value: number): string => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;

/** 1234 is "1.2 kB". */
export function bytes(count: number): string {
  const units = ["B", "kB", "MB", "GB"];
  let unit = 0;
  let value = count;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit++;
  }
  return `${value.toFixed(unit === 0 || value >= 99.5 ? 0 : 1)} ${units[unit]}`;
}

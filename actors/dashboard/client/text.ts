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

export interface Reply {
  /** The thought; null if the reply has no <think>. */
  readonly thought: string | null;
  /** The answer; null if the reply has no whole <answer>…</answer>. */
  readonly answer: string | null;
  /** The whole unchanged reply, if the reply has no answer. */
  readonly raw: string | null;
}

/** Splits a reply for display. The env's parser decides what counts as an answer. */
export function splitReply(reply: string): Reply {
  const thought = /<think>(.*?)<\/think>/s.exec(reply)?.[1]?.trim() ?? null;
  const answer = /<answer>(.*?)<\/answer>/s.exec(reply)?.[1]?.trim() ?? null;
  return { thought, answer, raw: answer === null ? reply : null };
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
  let rows: string[][] = [];
  /** The unchanged lines of `rows`. */
  let lines: string[] = [];
  const endBoard = () => {
    if (rows.length >= BOARD_MIN && rows.length <= BOARD_MAX) {
      endWords();
      blocks.push({ kind: "board", rows });
    } else {
      words = words.concat(lines);
    }
    rows = [];
    lines = [];
  };
  const endWords = () => {
    const text = words.join("\n").trim();
    if (text !== "") blocks.push({ kind: "text", text });
    words = [];
  };
  for (const line of observation.split("\n")) {
    const cells = cellsOf(line);
    if (rows.length > 0 && cells?.length !== rows[0]!.length) endBoard();
    if (cells === null) {
      words.push(line);
    } else {
      rows.push(cells);
      lines.push(line);
    }
  }
  endBoard();
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

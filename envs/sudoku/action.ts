/** Parses a Sudoku move in RAGEN-2's six forms. Source: RAGEN-2 ragen/env/sudoku. */

import { asciiDigits } from "../text/numbers.ts";

/** A zero-based cell and its new value. */
export interface Placement {
  readonly row: number;
  readonly col: number;
  readonly value: number;
}

const FORMS = [
  /place\s+(\d+)\s+at\s+row\s+(\d+)\s+col\s+(\d+)/,
  /place\s+(\d+)\s+at\s+\((\d+),\s*(\d+)\)/,
  /place\s+(\d+)\s+at\s+(\d+),\s*(\d+)/,
  /(\d+)\s+at\s+(\d+),\s*(\d+)/,
  /\((\d+),\s*(\d+),\s*(\d+)\)/,
  /(\d+),\s*(\d+),\s*(\d+)/,
];

/** @returns the placement, or the error in RAGEN-2's words. */
export function parsePlacement(action: string, size: number): Placement | string {
  const text = action.trim().toLowerCase();
  const match = FORMS.map((form) => form.exec(asciiDigits(text))).find((found) => found !== null);
  if (match === undefined || match === null) {
    return `Could not parse action: '${text}'. Expected format: 'place 5 at row 2 col 3' or '2,3,5'`;
  }
  const numbers = match.slice(1).map(Number) as [number, number, number];
  const valueFirst = /place|at/.test(text);
  const [row, col, value] = valueFirst ? [numbers[1], numbers[2], numbers[0]] : numbers;
  for (const [name, number] of [
    ["Row", row],
    ["Column", col],
    ["Number", value],
  ] as const) {
    if (number < 1 || number > size) return `${name} ${number} is out of range (1-${size})`;
  }
  return { row: row - 1, col: col - 1, value };
}

/**
 * Renders boards as a grid of symbols or as coordinates. Knows no rules.
 * Source: RAGEN ragen/env/sokoban/env.py (render), whose coordinates omit the walls too.
 */
import { BOX, BOX_ON_TARGET, type Board, PLAYER, TARGET } from "./rules.ts";

/** The symbol's index for a player on a target. */
const PLAYER_ON_TARGET = 6;

/** The index of a cell's symbol. */
function shown(board: Board, cell: number): number {
  const code = board.state[cell]!;
  return code === PLAYER && board.fixed[cell] === TARGET ? PLAYER_ON_TARGET : code;
}

export function renderRow(board: Board, row: number, lookup: readonly string[]): string {
  let text = "";
  for (let cell = row * board.cols; cell < (row + 1) * board.cols; cell++) text += lookup[shown(board, cell)]!;
  return text;
}

export function renderGrid(board: Board, lookup: readonly string[]): string {
  return Array.from({ length: board.rows }, (_, row) => renderRow(board, row, lookup)).join("\n");
}

const NAMES: readonly (readonly [number, string])[] = [
  [BOX, "Boxes"],
  [BOX_ON_TARGET, "Boxes on target"],
  [PLAYER, "Player"],
  [PLAYER_ON_TARGET, "Player on target"],
];

/** `Targets` lists all of them, covered or not. */
export function renderCoordinates(board: Board): string {
  const lines = [`Board size: ${board.rows} rows x ${board.cols} cols (zero-indexed).`];
  const list = (name: string, holds: (cell: number) => boolean) => {
    const cells = [...board.state.keys()].filter(holds);
    const places = cells.map((cell) => `(${Math.floor(cell / board.cols)}, ${cell % board.cols})`);
    if (places.length > 0) lines.push(`${name}: ${places.join(", ")}`);
  };
  list("Targets", (cell) => board.fixed[cell] === TARGET);
  for (const [code, name] of NAMES) list(name, (cell) => shown(board, cell) === code);
  return lines.join("\n");
}

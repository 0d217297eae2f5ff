/** Renders a Sudoku board in RAGEN-2's `with_feedback` form. Knows no rules. */
import { candidatesOf, type Puzzle } from "./grid.ts";

/** Valid numbers are shown if at most this many cells are empty. */
const HINTED_CELLS_MAX = 10;

export function renderSudoku(
  puzzle: Puzzle,
  grid: readonly number[],
  feedback: string | null,
  steps: number,
  stepsMax: number,
): string {
  const { size, initial } = puzzle;
  const rule = "=".repeat(50);
  const given = initial.filter((value) => value !== 0).length;
  const filled = grid.filter((value) => value !== 0).length;
  return [
    rule,
    "SUDOKU PUZZLE",
    rule,
    ...board(puzzle, grid),
    "",
    "Legend: [N]=initial cell, N=user-placed, *N*=conflict, .=empty",
    "",
    ...(feedback === null ? [] : [feedback, ""]),
    ...hints(grid, size),
    `Progress: ${filled}/${grid.length} cells filled (${given} initial, ${filled - given} placed)`,
    `Steps: ${steps}/${stepsMax}`,
  ].join("\n");
}

function board({ size, initial }: Puzzle, grid: readonly number[]): string[] {
  const boxSize = Math.sqrt(size);
  const lines: string[] = [];
  for (let row = 0; row < size; row++) {
    if (row > 0 && row % boxSize === 0) lines.push("-".repeat(3 * size + boxSize - 1));
    let line = "";
    for (let col = 0; col < size; col++) {
      const cell = row * size + col;
      if (col > 0 && col % boxSize === 0) line += "| ";
      line += initial[cell] !== 0 ? `[${initial[cell]}]` : grid[cell] === 0 ? " . " : ` ${grid[cell]} `;
    }
    lines.push(line.trimEnd());
  }
  return lines;
}

function hints(grid: readonly number[], size: number): string[] {
  const empty = [...grid.keys()].filter((cell) => grid[cell] === 0);
  if (empty.length === 0 || empty.length > HINTED_CELLS_MAX) return [];
  const lines = empty.flatMap((cell) => {
    const valid = candidatesOf(grid, size, cell).join(", ");
    return valid === "" ? [] : [`  - (${Math.floor(cell / size) + 1},${(cell % size) + 1}): [${valid}]`];
  });
  return ["💡 VALID NUMBERS FOR EMPTY CELLS:", ...lines, ""];
}

/**
 * Sudoku: the game, its observations, and the parser of an action's words. The layout seed decides the puzzle; the dynamics are
 * deterministic.
 *
 * - Every action is a step, and the game ends after `maxSteps`. RAGEN-2 checks this limit only after a legal placement
 *   (`refusedEnd: false`), so a game of invalid actions never ends.
 *
 * Source: RAGEN-2 ragen/env/sudoku.
 */
import { z } from "zod";
import type { Effect, LanguageGame, Seeds } from "../env.ts";
import { asciiDigits } from "../text/numbers.ts";
import { candidatesOf, conflicts, generateSudoku, type Puzzle, type Unit } from "./grid.ts";

export const SudokuConfig = z.strictObject({
  gridSize: z.union([z.literal(4), z.literal(9), z.literal(16)]).default(9),
  maxSteps: z.int().positive().default(81),
  difficulty: z.enum(["easy", "medium", "hard"]).default("easy"),
  correctPlacementScore: z.number().default(1),
  invalidActionScore: z.number().default(-0.1),
  completionBonus: z.number().default(10),
  /** Makes a cell blank only if the solution stays unique; there may then be fewer blanks than `blankCount`. */
  unique: z.boolean().default(true),
  /** Check `maxSteps` after a refused action too. */
  refusedEnd: z.boolean().default(true),
});
export type SudokuConfig = z.infer<typeof SudokuConfig>;

/** Share of blank cells. */
const BLANK_SHARE = { easy: 0.4, medium: 0.5, hard: 0.6 } as const;
export const blankCount = ({ difficulty, gridSize }: SudokuConfig): number =>
  Math.floor(BLANK_SHARE[difficulty] * gridSize * gridSize);
/** A legal placement that differs from the solution earns this share of `correctPlacementScore`. */
const DIFFERENT_SCORE_SHARE = 0.5;

export class SudokuGame implements LanguageGame {
  readonly kind = "language";
  readonly puzzle: Puzzle;
  readonly #config: SudokuConfig;
  /** (size * size) the current board; 0 is empty. */
  readonly #grid: number[];
  #steps = 0;
  #feedback: string | null = null;
  #done = false;

  constructor(config: SudokuConfig, seeds: Seeds) {
    const size = config.gridSize;
    this.#config = config;
    this.puzzle = generateSudoku(size, blankCount(config), config.unique, seeds.layout);
    this.#grid = [...this.puzzle.initial];
  }

  /** The feedback on the last action; null before the first action. */
  get feedback(): string | null {
    return this.#feedback;
  }

  render(): string {
    return renderSudoku(this.puzzle, this.#grid, this.#feedback, this.#steps, this.#config.maxSteps);
  }

  act(action: string): Effect {
    if (this.#done) throw new Error("this Sudoku is over; open a new one");
    const placement = parsePlacement(action, this.#config.gridSize);
    if (typeof placement === "string") return this.#refuse(`Invalid action format: ${placement}`);
    const { row, col, value } = placement;
    const cell = row * this.#config.gridSize + col;
    const place = `(${row + 1},${col + 1})`;
    if (this.puzzle.initial[cell] !== 0) return this.#refuse(`Cannot modify initial cell at ${place}`);
    const units = conflicts(this.#grid, this.#config.gridSize, cell, value);
    if (units.length > 0) {
      const boxSize = Math.sqrt(this.#config.gridSize);
      const names: Record<Unit, string> = {
        row: `row ${row + 1}`,
        column: `column ${col + 1}`,
        box: `box (${Math.floor(row / boxSize) + 1},${Math.floor(col / boxSize) + 1})`,
      };
      const named = units.map((unit) => names[unit]).join(", ");
      return this.#refuse(`Invalid placement: ${value} conflicts with ${named}${this.#validNumbers(cell, place)}`);
    }
    return this.#accept(cell, value, place);
  }

  #accept(cell: number, value: number, place: string): Effect {
    const correct = value === this.puzzle.solution[cell];
    this.#grid[cell] = value;
    // The game accepts only legal placements, so a full grid is solved.
    const success = this.#grid.every((filled) => filled !== 0);
    this.#feedback =
      (correct ? `✓ Correct! Placed ${value} at ${place}` : `⚠ Placed ${value} at ${place} - Valid but not optimal`) +
      (success ? "\n🎉 Congratulations! Puzzle solved!" : "");
    const score = this.#config.correctPlacementScore * (correct ? 1 : DIFFERENT_SCORE_SHARE);
    return this.#effect(score + (success ? this.#config.completionBonus : 0), true, success);
  }

  #validNumbers(cell: number, place: string): string {
    const valid = this.#grid[cell] === 0 ? candidatesOf(this.#grid, this.#config.gridSize, cell) : [];
    return valid.length === 0 ? "" : `\n   Valid numbers for ${place}: [${valid.join(", ")}]`;
  }

  #refuse(reason: string): Effect {
    this.#feedback = `❌ ${reason}`;
    return this.#effect(this.#config.invalidActionScore, false, false);
  }

  #effect(reward: number, valid: boolean, success: boolean): Effect {
    this.#steps++;
    this.#done = success || ((valid || this.#config.refusedEnd) && this.#steps >= this.#config.maxSteps);
    return { reward, done: this.#done, effective: valid, valid, success };
  }

  /**
   * The first empty cell that some value fits; null if there is no such cell. The value is the cell's value in the solution, if this value
   * fits. Otherwise it is the first value that fits.
   */
  hint(): { readonly cell: number; readonly value: number } | null {
    for (let cell = 0; cell < this.#grid.length; cell++) {
      if (this.#grid[cell] !== 0) continue;
      const fitting = candidatesOf(this.#grid, this.#config.gridSize, cell);
      const value = fitting.includes(this.puzzle.solution[cell]!) ? this.puzzle.solution[cell]! : fitting[0];
      if (value !== undefined) return { cell, value };
    }
    return null;
  }
}

/** The observation shows the valid numbers of the empty cells if at most this many cells are empty. */
const HINTED_CELLS_MAX = 10;

/** Renders a Sudoku board in RAGEN-2's `with_feedback` form. */
function renderSudoku(
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

/** A zero-based cell and its new value. */
interface Placement {
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

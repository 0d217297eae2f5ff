/**
 * Makes Sudoku puzzles: fills a grid, blanks cells, and counts solutions. Knows no game. Cells are row-major; 0 is empty.
 *
 * - Size and seed decide the full grid and the order of blanking; both equal RAGEN-2's.
 * - With `unique`, the generator blanks a cell only if the solution stays unique. RAGEN-2 claims unique solutions, but does not check them.
 * - Every search has a limit, so the generation of a board takes at most about a second.
 *
 * Source: RAGEN-2 ragen/env/sudoku.
 */
import { PythonRandom } from "../rng/mt19937.ts";

/**
 * Maximum number of cells that one search visits: to fill a grid, and to count solutions. On a board of 9 by 9 a search visits hundreds of
 * cells. On some boards of 16 by 16 a search without a limit would practically never end.
 */
const FILL_CELLS_MAX = 50_000;
const COUNT_CELLS_MAX = 5000;

export interface Puzzle {
  readonly size: number;
  /** (size * size) 0 for a blank cell. */
  readonly initial: readonly number[];
  readonly solution: readonly number[];
}

/** @param blanks  number of blank cells; with `unique` there may be fewer. */
export function generateSudoku(size: number, blanks: number, unique: boolean, seed: number): Puzzle {
  const random = new PythonRandom(seed);
  const solution = filled(size, random);
  const cells = solution.map((_, cell) => cell);
  random.shuffle(cells);
  const initial = [...solution];
  let left = blanks;
  for (const cell of cells) {
    if (left === 0) break;
    initial[cell] = 0;
    if (unique && solutionCount(initial, size, 2) !== 1) initial[cell] = solution[cell]!;
    else left--;
  }
  return { size, initial, solution };
}

/** A full grid. A search that takes too long starts again. RAGEN-2's search has no limit, and practically never ends on some boards of 16 by 16. */
function filled(size: number, random: PythonRandom): number[] {
  for (;;) {
    const grid = new Array<number>(size * size).fill(0);
    if (fill(grid, size, 0, random, { left: FILL_CELLS_MAX })) return grid;
  }
}

/** Backtracking in row-major order; at each cell it tries all values in random order. @param cells  how many cells the search may still visit */
function fill(grid: number[], size: number, cell: number, random: PythonRandom, cells: { left: number }): boolean {
  if (cell === grid.length) return true;
  if (cells.left === 0) return false;
  cells.left--;
  const candidates = Array.from({ length: size }, (_, i) => i + 1);
  random.shuffle(candidates);
  for (const value of candidates) {
    if (!fits(grid, size, cell, value)) continue;
    grid[cell] = value;
    if (fill(grid, size, cell + 1, random, cells)) return true;
    if (cells.left === 0) return false;
    grid[cell] = 0;
  }
  return false;
}

/** True if `conflicts` finds no conflict. This function allocates nothing, because a search calls it a million times. */
function fits(grid: readonly number[], size: number, cell: number, value: number): boolean {
  const boxSize = Math.sqrt(size);
  const row = Math.floor(cell / size);
  const col = cell % size;
  const corner = (row - (row % boxSize)) * size + col - (col % boxSize);
  for (let i = 0; i < size; i++) {
    if (grid[row * size + i] === value || grid[i * size + col] === value) return false;
    if (grid[corner + Math.floor(i / boxSize) * size + (i % boxSize)] === value) return false;
  }
  return true;
}

export type Unit = "row" | "column" | "box";

/** The units of the cell that contain the value. A cell that holds the value itself is in conflict too. */
export function conflicts(grid: readonly number[], size: number, cell: number, value: number): Unit[] {
  const boxSize = Math.sqrt(size);
  const unitOf = {
    row: (at: number) => Math.floor(at / size),
    column: (at: number) => at % size,
    box: (at: number) => Math.floor(at / size / boxSize) * boxSize + Math.floor((at % size) / boxSize),
  };
  return (["row", "column", "box"] as const).filter((unit) =>
    grid.some((held, at) => held === value && unitOf[unit](at) === unitOf[unit](cell)),
  );
}

/** Values without conflicts, ascending. */
export function candidatesOf(grid: readonly number[], size: number, cell: number): number[] {
  return Array.from({ length: size }, (_, i) => i + 1).filter((value) => fits(grid, size, cell, value));
}

/**
 * The number of solutions, or `most` if there are more. If the search takes too long, the result is `most` too. The search is depth-first. In
 * each step it fills the cell with the fewest candidates.
 */
export function solutionCount(grid: readonly number[], size: number, most: number): number {
  const boxSize = Math.sqrt(size);
  const row = (cell: number) => Math.floor(cell / size);
  const box = (cell: number) => Math.floor(row(cell) / boxSize) * boxSize + Math.floor((cell % size) / boxSize);
  /** Values used in each row, then in each column, then in each box: bit v - 1 for the value v. */
  const used = new Int32Array(3 * size);
  /** Index of each cell's row, column and box in `used`. */
  const rowOf = Uint8Array.from(grid, (_, cell) => row(cell));
  const colOf = Uint8Array.from(grid, (_, cell) => size + (cell % size));
  const boxOf = Uint8Array.from(grid, (_, cell) => 2 * size + box(cell));
  /** Cells that are blank now, in ascending order. */
  const blanks = [...grid.keys()].filter((cell) => grid[cell] === 0);
  const all = (1 << size) - 1;
  let cellsLeft = COUNT_CELLS_MAX;

  /** Sets or clears one value in the three units of a cell. */
  function mark(cell: number, bit: number): void {
    used[rowOf[cell]!]! ^= bit;
    used[colOf[cell]!]! ^= bit;
    used[boxOf[cell]!]! ^= bit;
  }

  /** @param found  number of solutions found before. @returns the number of solutions found so far */
  function search(found: number): number {
    if (cellsLeft-- === 0) return most;
    let at = -1;
    let free = 0;
    let fewest = 33;
    for (let i = 0; i < blanks.length; i++) {
      const cell = blanks[i]!;
      const candidates = ~(used[rowOf[cell]!]! | used[colOf[cell]!]! | used[boxOf[cell]!]!) & all;
      const count = bitCount(candidates);
      if (count < fewest) {
        at = i;
        free = candidates;
        fewest = count;
      }
      if (count <= 1) break;
    }
    if (at < 0) return found + 1;
    const [cell] = blanks.splice(at, 1) as [number];
    let sum = found;
    for (let left = free; left !== 0 && sum < most; left &= left - 1) {
      const bit = left & -left;
      mark(cell, bit);
      sum = search(sum);
      mark(cell, bit);
    }
    blanks.splice(at, 0, cell);
    return sum;
  }

  grid.forEach((value, cell) => {
    if (value !== 0) mark(cell, 1 << (value - 1));
  });
  return search(0);
}

/** The number of ones among the lowest 16 bits. */
function bitCount(bits: number): number {
  const pairs = bits - ((bits >> 1) & 0x5555);
  const fours = (pairs & 0x3333) + ((pairs >> 2) & 0x3333);
  const bytes = (fours + (fours >> 4)) & 0x0f0f;
  return (bytes + (bytes >> 8)) & 0x1f;
}

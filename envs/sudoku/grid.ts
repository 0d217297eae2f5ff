/**
 * Makes Sudoku puzzles: fills a grid, blanks cells, and counts solutions. Knows no game. Cells are row-major; 0 is empty.
 *
 * - Size and seed decide the full grid and the order of blanking; both equal RAGEN-2's.
 * - `unique` blanks only cells that keep the solution unique; RAGEN-2 claims this and does not check it.
 * - Every search is limited, so each board is made in seconds.
 *
 * Source: RAGEN-2 ragen/env/sudoku.
 */
import { PythonRandom } from "../rng/mt19937.ts";

/**
 * Most cells that one search visits, for a full grid and for the number of solutions. Boards of 9 by 9 take hundreds, boards of 16 by 16
 * sometimes so many that the search never ends.
 */
const FILL_CELLS_MAX = 50_000;
const COUNT_CELLS_MAX = 5000;

export interface Puzzle {
  readonly size: number;
  /** (size * size) 0 for a blank cell. */
  readonly initial: readonly number[];
  readonly solution: readonly number[];
}

/** @param blanks  blank cells; with `unique` there may be fewer. */
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

/** A full grid. A search that takes too long starts again. RAGEN-2's goes on: on some boards of 16 by 16 without an end in sight. */
function filled(size: number, random: PythonRandom): number[] {
  for (;;) {
    const grid = new Array<number>(size * size).fill(0);
    if (fill(grid, size, 0, random, { left: FILL_CELLS_MAX })) return grid;
  }
}

/** Backtracking in row-major order; at each cell it shuffles all values and tries them. @param cells  how many it may still visit */
function fill(grid: number[], size: number, cell: number, random: PythonRandom, cells: { left: number }): boolean {
  if (cell === grid.length) return true;
  if (cells.left === 0) return false;
  cells.left--;
  const candidates = Array.from({ length: size }, (_, i) => i + 1);
  random.shuffle(candidates);
  for (const value of candidates) {
    if (conflicts(grid, size, cell, value).length > 0) continue;
    grid[cell] = value;
    if (fill(grid, size, cell + 1, random, cells)) return true;
    if (cells.left === 0) return false;
    grid[cell] = 0;
  }
  return false;
}

export type Unit = "row" | "column" | "box";

/** The units of the cell that contain the value. A cell that holds the value itself is in conflict too. */
export function conflicts(grid: readonly number[], size: number, cell: number, value: number): Unit[] {
  const found = new Set<Unit>();
  const boxSize = Math.sqrt(size);
  const row = Math.floor(cell / size);
  const col = cell % size;
  const top = row - (row % boxSize);
  const leftmost = col - (col % boxSize);
  for (let i = 0; i < size; i++) {
    if (grid[row * size + i] === value) found.add("row");
    if (grid[i * size + col] === value) found.add("column");
    if (grid[(top + Math.floor(i / boxSize)) * size + leftmost + (i % boxSize)] === value) found.add("box");
  }
  return (["row", "column", "box"] as const).filter((unit) => found.has(unit));
}

/** Values without conflicts, ascending. */
export function candidatesOf(grid: readonly number[], size: number, cell: number): number[] {
  return Array.from({ length: size }, (_, i) => i + 1).filter(
    (value) => conflicts(grid, size, cell, value).length === 0,
  );
}

/** The number of solutions, at most `most`; `most` too if the search takes too long. */
export function solutionCount(grid: readonly number[], size: number, most: number): number {
  return new Counter(grid, size, most).count();
}

/** Depth-first search over the cell with the fewest candidates; units are bit sets. */
class Counter {
  readonly #grid: number[];
  readonly #size: number;
  readonly #most: number;
  #cellsLeft = COUNT_CELLS_MAX;
  /** Values used in each row, column and box: bit v - 1. */
  readonly #rows: number[];
  readonly #cols: number[];
  readonly #boxes: number[];

  constructor(grid: readonly number[], size: number, most: number) {
    this.#grid = [...grid];
    this.#size = size;
    this.#most = most;
    this.#rows = new Array<number>(size).fill(0);
    this.#cols = new Array<number>(size).fill(0);
    this.#boxes = new Array<number>(size).fill(0);
    grid.forEach((value, cell) => {
      if (value !== 0) this.#mark(cell, 1 << (value - 1));
    });
  }

  count(): number {
    return this.#search(0);
  }

  #search(found: number): number {
    if (this.#cellsLeft-- === 0) return this.#most;
    let chosen = -1;
    let free = 0;
    let fewest = 33;
    for (let cell = 0; cell < this.#grid.length; cell++) {
      if (this.#grid[cell] !== 0) continue;
      const candidates = this.#free(cell);
      const count = bitCount(candidates);
      if (count < fewest) [chosen, free, fewest] = [cell, candidates, count];
      if (count <= 1) break;
    }
    if (chosen < 0) return found + 1;
    for (let left = free; left !== 0 && found < this.#most; left &= left - 1) {
      const bit = left & -left;
      this.#grid[chosen] = 32 - Math.clz32(bit);
      this.#mark(chosen, bit);
      found = this.#search(found);
      this.#mark(chosen, bit);
      this.#grid[chosen] = 0;
    }
    return found;
  }

  #free(cell: number): number {
    const [row, col, box] = this.#units(cell);
    return ~(this.#rows[row]! | this.#cols[col]! | this.#boxes[box]!) & ((1 << this.#size) - 1);
  }

  /** Set or clear one value in the three units of a cell. */
  #mark(cell: number, bit: number): void {
    const [row, col, box] = this.#units(cell);
    this.#rows[row]! ^= bit;
    this.#cols[col]! ^= bit;
    this.#boxes[box]! ^= bit;
  }

  #units(cell: number): [row: number, col: number, box: number] {
    const boxSize = Math.sqrt(this.#size);
    const row = Math.floor(cell / this.#size);
    const col = cell % this.#size;
    return [row, col, Math.floor(row / boxSize) * boxSize + Math.floor(col / boxSize)];
  }
}

function bitCount(bits: number): number {
  let count = 0;
  for (let left = bits; left !== 0; left &= left - 1) count++;
  return count;
}

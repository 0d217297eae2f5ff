/**
 * Packs panels of matrices for tiles of bfloat16. A 32-bit float is the sum of three bfloat16, the float's parts. Each part holds the next 8
 * bits of the float's mantissa.
 *
 * A panel has 32 rows of the left factor, or 32 columns of the right factor. A step is one term of the product's sums; a round is 32 steps. For
 * each round and each part a panel has two tiles of 16 rows of 64 bytes. Each 32 bits of a tile hold the parts of two steps, k and k + 16.
 */
import { type Address, at } from "./assembler.ts";
import { FLOAT_BYTES, type Kernel, shifted } from "./kernel.ts";
import { R8, RAX, RCX, RDI, RDX, RSI } from "./registers.ts";
import { type Emit, rowsOf, transposing } from "./transpose.ts";

/** Rows of a tile, and 32-bit values in a row. */
export const TILE_ROWS = 16;
export const ROW_BYTES = 64;
const TILE_BYTES = TILE_ROWS * ROW_BYTES;
/** Steps of a round. */
const STEPS = 2 * TILE_ROWS;

/** Parts of a float, highest bits first. */
export const [HIGH, MIDDLE, LOW] = [0, 1, 2];
const PARTS = 3;

/** Rows or columns of a panel. */
export const PANEL = 2 * TILE_ROWS;
const PART_BYTES = 2 * TILE_BYTES;
/** Bytes of a panel for one round. */
export const ROUND_BYTES = PARTS * PART_BYTES;

/** Bytes of a panel with `depth` steps. */
export const panelBytes = (depth: number): number => ROUND_BYTES * roundsOf(depth);
/** Number of rounds; the last one may have 16 steps. */
export const roundsOf = (depth: number): number => Math.ceil(depth / STEPS);
/** Offset of a tile in a panel, in bytes. @param tile  0 or 1 */
export const tilePlace = (part: number, tile: number): number => part * PART_BYTES + tile * TILE_BYTES;

/** How a factor lies in memory: distances in bytes. */
export interface Layout {
  /** Between rows of the matrix in memory. */
  readonly row: number;
  /** Between 16 steps and the next 16. */
  readonly steps: number;
  /** Between the first floats of a tile and of the next one. */
  readonly tile: number;
  /** True if rows in memory become columns of a tile. */
  readonly isTransposed: boolean;
}

/** @param width  of the matrix in memory. @param stepsInRow  true if a row in memory holds the steps of one sum */
export function layoutOf(width: number, stepsInRow: boolean, isTransposed: boolean): Layout {
  const row = FLOAT_BYTES * width;
  const [steps, tile] = stepsInRow ? [ROW_BYTES, TILE_ROWS * row] : [TILE_ROWS * row, ROW_BYTES];
  return { row, steps, tile, isTransposed };
}

/** Vector registers with constants: half of the last bit that a bfloat16 keeps, and the mask of its bits. */
const [HALF_BIT, MASK] = [31, 30];

/** Writes code that packs panels. The code overwrites the vector registers 0 to 16, and keeps constants in 30 and 31. */
export class PanelPacker {
  readonly #kernel: Kernel;
  /** Two 16 × 16 blocks of a factor, transposed. */
  readonly #transposed: Address;

  constructor(kernel: Kernel) {
    this.#kernel = kernel;
    this.#transposed = kernel.memory(2 * TILE_BYTES);
  }

  /** Sets the registers with constants. Overwrites rcx. */
  setConstants(): void {
    const { code } = this.#kernel;
    for (const [vector, bits] of [
      [HALF_BIT, 0x8000],
      [MASK, ~0xffff],
    ] as const) {
      code.constant(RCX, bits);
      code.store32(this.#transposed, RCX);
      code.broadcast(vector, this.#transposed);
    }
  }

  /** Writes `body` in a loop over the rounds, which rcx counts, and once for a last round of 16 steps. @param body  gets 1 for 16 steps, 2 for 32 */
  eachRound(depth: number, body: (halves: number) => void): void {
    const whole = Math.floor(depth / STEPS);
    if (whole > 0) this.#kernel.countDown(RCX, whole, 1, () => body(2));
    if (depth % STEPS > 0) body(1);
  }

  /**
   * Packs a panel. r8: the first float to pack; rdx: the panel. Overwrites rax, rcx, rsi and rdi, and moves r8 and rdx.
   *
   * @param tiles  rows of each tile
   */
  pack(from: Layout, depth: number, tiles: readonly number[]): void {
    const { code } = this.#kernel;
    this.eachRound(depth, (halves) => {
      for (const [tile, rows] of tiles.entries()) {
        code.addressOf(RSI, at(R8, tile * from.tile));
        code.addressOf(RDI, at(RDX, tile * TILE_BYTES));
        let { row, steps } = from;
        if (from.isTransposed) {
          for (const emit of this.#transpose(halves, from, at(RSI))) emit();
          code.addressOf(RSI, this.#transposed);
          [row, steps] = [ROW_BYTES, TILE_BYTES];
        }
        this.#kernel.countDown(RAX, rows, 1, () => {
          for (const emit of this.#packRow(halves, at(RSI), steps, at(RDI))) emit();
          code.addConstant(RSI, row);
          code.addConstant(RDI, ROW_BYTES);
        });
      }
      code.addConstant(R8, 2 * from.steps);
      code.addConstant(RDX, ROUND_BYTES);
    });
  }

  /**
   * Instructions that pack one round of some rows, from rsi to rdi, and move rsi and rdi to the next round. The caller may put other
   * instructions between them if those do not change rsi, rdi or the vectors.
   *
   * @param rows  a multiple of 16 if `from.isTransposed`
   */
  packingRows(from: Layout, halves: number, rows: number): Emit[] {
    const { code } = this.#kernel;
    if (rows === 0) return [];
    const emits: Emit[] = [];
    for (let row = 0; row < rows; row++) {
      const target = at(RDI, row * ROW_BYTES);
      if (from.isTransposed) {
        if (row % TILE_ROWS === 0) emits.push(...this.#transpose(halves, from, at(RSI, (row / TILE_ROWS) * from.tile)));
        emits.push(
          ...this.#packRow(halves, shifted(this.#transposed, (row % TILE_ROWS) * ROW_BYTES), TILE_BYTES, target),
        );
      } else emits.push(...this.#packRow(halves, at(RSI, row * from.row), from.steps, target));
    }
    emits.push(() => {
      code.addConstant(RSI, 2 * from.steps);
      code.addConstant(RDI, ROUND_BYTES);
    });
    return emits;
  }

  /**
   * Packs the parts of a row of a tile. Overwrites the vectors 0 to 5.
   *
   * @param halves  2 for 32 steps; 1 for 16 steps, with zeros in place of the other 16
   * @param steps   bytes from the first 16 steps to the second
   */
  #packRow(halves: number, source: Address, steps: number, target: Address): Emit[] {
    const { code } = this.#kernel;
    const [first, second] = [
      [0, 1, 2],
      [3, 4, 5],
    ] as const;
    const emits: Emit[] = [];
    for (const [half, [high, middle, low]] of [first, second].slice(0, halves).entries()) {
      emits.push(() => code.loadVector(low, shifted(source, half * steps)));
      // Rounding to a bfloat16 gives the part. The difference, which is exact, holds the later parts.
      for (const part of [high, middle]) {
        emits.push(
          () => code.vector("addInts", part, low, HALF_BIT),
          () => code.vector("and", part, part, MASK),
          () => code.vector("subtract", low, low, part),
        );
      }
    }
    for (let part = 0; part < PARTS; part++) {
      const [to, other] = [first[part]!, second[part]!];
      emits.push(() => code.shiftIntsRight(to, to, 16));
      if (halves === 2) emits.push(() => code.vector("or", to, to, other));
      emits.push(() => code.storeVector(shifted(target, part * PART_BYTES), to));
    }
    return emits;
  }

  /** Transposes 16 × 16 floats of a factor, for each 16 steps of a round, to `#transposed`. Overwrites the vectors 0 to 16. */
  #transpose(halves: number, from: Layout, source: Address): Emit[] {
    const { code } = this.#kernel;
    return Array.from({ length: halves }, (_, half) => half).flatMap((half) => {
      const to = { start: shifted(this.#transposed, half * TILE_BYTES), row: ROW_BYTES };
      return transposing(code, rowsOf(code, { start: shifted(source, half * from.steps), row: from.row }), to);
    });
  }
}

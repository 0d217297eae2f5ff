/**
 * Matrix products with factors rounded to bfloat16 (AVX512_BF16): C (M, N) = A (M, K) · B (K, N) + an addend. Either factor may lie
 * transposed in memory. The sums are 32-bit floats. A step is one index of K. One instruction adds the terms of two steps to each of 16
 * sums, so this kernel needs half as many multiply-add instructions as product.ts.
 *
 * A number of C is a sum of K terms. Its error is about 2e-3 · sqrt(the sum of the squared terms), because a rounded factor keeps 8 bits
 * of mantissa (the leading 1 included).
 *
 * The kernel rounds a block of B, then 48 rows of A at a time. In rounded memory, the numbers of two steps (16 bits each) lie side by side
 * as one pair. After the rounding, the kernel computes some rows of C in up to 64 columns at a time. A number of C is one sum in the order
 * of the pairs, so it does not depend on M and N.
 *
 * Source: Intel 64 manual, volume 2, VDPBF16PS and VCVTNE2PS2BF16.
 */
import { type Address, at } from "./assembler.ts";
import { blocksOf, FLOAT_BYTES, KernelWriter, shifted } from "./kernel.ts";
import type { MachineCodeOperator } from "./operator.ts";
import {
  type Distances,
  distancesOf,
  eachBlock,
  multiplyPanel,
  operatorOfProduct,
  PANEL_COLUMNS,
  type ProductBlock,
  type ProductShape,
  rowsAtOnce,
  startOf,
  VECTOR,
  VECTOR_BYTES,
} from "./product.ts";
import { R8, R9, R11, R12, RAX, RBX, RCX, RDX } from "./registers.ts";
import { BLOCK, transpose } from "./transpose.ts";

/** Maximum number of steps, and of columns, of a rounded block of B. The block has up to 256 KiB, which the CPU's second-level cache holds. */
const DEPTH_MAX = 256;
const COLUMNS_MAX = 512;
/** Maximum number of rows of A that the kernel rounds at a time. */
const ROWS = 48;

/** Number of steps in a pair. */
const PAIR = 2;
const PAIR_BYTES = 4;
/** Pairs that one iteration of the packing loop writes. */
const PAIRS_AT_ONCE = 4;

/** Number of steps in 16 pairs. One instruction rounds this many steps of one row. */
const CHUNK = PAIR * VECTOR;
const wholeChunks = (steps: number): number => Math.ceil(steps / CHUNK) * CHUNK;

/** Vector registers of the packing code. `transpose` leaves LATER unchanged. */
const [VALUES, PAIRS, PLACES, LATER] = [0, 1, 2, BLOCK + 1];

export const roundedProductOperator = (shape: ProductShape): MachineCodeOperator =>
  operatorOfProduct(shape, shape.transposeA ? VECTOR : 1, (kernel) => new RoundedProduct(kernel, shape).write());

class RoundedProduct extends KernelWriter<ProductShape> {
  readonly #a = distancesOf(this.shape.depth, this.shape.rows, !this.shape.transposeA);
  readonly #b = distancesOf(this.shape.depth, this.shape.columns, this.shape.transposeB);
  readonly #steps = Math.min(this.shape.depth, DEPTH_MAX);
  readonly #columns = Math.min(this.shape.columns, COLUMNS_MAX);
  readonly #roundedA = this.kernel.memory(ROWS * rowBytesOf(this.#steps));
  readonly #roundedB = this.kernel.memory((wholeChunks(this.#steps) / PAIR) * PAIR_BYTES * this.#columns);
  /** The `places` of an `orderHalves` that interleaves 16 bfloat16 of one step with 16 of the next. */
  readonly #places = this.kernel.memory(VECTOR_BYTES);

  write(): void {
    this.#setPlaces();
    eachBlock(this.kernel, this.shape, { depth: DEPTH_MAX, columns: COLUMNS_MAX }, (block, a, b) => {
      this.#roundB(b, block);
      this.#addBlock(a, block);
    });
  }

  #setPlaces(): void {
    const { code } = this;
    code.addressOf(RDX, this.#places);
    for (let i = 0; i < VECTOR; i++) {
      code.constant(RCX, i | ((VECTOR + i) << 16));
      code.store32(at(RDX, i * PAIR_BYTES), RCX);
    }
  }

  /** Rounds a block of B, panel after panel. @param b  a variable with the block's address */
  #roundB(b: Address, { depth, width }: ProductBlock): void {
    const { kernel } = this;
    const bColumns = kernel.word();
    kernel.set(bColumns, b);
    kernel.code.addressOf(RDX, this.#roundedB);
    kernel.each(blocksOf(width, PANEL_COLUMNS), (columns) => {
      kernel.code.move(R8, bColumns);
      if (this.shape.transposeB) this.#roundTransposed(columns, depth);
      else this.#roundSteps(columns, depth, this.#b.step);
      kernel.advance(bColumns, columns * this.#b.next);
    });
  }

  /** Adds a block's product to all rows of C. @param a  a variable with the address of the block's steps in A */
  #addBlock(a: Address, block: ProductBlock): void {
    const { kernel, code } = this;
    const { depth } = block;
    const start = startOf(kernel, this.shape, block);
    const startBytes = start.rowBytes ?? 0;
    const rowBytes = FLOAT_BYTES * this.shape.columns;
    /** Addresses of the current rows: in A, in C and in the numbers that the sums start from. */
    const [aRows, cRows, startRows] = [kernel.word(), kernel.word(), kernel.word()];
    /** Addresses of these rows in the columns of the current panel: in C and in the start numbers; then the address of the panel. */
    const [cColumns, startColumns, panel] = [kernel.word(), kernel.word(), kernel.word()];
    /** Addresses of the rows that one `multiplyPanel` computes. */
    const [aPart, cPart, startPart] = [kernel.word(), kernel.word(), kernel.word()];
    const setTo = (variable: Address, memory: Address) => {
      code.addressOf(RAX, memory);
      code.store(variable, RAX);
    };
    kernel.set(aRows, a);
    kernel.set(cRows, kernel.outputs[0]!);
    kernel.set(startRows, start.rows);
    kernel.each(blocksOf(this.shape.rows, ROWS), (count) => {
      const rounded = this.#roundRows(aRows, count, depth);
      kernel.set(cColumns, cRows);
      kernel.set(startColumns, startRows);
      setTo(panel, this.#roundedB);
      kernel.each(blocksOf(block.width, PANEL_COLUMNS), (columns) => {
        kernel.set(cPart, cColumns);
        kernel.set(startPart, startColumns);
        setTo(aPart, this.#roundedA);
        kernel.each(blocksOf(count, rowsAtOnce(columns)), (rows) => {
          code.move(RBX, aPart);
          code.move(R12, cPart);
          code.move(R11, startPart);
          code.move(R9, panel);
          multiplyPanel(
            kernel,
            { rows, columns, steps: depth / PAIR, a: rounded, rowBytes, startBytes: start.rowBytes },
            (sum, left, right) => code.multiplyAddPairs(sum, left, right),
          );
          kernel.advance(aPart, rows * rounded.next);
          kernel.advance(cPart, rows * rowBytes);
          kernel.advance(startPart, rows * startBytes);
        });
        kernel.advance(panel, (depth / PAIR) * PAIR_BYTES * columns);
        kernel.advance(cColumns, FLOAT_BYTES * columns);
        kernel.advance(startColumns, FLOAT_BYTES * columns);
      });
      kernel.advance(aRows, count * this.#a.next);
      kernel.advance(cRows, count * rowBytes);
      kernel.advance(startRows, count * startBytes);
    });
  }

  /** Rounds some rows of A. @param aRows  a variable with their address. @returns the distances between rounded rows and between pairs */
  #roundRows(aRows: Address, rows: number, depth: number): Distances {
    const { code } = this;
    code.move(R8, aRows);
    code.addressOf(RDX, this.#roundedA);
    if (this.shape.transposeA) {
      this.#roundSteps(rows, depth, this.#a.step);
      return { next: PAIR_BYTES, step: PAIR_BYTES * rows };
    }
    const rowBytes = rowBytesOf(depth);
    this.kernel.countDown(RCX, rows, 1, () => {
      for (let step = 0; step < depth; step += CHUNK) {
        if (step + VECTOR < depth) code.loadVector(VALUES, at(R8, (step + VECTOR) * FLOAT_BYTES));
        else code.zero(VALUES);
        code.toBfloats(PAIRS, at(R8, step * FLOAT_BYTES), VALUES);
        code.storeVector(at(RDX, (step / PAIR) * PAIR_BYTES), PAIRS);
      }
      code.addConstant(R8, this.#a.next);
      code.addConstant(RDX, rowBytes);
    });
    return { next: rowBytes, step: PAIR_BYTES };
  }

  /**
   * Rounds columns of a transposed B: each row in memory holds the steps of one column. r8 holds the address of the first column, rdx that of
   * the output. Overwrites rcx, and moves r8 and rdx. If `depth` is not a multiple of 32, 8 rows of zero pairs follow the output.
   */
  #roundTransposed(columns: number, depth: number): void {
    const { code } = this;
    const pairBytes = PAIR_BYTES * columns;
    const round = (steps: number) => {
      for (let column = 0; column < columns; column += VECTOR) {
        const load = (row: number) => {
          const start = at(R8, (column + row) * this.#b.next);
          if (steps === CHUNK) code.loadVector(LATER, shifted(start, VECTOR_BYTES));
          code.toBfloats(row, start, LATER);
        };
        transpose(code, load, { start: at(RDX, column * PAIR_BYTES), row: pairBytes });
      }
      code.addConstant(R8, steps * FLOAT_BYTES);
      code.addConstant(RDX, (steps / PAIR) * pairBytes);
    };
    const rest = depth % CHUNK;
    if (depth > rest) this.kernel.countDown(RCX, depth - rest, CHUNK, () => round(CHUNK));
    if (rest === 0) return;
    code.zero(LATER);
    round(rest);
  }

  /**
   * Rounds a matrix. Each of its rows in memory is one step, and two steps become one row of pairs. r8 holds the address of the first step,
   * rdx that of the output. Overwrites rcx, and moves r8 and rdx.
   *
   * @param width  numbers in a row, a multiple of 16. @param distance  bytes from step to step
   */
  #roundSteps(width: number, depth: number, distance: number): void {
    const { code } = this;
    const rowBytes = PAIR_BYTES * width;
    code.loadVector(PLACES, this.#places);
    this.kernel.countDown(RCX, depth, PAIR * PAIRS_AT_ONCE, () => {
      for (let pair = 0; pair < PAIRS_AT_ONCE; pair++) {
        for (let i = 0; i < width * FLOAT_BYTES; i += VECTOR_BYTES) {
          code.loadVector(VALUES, at(R8, (PAIR * pair + 1) * distance + i));
          code.toBfloats(PAIRS, at(R8, PAIR * pair * distance + i), VALUES);
          code.orderHalves(PAIRS, PLACES, PAIRS);
          code.storeVector(at(RDX, pair * rowBytes + i), PAIRS);
        }
      }
      code.addConstant(R8, PAIR * PAIRS_AT_ONCE * distance);
      code.addConstant(RDX, PAIRS_AT_ONCE * rowBytes);
    });
  }
}

/** Bytes of a rounded row of A: whole vectors plus one cache line, so that rows are not a power of two apart. */
const rowBytesOf = (depth: number): number => (wholeChunks(depth) / CHUNK + 1) * VECTOR_BYTES;

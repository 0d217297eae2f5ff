/**
 * Symmetric products of matrices in vector registers of 16 floats (AVX-512): C (N, N) = Aᵀ · B of A (K, N) and B (K, N). The caller knows that
 * C is symmetric: B is A, or both are polynomials of one symmetric matrix.
 *
 * The kernel computes the blocks on and below the diagonal, and copies each block below the diagonal to its place above. So it needs
 * little more than half of the multiplications of product.ts. It computes with product.ts's panels, but with panels of 32 columns of B, and 8
 * rows of C at a time.
 */
import { at } from "./assembler.ts";
import { blocksOf, checkMultiple, FLOAT_BYTES, type Kernel } from "./kernel.ts";
import type { MachineCodeOperator } from "./operator.ts";
import { distancesOf, multiplyPanel, PRODUCT_MULTIPLE, packPanel } from "./product.ts";
import { R9, R11, R12, RAX, RBX, RCX, RDX, RSI } from "./registers.ts";
import { BLOCK, rowsOf, transpose } from "./transpose.ts";

export interface SymmetricShape {
  /** K, a multiple of 16. */
  readonly depth: number;
  /** N, a multiple of 16. */
  readonly columns: number;
}

/** Maximum number of columns of a panel. A smaller panel leaves out more of C's upper half, but its steps load more for each multiplication. */
const PANEL_COLUMNS = 32;
/** Maximum number of steps of a panel. A panel has up to 32 KiB, which fits into the L1 cache. */
const DEPTH_MAX = 256;
/** The number of rows that the kernel computes at once. N and the index of a panel's first row are multiples of this number. */
const ROWS = 8;

/** Inputs: A and B. Output: C, which must not have the memory of A or B. */
export function symmetricProductOperator(shape: SymmetricShape): MachineCodeOperator {
  const { depth, columns } = shape;
  checkMultiple("depth", depth, PRODUCT_MULTIPLE);
  checkMultiple("number of columns", columns, PRODUCT_MULTIPLE);
  return {
    inputs: ["float32", "float32"],
    outputs: [[columns, columns]],
    write(kernel) {
      writeLowerHalf(kernel, shape);
      if (columns > BLOCK) writeUpperHalf(kernel, columns);
    },
  };
}

/** Computes the blocks of C on and below the diagonal. */
function writeLowerHalf(kernel: Kernel, { depth, columns: size }: SymmetricShape): void {
  const { code } = kernel;
  const rowBytes = FLOAT_BYTES * size;
  const factor = distancesOf(depth, size, false);
  const panel = kernel.memory(FLOAT_BYTES * PANEL_COLUMNS * Math.min(depth, DEPTH_MAX));
  const [a, b, corner] = [kernel.inputs[0]!, kernel.inputs[1]!, kernel.outputs[0]!];
  const [aSteps, bSteps, aRows, cRows] = [kernel.word(), kernel.word(), kernel.word(), kernel.word()];
  /** The number of rows of C from the panel's first row on, and the number of these rows that are not computed yet. */
  const [panelRows, rowsLeft] = [kernel.word(), kernel.word()];
  kernel.set(panelRows, size);
  kernel.each(blocksOf(size, PANEL_COLUMNS), (panelColumns) => {
    kernel.set(aSteps, a);
    kernel.set(bSteps, b);
    const blocks = blocksOf(depth, DEPTH_MAX).map((steps, i) => ({ steps, first: i === 0 }));
    kernel.each(blocks, ({ steps, first }) => {
      packPanel(kernel, { b: bSteps, distances: factor, steps, columns: panelColumns, transposed: false }, panel);
      kernel.set(aRows, aSteps);
      kernel.set(cRows, corner);
      /** Computes the next rows. Afterwards rax holds the number of remaining rows. */
      const addRows = (rows: number, columns: number) => {
        code.move(RBX, aRows);
        code.move(R12, cRows);
        code.move(R11, cRows);
        code.addressOf(R9, panel);
        const startBytes = first ? null : rowBytes;
        const product = { rows, columns, panelColumns, steps, a: factor, rowBytes, startBytes };
        multiplyPanel(kernel, product, (sum, left, right) => code.multiplyAdd(sum, left, right));
        kernel.advance(aRows, rows * factor.next);
        kernel.advance(cRows, rows * rowBytes);
        kernel.advance(rowsLeft, -rows);
      };
      kernel.set(rowsLeft, panelRows);
      // The first 16 rows have only 16 columns on or below the diagonal.
      addRows(BLOCK, BLOCK);
      if (panelColumns > BLOCK) {
        const again = code.label();
        code.place(again);
        addRows(ROWS, panelColumns);
        code.compareConstant(RAX, 0);
        code.jumpIf("more", again);
      }
      kernel.advance(aSteps, steps * factor.step);
      kernel.advance(bSteps, steps * factor.step);
    });
    for (const variable of [a, b]) kernel.advance(variable, panelColumns * factor.next);
    kernel.advance(corner, panelColumns * (rowBytes + FLOAT_BYTES));
    kernel.advance(panelRows, -panelColumns);
  });
  kernel.advance(corner, -size * (rowBytes + FLOAT_BYTES));
}

/** Copies each block below the diagonal to its place above, transposed. */
function writeUpperHalf(kernel: Kernel, size: number): void {
  const { code } = kernel;
  const rowBytes = FLOAT_BYTES * size;
  const [blockRow, blockColumn, blocks] = [R11, R12, RBX];
  const [from, to] = [RSI, RDX];
  code.move(blockRow, kernel.outputs[0]!);
  code.move(blockColumn, blockRow);
  code.constant(blocks, 0);
  kernel.countDown(R9, size / BLOCK - 1, 1, () => {
    code.addConstant(blockRow, BLOCK * rowBytes);
    code.addConstant(blockColumn, BLOCK * FLOAT_BYTES);
    code.addConstant(blocks, 1);
    code.move(from, blockRow);
    code.move(to, blockColumn);
    code.move(RCX, blocks);
    const again = code.label();
    code.place(again);
    transpose(code, rowsOf(code, { start: at(from), row: rowBytes }), { start: at(to), row: rowBytes });
    code.addConstant(from, BLOCK * FLOAT_BYTES);
    code.addConstant(to, BLOCK * rowBytes);
    code.addConstant(RCX, -1);
    code.jumpIf("more", again);
  });
}

/**
 * Matrix products in vector registers of 16 floats (AVX-512): C (M, N) = A (M, K) · B (K, N) + an addend. Either factor may lie transposed in
 * memory. Each number of C is a sum of K terms. A step is one index k of this sum.
 *
 * The kernel copies 64 columns of B, a panel, so that the floats of each step lie side by side in the CPU's caches. Then it computes 6 rows of
 * C in these columns at a time: 24 vectors hold the sums. Each step loads 64 floats of B, and multiplies them with one float of each row of A.
 * A number of C is one sum in the order of the steps, so it does not depend on M and N.
 *
 * Source: Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", https://doi.org/10.1145/1356052.1356053.
 */
import { type Address, at } from "./assembler.ts";
import { blocksOf, checkMultiple, FLOAT_BYTES, type Kernel } from "./kernel.ts";
import type { MachineCodeOperator } from "./operator.ts";
import { R8, R9, R10, R11, R12, RBX, RCX, RDX } from "./registers.ts";
import { rowsOf, transpose } from "./transpose.ts";

export interface ProductShape {
  /** M. On tiles and with rounded factors, a multiple of 16 if A is transposed. */
  readonly rows: number;
  /** K, a multiple of 16. */
  readonly depth: number;
  /** N, a multiple of 16. */
  readonly columns: number;
  /** A lies in memory as (K, M). */
  readonly transposeA: boolean;
  /** B lies in memory as (N, K). */
  readonly transposeB: boolean;
  /** A third input: a bias (N), or a matrix (M, N). The matrix may have the memory of C. */
  readonly addend: "none" | "bias" | "matrix";
}

/** The numbers of steps and of columns are multiples of this. */
export const PRODUCT_MULTIPLE = 16;

/**
 * The operator of a product. Inputs: A, B and the addend if there is one. Output: C.
 *
 * @param rowMultiple  M must be a multiple of this number. @param write  writes the kernel
 */
export function operatorOfProduct(
  shape: ProductShape,
  rowMultiple: number,
  write: (kernel: Kernel) => void,
): MachineCodeOperator {
  const { rows, depth, columns, addend } = shape;
  checkMultiple("number of rows", rows, rowMultiple);
  checkMultiple("depth", depth, PRODUCT_MULTIPLE);
  checkMultiple("number of columns", columns, PRODUCT_MULTIPLE);
  return {
    inputs: addend === "none" ? ["float32", "float32"] : ["float32", "float32", "float32"],
    outputs: [[rows, columns]],
    write,
  };
}

/** A block of B: some steps of some columns. */
export interface ProductBlock {
  /** Steps. */
  readonly depth: number;
  /** Columns. */
  readonly width: number;
  /** True for the first steps: C holds no sums yet. */
  readonly first: boolean;
}

/** Distances in a factor, in bytes: `next` between neighboring rows of A (columns of B), `step` between steps. */
export interface Distances {
  readonly next: number;
  readonly step: number;
}

/** @param across  M for A, N for B. @param stepsInRow  true if a row in memory holds all steps of one sum */
export const distancesOf = (depth: number, across: number, stepsInRow: boolean): Distances =>
  stepsInRow ? { next: FLOAT_BYTES * depth, step: FLOAT_BYTES } : { next: FLOAT_BYTES, step: FLOAT_BYTES * across };

/**
 * Runs `body` for each block of B. `body` gets two variables: the address in A where the block's steps begin, and the address of the block in
 * B. After the last block of some columns, `eachBlock` moves the addresses of B, C and the addend to the next columns.
 */
export function eachBlock(
  kernel: Kernel,
  { rows, depth, columns, transposeA, transposeB }: ProductShape,
  limits: { readonly depth: number; readonly columns: number },
  body: (block: ProductBlock, a: Address, b: Address) => void,
): void {
  const [a, b, addend] = [kernel.inputs[0]!, kernel.inputs[1]!, kernel.inputs[2]];
  const ofA = distancesOf(depth, rows, !transposeA);
  const ofB = distancesOf(depth, columns, transposeB);
  const [aSteps, bSteps] = [kernel.word(), kernel.word()];
  kernel.each(blocksOf(columns, limits.columns), (width) => {
    kernel.set(aSteps, a);
    kernel.set(bSteps, b);
    const blocks = blocksOf(depth, limits.depth).map(
      (size, i): ProductBlock => ({ depth: size, width, first: i === 0 }),
    );
    kernel.each(blocks, (block) => {
      body(block, aSteps, bSteps);
      kernel.advance(aSteps, block.depth * ofA.step);
      kernel.advance(bSteps, block.depth * ofB.step);
    });
    kernel.advance(b, width * ofB.next);
    for (const variable of [kernel.outputs[0]!, addend]) if (variable) kernel.advance(variable, FLOAT_BYTES * width);
  });
}

export const vectorProductOperator = (shape: ProductShape): MachineCodeOperator =>
  operatorOfProduct(shape, 1, (kernel) => writeVectorProduct(kernel, shape));

/** Floats in a vector. */
export const VECTOR = 16;
export const VECTOR_BYTES = VECTOR * FLOAT_BYTES;

/** Maximum width of a panel, in vectors, and maximum number of its steps. A panel has up to 128 KiB, which fits into the L2 cache. */
const PANEL_VECTORS = 4;
const DEPTH_MAX = 512;
/** Maximum number of columns of a panel. */
export const PANEL_COLUMNS = PANEL_VECTORS * VECTOR;

/** Vector registers: sums, then numbers of B, then numbers of A. */
const SUMS = 24;
const RIGHT = SUMS;
const LEFT = RIGHT + PANEL_VECTORS;
const LEFT_COUNT = 4;

/** Maximum number of rows of C at once. Rows of A that are a power of two apart lie in one set of the L1 cache. A set holds at most 12 lines. */
const ROWS_MAX = 12;

/** The number of rows that the kernel computes at once. @param columns  number of columns of the panel */
export const rowsAtOnce = (columns: number): number => Math.min(ROWS_MAX, Math.floor((SUMS * VECTOR) / columns));

/** Steps that a loop computes before it jumps back. */
const STEPS_AT_ONCE = 4;

/** A block of B in memory. */
interface PanelSource {
  /** The variable with the block's address. */
  readonly b: Address;
  readonly distances: Distances;
  /** A multiple of 16. */
  readonly steps: number;
  /** A multiple of 16. */
  readonly columns: number;
  /** Whether a row in memory holds the steps of one column. */
  readonly transposed: boolean;
}

/** Copies a block of B to the panel. Overwrites rcx, rdx, r8 and the vectors 0 to 16. */
export function packPanel(
  kernel: Kernel,
  { b, distances, steps, columns, transposed }: PanelSource,
  panel: Address,
): void {
  const { code } = kernel;
  const width = columns / VECTOR;
  const stepBytes = width * VECTOR_BYTES;
  const vectors = Array.from({ length: width }, (_, i) => i);
  code.move(R8, b);
  code.addressOf(RDX, panel);
  kernel.countDown(RCX, steps, VECTOR, () => {
    if (transposed) {
      for (const vector of vectors) {
        const from = rowsOf(code, { start: at(R8, vector * VECTOR * distances.next), row: distances.next });
        const to = { start: at(RDX, vector * VECTOR_BYTES), row: stepBytes };
        transpose(code, from, to);
      }
    } else {
      for (let step = 0; step < VECTOR; step++) {
        for (const vector of vectors) code.loadVector(vector, at(R8, step * distances.step + vector * VECTOR_BYTES));
        for (const vector of vectors) code.storeVector(at(RDX, step * stepBytes + vector * VECTOR_BYTES), vector);
      }
    }
    code.addConstant(R8, VECTOR * distances.step);
    code.addConstant(RDX, VECTOR * stepBytes);
  });
}

/** Some rows of C, in the columns of a panel. Each number is a sum over the steps of A and of the panel. */
interface PanelProduct {
  readonly rows: number;
  /** The product uses only the first `columns` columns of the panel. */
  readonly columns: number;
  /** Default: `columns`. */
  readonly panelColumns?: number;
  /** A multiple of 4. */
  readonly steps: number;
  /** Distances in A. */
  readonly a: Distances;
  /** Bytes from row to row of C. */
  readonly rowBytes: number;
  /** Bytes from row to row of the numbers that the sums start from; null: the sums start from 0. */
  readonly startBytes: number | null;
}

/**
 * Multiplies some rows of A with a panel, adds the products to the sums of these rows, and stores the sums in C.
 *
 * Registers with addresses: rbx: the rows of A; r12: the rows of C; r11: the numbers that the sums start from; r9: the panel. Overwrites
 * rbx, rcx, r9 and r10.
 *
 * @param addStep  writes the instruction that adds a step to a sum
 */
export function multiplyPanel(
  kernel: Kernel,
  { rows, columns, panelColumns = columns, steps, a, rowBytes, startBytes }: PanelProduct,
  addStep: (sum: number, left: number, right: number) => void,
): void {
  const { code } = kernel;
  const width = columns / VECTOR;
  const stepBytes = FLOAT_BYTES * panelColumns;
  const sums = Array.from({ length: rows * width }, (_, i) => {
    const [row, vector] = [Math.floor(i / width), i % width];
    return { sum: i, row, vector };
  });
  for (const { sum, row, vector } of sums) {
    if (startBytes === null) code.zero(sum);
    else code.loadVector(sum, at(R11, row * startBytes + vector * VECTOR_BYTES));
  }
  code.addressOf(R10, at(R12, rows * rowBytes));
  const addSteps = (count: number, atEachJump: () => void) => {
    kernel.countDown(RCX, count, STEPS_AT_ONCE, () => {
      atEachJump();
      for (let step = 0; step < STEPS_AT_ONCE; step++) {
        for (let i = 0; i < width; i++) code.loadVector(RIGHT + i, at(R9, step * stepBytes + i * VECTOR_BYTES));
        for (const { sum, row, vector } of sums) {
          const left = LEFT + (row % LEFT_COUNT);
          if (vector === 0) code.broadcast(left, at(RBX, row * a.next + step * a.step));
          addStep(sum, left, RIGHT + vector);
        }
      }
      code.addConstant(RBX, STEPS_AT_ONCE * a.step);
      code.addConstant(R9, STEPS_AT_ONCE * stepBytes);
    });
  };
  // During the first steps the kernel prefetches the next rows of C into the L1 cache, so that their stores do not wait for memory.
  const prefetching = Math.min(STEPS_AT_ONCE * rows, steps);
  addSteps(prefetching, () => {
    for (let i = 0; i < width; i++) code.prefetchForWriting(at(R10, i * VECTOR_BYTES));
    code.addConstant(R10, rowBytes);
  });
  if (prefetching < steps) addSteps(steps - prefetching, () => {});
  for (const { sum, row, vector } of sums) code.storeVector(at(R12, row * rowBytes + vector * VECTOR_BYTES), sum);
}

/** What the sums of a block start from. */
interface Start {
  /** The variable with the address of the first row of these numbers. */
  readonly rows: Address;
  /** Bytes from row to row; null: the sums start from 0. */
  readonly rowBytes: number | null;
}

export function startOf(
  { inputs, outputs }: Kernel,
  { addend, columns }: ProductShape,
  { first }: ProductBlock,
): Start {
  const rowBytes = FLOAT_BYTES * columns;
  if (!first) return { rows: outputs[0]!, rowBytes };
  if (addend === "none") return { rows: outputs[0]!, rowBytes: null };
  // All rows start from the same bias.
  return { rows: inputs[2]!, rowBytes: addend === "bias" ? 0 : rowBytes };
}

function writeVectorProduct(kernel: Kernel, shape: ProductShape): void {
  const { code } = kernel;
  const { rows, depth, columns, transposeA, transposeB: transposed } = shape;
  const distancesOfA = distancesOf(depth, rows, !transposeA);
  const distances = distancesOf(depth, columns, transposed);
  const rowBytes = FLOAT_BYTES * columns;
  const panel = kernel.memory(Math.min(depth, DEPTH_MAX) * PANEL_VECTORS * VECTOR_BYTES);
  eachBlock(kernel, shape, { depth: DEPTH_MAX, columns: PANEL_COLUMNS }, (block, a, b) => {
    const { depth: steps, width: columns } = block;
    packPanel(kernel, { b, distances, steps, columns, transposed }, panel);
    const start = startOf(kernel, shape, block);
    const [aRows, cRows, startRows] = [kernel.word(), kernel.word(), kernel.word()];
    kernel.set(aRows, a);
    kernel.set(cRows, kernel.outputs[0]!);
    kernel.set(startRows, start.rows);
    kernel.each(blocksOf(rows, rowsAtOnce(columns)), (rows) => {
      code.move(RBX, aRows);
      code.move(R12, cRows);
      code.move(R11, startRows);
      code.addressOf(R9, panel);
      const product = { rows, columns, steps, a: distancesOfA, rowBytes, startBytes: start.rowBytes };
      multiplyPanel(kernel, product, (sum, left, right) => code.multiplyAdd(sum, left, right));
      kernel.advance(aRows, rows * distancesOfA.next);
      kernel.advance(cRows, rows * rowBytes);
      kernel.advance(startRows, rows * (start.rowBytes ?? 0));
    });
  });
}

/**
 * Kernels of operations on rows: the gated unit SwiGLU, its gradient (policy/ops.ts has the definitions), and the sum of all rows. Each
 * kernel reads and writes its tensors once. Ordinary operators read and write tensors for each multiplication.
 *
 * N rows of W floats. W is a multiple of 16.
 */
import { type Assembler, at } from "./assembler.ts";
import { exponential, exponentialTable } from "./exponential.ts";
import { blocksOf, checkMultiple, FLOAT_BYTES, type Kernel } from "./kernel.ts";
import type { MachineCodeOperator } from "./operator.ts";
import { R8, R9, RAX, RCX, RDI, RDX, RSI } from "./registers.ts";

export interface RowsShape {
  readonly rows: number;
  readonly width: number;
}

/** Vectors of constants, which `setConstants` sets, and vectors that `sigmoid` overwrites. */
const [ONE, ZERO] = [15, 14];
const SPARE = [11, 12, 13] as const;

/** Sets the registers that `sigmoid` reads. Overwrites rcx. */
function setConstants(kernel: Kernel): void {
  kernel.broadcastNumber(ONE, 1);
  kernel.code.zero(ZERO);
  kernel.code.constant(RAX, exponentialTable());
}

/** Vector `to` = 1 / (1 + e^-x) of the vector `x`. rax holds the table of the exponential. */
function sigmoid(code: Assembler, to: number, x: number): void {
  code.vector("subtract", to, ZERO, x);
  exponential(code, to, RAX, SPARE);
  code.vector("add", to, to, ONE);
  code.vector("divide", to, ONE, to);
}

/** Runs `body` for each vector of some arrays of equal size. Moves their addresses, which are in `registers`. Overwrites rcx. */
export function eachVector(kernel: Kernel, registers: readonly number[], floats: number, body: () => void): void {
  const { code } = kernel;
  kernel.countDown(RCX, floats, code.vectorWidth, () => {
    body();
    for (const register of registers) code.addConstant(register, FLOAT_BYTES * code.vectorWidth);
  });
}

/** Inputs: gate, up. Output: silu(gate) · up. */
export function swigluOperator({ rows, width }: RowsShape): MachineCodeOperator {
  checkMultiple("width", width, 16);
  return {
    inputs: ["float32", "float32"],
    outputs: [[rows, width]],
    write(kernel) {
      const { code } = kernel;
      const [gate, up, out] = [RSI, RDI, RDX];
      kernel.loadAddresses([gate, up], [out]);
      setConstants(kernel);
      eachVector(kernel, [gate, up, out], rows * width, () => {
        const [x, s] = [0, 1];
        code.loadVector(x, at(gate));
        sigmoid(code, s, x);
        code.vector("multiply", s, s, x);
        code.vector("multiply", s, s, at(up));
        code.storeVector(at(out), s);
      });
    },
  };
}

/** Inputs: gate, up, the gradient of the result. Outputs: the gradients of gate and up. */
export function swigluGradientOperator({ rows, width }: RowsShape): MachineCodeOperator {
  checkMultiple("width", width, 16);
  return {
    inputs: ["float32", "float32", "float32"],
    outputs: new Array(2).fill([rows, width]),
    write(kernel) {
      const { code } = kernel;
      const [gate, up, dy, dGate, dUp] = [RSI, RDI, RDX, R8, R9];
      kernel.loadAddresses([gate, up, dy], [dGate, dUp]);
      setConstants(kernel);
      eachVector(kernel, [gate, up, dy, dGate, dUp], rows * width, () => {
        const [x, s, silu, d, slope] = [0, 1, 2, 3, 4];
        code.loadVector(x, at(gate));
        sigmoid(code, s, x);
        code.vector("multiply", silu, s, x);
        code.loadVector(d, at(dy));
        // silu'(x) = s + s · (x - silu(x))
        code.vector("subtract", x, x, silu);
        code.vector("multiply", slope, s, x);
        code.vector("add", slope, slope, s);
        code.vector("multiply", silu, silu, d);
        code.storeVector(at(dUp), silu);
        code.vector("multiply", d, d, at(up));
        code.vector("multiply", d, d, slope);
        code.storeVector(at(dGate), d);
      });
    },
  };
}

/** Columns that `rowSumOperator` adds up at once: their sums stay in vectors. */
const SUMMED_COLUMNS = 128;

/** Input: (N, W). Output: (W), the sum of the rows. */
export function rowSumOperator({ rows, width }: RowsShape): MachineCodeOperator {
  checkMultiple("width", width, 16);
  return {
    inputs: ["float32"],
    outputs: [[width]],
    write(kernel) {
      const { code } = kernel;
      const [x, sums, xAt] = [RSI, RDI, RDX];
      kernel.loadAddresses([x], [sums]);
      kernel.each(blocksOf(width, SUMMED_COLUMNS), (columns) => {
        const vectors = Array.from({ length: columns / code.vectorWidth }, (_, i) => i);
        const place = (register: number, vector: number) => at(register, FLOAT_BYTES * code.vectorWidth * vector);
        code.move(xAt, x);
        for (const vector of vectors) code.zero(vector);
        kernel.countDown(RCX, rows, 1, () => {
          for (const vector of vectors) code.vector("add", vector, vector, place(xAt, vector));
          code.addConstant(xAt, FLOAT_BYTES * width);
        });
        for (const vector of vectors) code.storeVector(place(sums, vector), vector);
        for (const register of [x, sums]) code.addConstant(register, FLOAT_BYTES * columns);
      });
    },
  };
}

/**
 * Kernels of the model's operations on rows: the gated unit SwiGLU, its gradient, and the gradient of RMSNorm (policy/ops.ts has the
 * definitions). Each kernel reads and writes its tensors once. Ordinary operators read and write tensors for each multiplication.
 *
 * N rows of W floats. W is a multiple of 16.
 */
import { type Assembler, at, R8, R9, R10, R11, R12, R13, RAX, RBX, RCX, RDI, RDX, RSI } from "./assembler.ts";
import { exponential, exponentialTable } from "./exponential.ts";
import { checkMultiple, FLOAT_BYTES, type Kernel } from "./kernel.ts";
import type { MachineCodeOperator } from "./operator.ts";

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
function eachVector(kernel: Kernel, registers: readonly number[], floats: number, body: () => void): void {
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
      code.move(gate, kernel.inputs[0]!);
      code.move(up, kernel.inputs[1]!);
      code.move(out, kernel.outputs[0]!);
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
    outputs: [
      [rows, width],
      [rows, width],
    ],
    write(kernel) {
      const { code } = kernel;
      const [gate, up, dy, dGate, dUp] = [RSI, RDI, RDX, R8, R9];
      for (const [i, register] of [gate, up, dy].entries()) code.move(register, kernel.inputs[i]!);
      for (const [i, register] of [dGate, dUp].entries()) code.move(register, kernel.outputs[i]!);
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

/** Inputs: x, gain, 1 / the root mean square of each row, the gradient of the result. Outputs: the gradients of x and gain. */
export function rmsNormGradientOperator({ rows, width }: RowsShape): MachineCodeOperator {
  checkMultiple("width", width, 16);
  return {
    inputs: ["float32", "float32", "float32", "float32"],
    outputs: [[rows, width], [width]],
    write(kernel) {
      const { code } = kernel;
      // General registers: addresses. The last two move through dGain and gain, from the start for each row.
      const [x, gain, inverse, dy, dx, dGain, dGainAt, gainAt] = [RSI, RDI, RBX, RDX, R8, R12, R13, R10];
      // Vectors. `along` is mean(dy · gain · x) · inverse², the part of the gradient along x.
      const [product, sum, along, inverseWidth, spare, result] = [0, 1, 2, 3, 4, 5];
      for (const [i, register] of [x, gain, inverse, dy].entries()) code.move(register, kernel.inputs[i]!);
      code.move(dx, kernel.outputs[0]!);
      code.move(dGain, kernel.outputs[1]!);
      code.move(dGainAt, dGain);
      code.zero(sum);
      eachVector(kernel, [dGainAt], width, () => code.storeVector(at(dGainAt), sum));
      kernel.broadcastNumber(inverseWidth, 1 / width);
      kernel.loop(rows, 1, () => {
        const [xAt, dyAt] = [R9, R11];
        code.move(xAt, x);
        code.move(gainAt, gain);
        code.move(dyAt, dy);
        code.zero(sum);
        eachVector(kernel, [xAt, gainAt, dyAt], width, () => {
          code.loadVector(product, at(dyAt));
          code.vector("multiply", product, product, at(gainAt));
          code.multiplyAdd(sum, product, at(xAt));
        });
        code.reduce("add", along, sum, spare);
        code.vector("multiply", along, along, inverseWidth);
        const inverses = sum;
        code.broadcast(inverses, at(inverse));
        code.vector("multiply", along, along, inverses);
        code.vector("multiply", along, along, inverses);
        // dx = (dy · gain - x · along) · inverse; dGain += dy · x · inverse
        code.move(gainAt, gain);
        code.move(dGainAt, dGain);
        eachVector(kernel, [x, gainAt, dy, dx, dGainAt], width, () => {
          const [own, d] = [product, spare];
          code.loadVector(own, at(x));
          code.loadVector(d, at(dy));
          code.vector("multiply", result, d, at(gainAt));
          code.negativeMultiplyAdd(result, own, along);
          code.vector("multiply", result, result, inverses);
          code.storeVector(at(dx), result);
          code.vector("multiply", d, d, own);
          code.loadVector(result, at(dGainAt));
          code.multiplyAdd(result, d, inverses);
          code.storeVector(at(dGainAt), result);
        });
        code.addConstant(inverse, FLOAT_BYTES);
      });
    },
  };
}

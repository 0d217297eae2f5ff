/**
 * Kernels of the model's operations on rows: the gated unit SwiGLU, its gradient, and the gradient of RMSNorm (policy/ops.ts has the
 * definitions). Each reads and writes its tensors once, where ordinary operators do so for each multiplication.
 *
 * N rows of W floats, a multiple of 16.
 */
import { type Assembler, at, R8, R9, R10, R11, R12, R13, RAX, RBX, RCX, RDI, RDX, RSI } from "./assembler.ts";
import { exponential, exponentialTable } from "./exponential.ts";
import { checkMultiple, FLOAT, type Kernel } from "./kernel.ts";
import type { MachineOperator } from "./operator.ts";

export interface RowsShape {
  readonly rows: number;
  readonly width: number;
}

const [ONE, ZERO] = [15, 14];
const SPARE = [11, 12, 13] as const;

/** `to` = 1 / (1 + e^-x). The registers 11 to 13 are overwritten; rax holds the table of the exponential. */
function sigmoid(code: Assembler, to: number, x: number): void {
  code.vector("subtract", to, ZERO, x);
  exponential(code, to, RAX, SPARE);
  code.vector("add", to, to, ONE);
  code.vector("divide", to, ONE, to);
}

/** Runs `body` for each vector of some tensors of equal size, at the addresses in `registers`. */
function eachVector({ code }: Kernel, registers: readonly number[], floats: number, body: () => void): void {
  code.constant(RCX, floats);
  const again = code.label();
  code.place(again);
  body();
  for (const register of registers) code.addConstant(register, FLOAT * code.vectorWidth);
  code.addConstant(RCX, -code.vectorWidth);
  code.jumpIf("more", again);
}

/** Inputs: gate, up. Output: silu(gate) · up. */
export function swigluOperator({ rows, width }: RowsShape): MachineOperator {
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
      kernel.number(ONE, 1);
      code.zero(ZERO);
      code.constant(RAX, exponentialTable());
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
export function swigluGradientOperator({ rows, width }: RowsShape): MachineOperator {
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
      kernel.number(ONE, 1);
      code.zero(ZERO);
      code.constant(RAX, exponentialTable());
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
export function rmsNormGradientOperator({ rows, width }: RowsShape): MachineOperator {
  checkMultiple("width", width, 16);
  return {
    inputs: ["float32", "float32", "float32", "float32"],
    outputs: [[rows, width], [width]],
    write(kernel) {
      const { code } = kernel;
      const [x, gain, inverse, dy, dx, dGain, place] = [RSI, RDI, RBX, RDX, R8, R12, R13];
      const [product, sum, along, factor, spare] = [0, 1, 2, 3, 4];
      for (const [i, register] of [x, gain, inverse, dy].entries()) code.move(register, kernel.inputs[i]!);
      code.move(dx, kernel.outputs[0]!);
      code.move(dGain, kernel.outputs[1]!);
      code.move(place, dGain);
      code.zero(sum);
      eachVector(kernel, [place], width, () => code.storeVector(at(place), sum));
      kernel.number(factor, 1 / width);
      kernel.loop(rows, 1, () => {
        // along = mean(dy · gain · x) · inverse²
        code.move(R9, x);
        code.move(R10, gain);
        code.move(R11, dy);
        code.zero(sum);
        eachVector(kernel, [R9, R10, R11], width, () => {
          code.loadVector(product, at(R11));
          code.vector("multiply", product, product, at(R10));
          code.multiplyAdd(sum, product, at(R9));
        });
        code.reduce("add", along, sum, spare);
        code.vector("multiply", along, along, factor);
        code.broadcast(sum, at(inverse));
        code.vector("multiply", along, along, sum);
        code.vector("multiply", along, along, sum);
        // dx = (dy · gain - x · along) · inverse; dGain += dy · x · inverse
        code.move(R10, gain);
        code.move(place, dGain);
        eachVector(kernel, [x, R10, dy, dx, place], width, () => {
          const [own, d] = [product, spare];
          code.loadVector(own, at(x));
          code.loadVector(d, at(dy));
          code.vector("multiply", 5, d, at(R10));
          code.negativeMultiplyAdd(5, own, along);
          code.vector("multiply", 5, 5, sum);
          code.storeVector(at(dx), 5);
          code.vector("multiply", d, d, own);
          code.loadVector(5, at(place));
          code.multiplyAdd(5, d, sum);
          code.storeVector(at(place), 5);
        });
        code.addConstant(inverse, FLOAT);
      });
    },
  };
}

/** Kernels of RMSNorm and its gradient (policy/ops.ts has the definitions) on N rows of W floats. W is a multiple of 16. */
import { at } from "./assembler.ts";
import { checkMultiple, FLOAT_BYTES } from "./kernel.ts";
import type { MachineCodeOperator } from "./operator.ts";
import { R8, R9, R10, R11, R12, R13, R14, RBX, RDI, RDX, RSI } from "./registers.ts";
import { eachVector, type RowsShape } from "./rows.ts";

export interface RmsNormShape extends RowsShape {
  readonly epsilon: number;
}

/** Inputs: x, gain. Outputs: y (N, W), and the inverse (N, 1), which is 1 / sqrt(mean(x²) + epsilon) of each row. */
export function rmsNormOperator({ rows, width, epsilon }: RmsNormShape): MachineCodeOperator {
  checkMultiple("width", width, 16);
  return {
    inputs: ["float32", "float32"],
    outputs: [
      [rows, width],
      [rows, 1],
    ],
    write(kernel) {
      const { code } = kernel;
      const [x, gain, y, inverse, xAt, gainAt] = [RSI, RDI, RDX, R8, R9, R10];
      const [value, sum, spare, inverseNow, one, inverseWidth, epsilons] = [0, 1, 2, 3, 4, 5, 6];
      kernel.loadAddresses([x, gain], [y, inverse]);
      kernel.broadcastNumber(one, 1);
      kernel.broadcastNumber(inverseWidth, 1 / width);
      kernel.broadcastNumber(epsilons, epsilon);
      kernel.loop(rows, 1, () => {
        code.move(xAt, x);
        code.zero(sum);
        eachVector(kernel, [xAt], width, () => {
          code.loadVector(value, at(xAt));
          code.multiplyAdd(sum, value, value);
        });
        code.reduce("add", sum, sum, spare);
        code.timesPlus(sum, inverseWidth, epsilons);
        code.squareRoot(sum, sum);
        code.vector("divide", inverseNow, one, sum);
        code.storeFloat(at(inverse), inverseNow);
        code.addConstant(inverse, FLOAT_BYTES);
        code.move(gainAt, gain);
        eachVector(kernel, [x, gainAt, y], width, () => {
          code.vector("multiply", value, inverseNow, at(x));
          code.vector("multiply", value, value, at(gainAt));
          code.storeVector(at(y), value);
        });
      });
    },
  };
}

export interface RmsNormGradientShape extends RowsShape {
  /** True: a fifth input (N, W) is added to the gradient of x. */
  readonly addend: boolean;
}

/** Inputs: x, gain, the inverse, the gradient of y, and the addend if there is one. Outputs: the gradients of x and gain. */
export function rmsNormGradientOperator({ rows, width, addend }: RmsNormGradientShape): MachineCodeOperator {
  checkMultiple("width", width, 16);
  return {
    inputs: new Array(addend ? 5 : 4).fill("float32"),
    outputs: [[rows, width], [width]],
    write(kernel) {
      const { code } = kernel;
      // General registers: addresses. For each row, `dGainAt` and `gainAt` move through dGain and gain from their start.
      const [x, gain, inverse, dy, added, dx, dGain, dGainAt, gainAt] = [RSI, RDI, RBX, RDX, R14, R8, R12, R13, R10];
      // Vectors. `along` is mean(dy · gain · x) · inverse²: x · along is the part of the gradient along x.
      const [product, sum, along, inverseWidth, spare, result] = [0, 1, 2, 3, 4, 5];
      kernel.loadAddresses([x, gain, inverse, dy, ...(addend ? [added] : [])], [dx, dGain]);
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
        // dx = (dy · gain - x · along) · inverse + addend; dGain += dy · x · inverse
        code.move(gainAt, gain);
        code.move(dGainAt, dGain);
        eachVector(kernel, [x, gainAt, dy, dx, dGainAt, ...(addend ? [added] : [])], width, () => {
          const [own, d] = [product, spare];
          code.loadVector(own, at(x));
          code.loadVector(d, at(dy));
          code.vector("multiply", result, d, at(gainAt));
          code.negativeMultiplyAdd(result, own, along);
          code.vector("multiply", result, result, inverses);
          if (addend) code.vector("add", result, result, at(added));
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

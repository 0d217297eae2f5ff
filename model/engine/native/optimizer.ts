/**
 * Kernels of the optimizer (learn/optimizer.ts has the definitions) on S parameters. The gradient is the sum of G arrays of S values. Each
 * kernel reads and writes its arrays once. Ordinary operators read and write arrays for each addition and multiplication.
 *
 * S is a multiple of 16.
 */
import { type Address, at, atIndex } from "./assembler.ts";
import { checkMultiple, FLOAT_BYTES, type Kernel } from "./kernel.ts";
import type { MachineCodeOperator } from "./operator.ts";
import { RAX, RDX, RSI } from "./registers.ts";

export interface OptimizerShape {
  /** S. */
  readonly size: number;
  /** G. */
  readonly gradients: number;
}

export const floatInputs = (count: number) => new Array<"float32">(count).fill("float32");

/** Runs `body` for each vector of arrays of `size` floats. rdx holds the number of bytes before the vector. */
export function eachVectorAt(kernel: Kernel, size: number, body: () => void): void {
  kernel.loop(FLOAT_BYTES * size, FLOAT_BYTES * kernel.code.vectorWidth, (bytesBefore) => {
    kernel.code.move(RDX, bytesBefore);
    body();
  });
}

/** The address of an array's vector at rdx. Overwrites rax. @param array  the variable with the array's address */
export function vectorOf({ code }: Kernel, array: Address): Address {
  code.move(RAX, array);
  return atIndex(RAX, RDX, 1);
}

/** Vector `to` = the sum of the vectors of these arrays, in their order. Overwrites rax. */
export function addUp(kernel: Kernel, to: number, [first, ...others]: readonly Address[]): void {
  kernel.code.loadVector(to, vectorOf(kernel, first!));
  for (const array of others) kernel.code.vector("add", to, to, vectorOf(kernel, array));
}

/** Inputs: G gradients. Output: the sum of the squares of the gradient's values. */
export function gradientSquaresOperator({ size, gradients }: OptimizerShape): MachineCodeOperator {
  checkMultiple("size", size, 16);
  return {
    inputs: floatInputs(gradients),
    outputs: [[1]],
    write(kernel) {
      const { code } = kernel;
      const [sum, gradient, spare] = [0, 1, 2];
      code.zero(sum);
      eachVectorAt(kernel, size, () => {
        addUp(kernel, gradient, kernel.inputs);
        code.multiplyAdd(sum, gradient, gradient);
      });
      code.reduce("add", sum, sum, spare);
      code.move(RAX, kernel.outputs[0]!);
      code.storeFloat(at(RAX), sum);
    },
  };
}

/**
 * Inputs: parameters, first moment, second moment, the scalars of a step (`Optimizer.step`), G gradients. Outputs: parameters, both moments,
 * G arrays of zeros. An output may have the memory of its input.
 */
export function adamWOperator({ size, gradients }: OptimizerShape): MachineCodeOperator {
  checkMultiple("size", size, 16);
  return {
    inputs: floatInputs(4 + gradients),
    outputs: Array.from({ length: 3 + gradients }, () => [size]),
    write(kernel) {
      const { code } = kernel;
      const [parametersIn, momentIn, varianceIn, scalarsIn, ...gradientsIn] = kernel.inputs;
      const [parameter, moment, variance] = [0, 1, 2];
      const [gradient, spare] = [3, 4];
      const [clip, stepSize, decay, beta1, beta2, inverseRoot, epsilon] = [5, 6, 7, 8, 9, 10, 11] as const;
      const [rest1, rest2, zero] = [12, 13, 14];
      code.move(RSI, scalarsIn!);
      for (const [i, register] of [clip, stepSize, decay, beta1, beta2, inverseRoot, epsilon].entries())
        code.broadcast(register, at(RSI, FLOAT_BYTES * i));
      kernel.broadcastNumber(spare, 1);
      code.vector("subtract", rest1, spare, beta1);
      code.vector("subtract", rest2, spare, beta2);
      code.zero(zero);
      eachVectorAt(kernel, size, () => {
        addUp(kernel, gradient, gradientsIn);
        code.vector("multiply", gradient, gradient, clip);
        // moment · beta1 + gradient · (1 - beta1)
        code.vector("multiply", moment, beta1, vectorOf(kernel, momentIn!));
        code.vector("multiply", spare, gradient, rest1);
        code.vector("add", moment, moment, spare);
        code.vector("multiply", variance, beta2, vectorOf(kernel, varianceIn!));
        code.vector("multiply", spare, gradient, gradient);
        code.vector("multiply", spare, spare, rest2);
        code.vector("add", variance, variance, spare);
        // The step is moment / (sqrt(variance) · inverseRoot + epsilon) · stepSize.
        code.squareRoot(spare, variance);
        code.vector("multiply", spare, spare, inverseRoot);
        code.vector("add", spare, spare, epsilon);
        code.vector("divide", spare, moment, spare);
        code.vector("multiply", spare, spare, stepSize);
        code.vector("multiply", parameter, decay, vectorOf(kernel, parametersIn!));
        code.vector("subtract", parameter, parameter, spare);
        const results = [parameter, moment, variance, ...new Array<number>(gradients).fill(zero)];
        for (const [i, result] of results.entries()) code.storeVector(vectorOf(kernel, kernel.outputs[i]!), result);
      });
    },
  };
}

/** The optimizer's kernels against their definitions: every operation rounded to float32, and float64. */
import { expect, test } from "bun:test";
import { adamWOperator, gradientSquaresOperator } from "../../../../model/engine/native/optimizer.ts";
import { randomFloats as random } from "../../policy/gradient-check.ts";
import { describeWidths, expectSameBits, runKernel } from "./machine-code.ts";

const shapes = [16, 48, 1024].flatMap((size) => [1, 3, 9].map((gradients) => ({ size, gradients })));
const randomGradients = ({ size, gradients }: (typeof shapes)[number]) =>
  Array.from({ length: gradients }, (_, i) => random(size, `gradient ${i}`));

const f32 = Math.fround;

/** AdamW's step, each operation in float32: the parameters and both moments. */
function stepInFloat32(
  [parameters, moment, variance]: readonly [Float32Array, Float32Array, Float32Array],
  scalars: Float32Array,
  gradients: readonly Float32Array[],
): [Float32Array, Float32Array, Float32Array] {
  const [clip, stepSize, decay, beta1, beta2, inverseRoot, epsilon] = scalars as unknown as readonly number[];
  const after = [parameters.slice(), moment.slice(), variance.slice()] as [Float32Array, Float32Array, Float32Array];
  for (let i = 0; i < parameters.length; i++) {
    const gradient = f32(gradients.map((values) => values[i]!).reduce((sum, value) => f32(sum + value)) * clip!);
    const m = f32(f32(moment[i]! * beta1!) + f32(gradient * f32(1 - beta1!)));
    const v = f32(f32(variance[i]! * beta2!) + f32(f32(gradient * gradient) * f32(1 - beta2!)));
    const scale = f32(f32(f32(Math.sqrt(v)) * inverseRoot!) + epsilon!);
    const move = f32(f32(m / scale) * stepSize!);
    const values = [f32(f32(parameters[i]! * decay!) - move), m, v];
    for (const [array, value] of values.entries()) after[array]![i] = value;
  }
  return after;
}

describeWidths("the optimizer's kernels", (vectorWidth) => {
  test.each(shapes)("AdamW of %j has the bits of its definition, in the memory of its inputs", (shape) => {
    const { size, gradients } = shape;
    const state = ["parameters", "moment", "variance"].map((name) => random(size, name));
    const [parameters, moment, variance] = [state[0]!, state[1]!, state[2]!.map(Math.abs)];
    // The last number, the learning rate, is Muon's.
    const scalars = Float32Array.of(0.7, 0.01, 0.999, 0.9, 0.99, 1.5, 1e-3, 77);
    const given = randomGradients(shape);
    const same = Array.from({ length: 3 + gradients }, (_, i) => [i, i < 3 ? i : i + 1] as const);
    const found = runKernel(adamWOperator(shape), vectorWidth, [parameters, moment, variance, scalars, ...given], {
      same,
    });
    const expected = stepInFloat32([parameters, moment, variance], scalars, given);
    for (const [i, values] of expected.entries()) expectSameBits(found[i]!, values);
    expect(found).toHaveLength(3 + gradients);
    for (const zeros of found.slice(3)) expectSameBits(zeros, new Float32Array(size));
  });

  test.each(shapes)("the sum of squares of %j agrees with float64", (shape) => {
    const gradients = randomGradients(shape);
    const [[squares]] = runKernel(gradientSquaresOperator(shape), vectorWidth, gradients) as [Float32Array];
    const sums = Array.from({ length: shape.size }, (_, i) => gradients.reduce((sum, values) => sum + values[i]!, 0));
    const expected = sums.reduce((sum, value) => sum + value * value, 0);
    expect(Math.abs(squares! / expected - 1)).toBeLessThan(1e-6);
  });

  test("a value that is not a number makes the sum of squares not a number", () => {
    const shape = { size: 32, gradients: 2 };
    const gradients = randomGradients(shape);
    gradients[1]![21] = Number.NaN;
    const [[squares]] = runKernel(gradientSquaresOperator(shape), vectorWidth, gradients) as [Float32Array];
    expect(squares).toBeNaN();
  });

  test("refuse a number of parameters that is not a multiple of 16", () => {
    for (const operator of [adamWOperator, gradientSquaresOperator])
      expect(() => operator({ size: 24, gradients: 1 })).toThrow("size that is a multiple of 16, got 24");
  });
});

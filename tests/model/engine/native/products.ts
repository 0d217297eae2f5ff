/** Products of matrices in float64, their inputs and their shapes. */
import type { ProductShape } from "../../../../model/engine/native/product.ts";
import { randomFloats } from "../../policy/gradient-check.ts";
import { bitsOf } from "./machine-code.ts";

/** The inputs of a product. @param values  makes an array of a given length */
export function inputsOf({ rows, depth, columns, addend }: ProductShape, values = randomFloats): Float32Array[] {
  const factors = [values(rows * depth, "a"), values(depth * columns, "b")];
  if (addend === "none") return factors;
  return [...factors, values(addend === "bias" ? columns : rows * columns, "addend")];
}

/** The product in float64. `sizes` has the sum of the absolute terms of each number, because float32's error grows with this sum. */
export function expectedOf(shape: ProductShape, [a, b, added]: readonly Float32Array[]) {
  const { rows, depth, columns, transposeA, transposeB, addend } = shape;
  const sums = new Float64Array(rows * columns);
  const sizes = new Float64Array(rows * columns);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const place = row * columns + column;
      const first = addend === "none" ? 0 : added![addend === "bias" ? column : place]!;
      let [sum, size] = [first, Math.abs(first)];
      for (let k = 0; k < depth; k++) {
        const left = a![transposeA ? k * rows + row : row * depth + k]!;
        const right = b![transposeB ? column * depth + k : k * columns + column]!;
        sum += left * right;
        size += Math.abs(left * right);
      }
      sums[place] = sum;
      sizes[place] = size;
    }
  }
  return { sums, sizes };
}

/** The nearest bfloat16; of two equally near ones, the one whose last bit is 0. */
export function bfloat16(value: number): number {
  const [bits] = bitsOf(Float32Array.of(value));
  const rounded = (bits! + 0x7fff + ((bits! >>> 16) & 1)) & ~0xffff;
  return new Float32Array(Int32Array.of(rounded).buffer)[0]!;
}

/** The product of rounded factors in float64. The addend is not rounded. */
export const expectedOfRounded = (shape: ProductShape, [a, b, ...addend]: readonly Float32Array[]) =>
  expectedOf(shape, [a!.map(bfloat16), b!.map(bfloat16), ...addend]);

/** Largest error of a number, divided by its `sizes`. */
export function errorOf(found: Float32Array, { sums, sizes }: ReturnType<typeof expectedOf>): number {
  return found.reduce((worst, value, i) => Math.max(worst, Math.abs(value - sums[i]!) / sizes[i]!), 0);
}

export const SMALL: ProductShape = {
  rows: 32,
  depth: 32,
  columns: 32,
  transposeA: false,
  transposeB: false,
  addend: "none",
};

export const transposed = [
  [false, false],
  [false, true],
  [true, false],
  [true, true],
] as const;
export const addends = ["none", "bias", "matrix"] as const;

/** M, K and N. */
export const sizes = [
  [16, 32, 16], // one tile
  [32, 64, 32], // one panel
  [48, 16, 48], // half a panel at each edge, and half a round
  [80, 80, 112],
  [144, 272, 48], // two blocks of steps
  [64, 528, 80], // three blocks of steps
  [48, 48, 1040], // three blocks of columns
  [48, 1040, 16], // a panel of one vector, three blocks of steps
] as const;

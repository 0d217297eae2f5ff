/** Compares symmetric products of matrices with whole numbers, and with the kernel of other products. */
import { expect, test } from "bun:test";
import { type ProductShape, vectorProductOperator } from "../../../../model/engine/native/product.ts";
import { symmetricProductOperator } from "../../../../model/engine/native/symmetric-product.ts";
import { describeWhere } from "../../../needs.ts";
import { randomFloats as random } from "../../policy/gradient-check.ts";
import { expectSameBits, lackOf, runKernel } from "./machine-code.ts";
import { expectedOf } from "./products.ts";

/** K and N. */
const sizes = [
  [16, 16], // one block
  [48, 32], // one panel
  [32, 48], // half a panel at the edge
  [128, 128],
  [272, 80], // two blocks of steps
  [784, 112], // four blocks of steps
  [16, 336],
] as const;

const productShape = (depth: number, columns: number): ProductShape => ({
  rows: columns,
  depth,
  columns,
  transposeA: true,
  transposeB: false,
  addend: "none",
});

describeWhere(lackOf(16), "the symmetric product of matrices", () => {
  test.each(sizes)("of a matrix (%p, %p) and itself has the bits of the other kernel's product", (depth, columns) => {
    const matrix = random(depth * columns, "a");
    const [found] = runKernel(symmetricProductOperator({ depth, columns }), 16, [matrix, matrix]);
    const [expected] = runKernel(vectorProductOperator(productShape(depth, columns)), 16, [matrix, matrix]);
    expectSameBits(found!, expected!);
  });

  test.each([16, 48, 80, 288])("of a symmetric matrix (%p, %p) and its square is exact for whole numbers", (size) => {
    const productOf = (...factors: Float32Array[]) =>
      Float32Array.from(expectedOf(productShape(size, size), factors).sums);
    const entry = (row: number, column: number) => ((row * column + row + column) % 7) - 3;
    const matrix = Float32Array.from({ length: size ** 2 }, (_, i) => entry(Math.floor(i / size), i % size));
    const square = productOf(matrix, matrix);
    const operator = symmetricProductOperator({ depth: size, columns: size });
    const [found] = runKernel(operator, 16, [matrix, square]);
    expectSameBits(found!, productOf(matrix, square));
  });

  test.each([
    [{ depth: 24, columns: 32 }, "this kernel needs a depth that is a multiple of 16, got 24"],
    [{ depth: 32, columns: 40 }, "this kernel needs a number of columns that is a multiple of 16, got 40"],
    [{ depth: 32, columns: 0 }, "this kernel needs a number of columns that is a multiple of 16, got 0"],
  ])("refuses %j", (shape, message) => {
    expect(() => symmetricProductOperator(shape)).toThrow(new RangeError(message));
  });
});

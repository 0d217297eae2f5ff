/** Compares products of matrices on vectors and on tiles with float64, and tests the instructions of tiles. */
import { expect, test } from "bun:test";
import { at, atIndex } from "../../../../model/engine/native/assembler.ts";
import { machineInstructions, missingForBfloat16 } from "../../../../model/engine/native/machine.ts";
import { type ProductShape, vectorProductOperator } from "../../../../model/engine/native/product.ts";
import { R12, R13, RAX } from "../../../../model/engine/native/registers.ts";
import { roundedProductOperator } from "../../../../model/engine/native/rounded-product.ts";
import { tileProductOperator } from "../../../../model/engine/native/tile-product.ts";
import { describeWhere } from "../../../needs.ts";
import { randomFloats as random } from "../../policy/gradient-check.ts";
import {
  addressOf,
  argument,
  describeTiles,
  expectSameBits,
  floats,
  lackOf,
  machineFunction,
  runKernel,
  TestKernel,
} from "./machine-code.ts";
import { addends, errorOf, expectedOf, expectedOfRounded, inputsOf, SMALL, sizes, transposed } from "./products.ts";

const kinds = [
  ["on vectors", vectorProductOperator, lackOf(16), expectedOf],
  ["on tiles", tileProductOperator, machineInstructions() === "AMX" ? null : "no AMX", expectedOf],
  ["with rounded factors", roundedProductOperator, missingForBfloat16(), expectedOfRounded],
] as const;

for (const [kind, productOperator, lack, expectedOf] of kinds) {
  describeWhere(lack, `the product of matrices ${kind}`, () => productTests(productOperator, expectedOf));
}

function productTests(productOperator: typeof vectorProductOperator, expectedOf: typeof expectedOfRounded): void {
  const shapes = sizes.flatMap(([rows, depth, columns]) =>
    transposed.flatMap(([transposeA, transposeB]) =>
      addends.map((addend): ProductShape => ({ rows, depth, columns, transposeA, transposeB, addend })),
    ),
  );

  test.each(shapes.map((shape) => [shape] as const))("of %j has float32's error", (shape) => {
    const inputs = inputsOf(shape);
    const [found] = runKernel(productOperator(shape), 16, inputs);
    expect(errorOf(found!, expectedOf(shape, inputs))).toBeLessThan(2.5e-7);
  });

  test.each([1, 5, 15, 17, 31, 33, 47, 49, 79, 97])(
    "with %p rows has float32's error, and reads no memory behind the left factor",
    (rows) => {
      for (const [depth, columns] of [
        [48, 80],
        [288, 16],
      ] as const) {
        const shape: ProductShape = { ...SMALL, rows, depth, columns, addend: "matrix" };
        const inputs = inputsOf(shape);
        const [found] = runKernel(productOperator(shape), 16, inputs);
        expect(errorOf(found!, expectedOf(shape, inputs))).toBeLessThan(2.5e-7);
      }
    },
  );

  test("is exact for factors of 24 bits whose sums a float32 can hold", () => {
    const shape = SMALL;
    // Each part of these numbers has all of its 8 bits, with both signs.
    const a = Float32Array.from(
      { length: 1024 },
      (_, i) => (2 ** 23 + ((i * 7_654_321) % 2 ** 23)) * (i % 2 === 0 ? 1 : -1),
    );
    // One number that is not 0 in each column, so each sum has one term.
    const b = Float32Array.from({ length: 1024 }, (_, i) => (i % 33 === 0 ? [1, -2, 0.25][i % 3]! : 0));
    const [found] = runKernel(productOperator(shape), 16, [a, b]);
    expectSameBits(found!, Float32Array.from(expectedOf(shape, [a, b]).sums));
  });

  test("errs as often upward as downward", () => {
    const shape: ProductShape = { ...SMALL, rows: 96, columns: 96 };
    // Positive numbers that fill their 24 bits.
    const inputs = inputsOf(shape).map((values, input) =>
      values.map((_, i) => ((Math.imul(2 * i + input + 1, 0x9e37_79b1) >>> 8) + 1) / 2 ** 24),
    );
    const [found] = runKernel(productOperator(shape), 16, inputs);
    const { sums } = expectedOf(shape, inputs);
    const errors = Array.from(found!, (value, i) => (value - sums[i]!) / sums[i]!);
    expect(Math.abs(errors.reduce((a, b) => a + b) / errors.length)).toBeLessThan(1e-8);
  });

  test("has float32's error for small numbers, also if other rows and columns have large numbers", () => {
    const shape = SMALL;
    const scaled = (length: number, name: string, scale: (i: number) => number) =>
      random(length, name).map((value, i) => value * scale(i));
    const a = scaled(1024, "a", (i) => 2 ** (Math.floor(i / 32) - 16));
    const b = scaled(1024, "b", (i) => 2 ** (2 * (i % 32) - 32));
    const [found] = runKernel(productOperator(shape), 16, [a, b]);
    expect(errorOf(found!, expectedOf(shape, [a, b]))).toBeLessThan(2.5e-7);
  });

  test.each([Number.NaN, Number.POSITIVE_INFINITY])(
    "with %p in one row of the left factor is not finite in this row, and finite in all others",
    (bad) => {
      const shape: ProductShape = { ...SMALL, rows: 48 };
      const inputs = inputsOf(shape);
      inputs[0]![33 * 32 + 7] = bad;
      const [found] = runKernel(productOperator(shape), 16, inputs);
      expect(found!.every((value, i) => Number.isFinite(value) !== (Math.floor(i / 32) === 33))).toBe(true);
    },
  );

  test.each(sizes)("of %p · %p · %p is added to a matrix in place", (rows, depth, columns) => {
    const shape: ProductShape = { ...SMALL, rows, depth, columns, transposeA: true, addend: "matrix" };
    const inputs = inputsOf(shape);
    const kernel = new TestKernel(productOperator(shape), 16, inputs, { same: [[0, 2]] });
    expect(errorOf(kernel.run()[0]!, expectedOf(shape, inputs))).toBeLessThan(2.5e-7);
    kernel.free();
  });

  test.each([
    [{ depth: 24 }, "this kernel needs a depth that is a multiple of 16, got 24"],
    [{ columns: 8 }, "this kernel needs a number of columns that is a multiple of 16, got 8"],
    [{ rows: 0 }, "this kernel needs a number of rows that is a multiple of 1, got 0"],
  ] satisfies [Partial<ProductShape>, string][])("refuses %j", (part, message) => {
    expect(() => productOperator({ ...SMALL, ...part })).toThrow(new RangeError(message));
  });
}

test.each([tileProductOperator, roundedProductOperator])("%p refuses 40 rows of a transposed left factor", (make) => {
  const message = "this kernel needs a number of rows that is a multiple of 16, got 40";
  expect(() => make({ ...SMALL, rows: 40, transposeA: true })).toThrow(new RangeError(message));
});

for (const [kind, productOperator, lack] of [kinds[0], kinds[2]]) {
  describeWhere(lack, `the product of matrices ${kind}`, () => {
    test.each([1, 4, 6, 7, 61])("gives each row the same bits, alone or among %p rows", (rows) => {
      const shape: ProductShape = { ...SMALL, rows, depth: 528, columns: 80, transposeB: true };
      const [a, b] = inputsOf(shape);
      const [found] = runKernel(productOperator(shape), 16, [a!, b!]);
      const last = a!.slice((rows - 1) * shape.depth);
      const [alone] = runKernel(productOperator({ ...shape, rows: 1 }), 16, [last, b!]);
      expectSameBits(found!.slice((rows - 1) * shape.columns), alone!);
    });
  });
}

describeWhere(lackOf(16), "the product of matrices on vectors", () => {
  test.each([1, 7, 25, 40])("of %p rows of a transposed left factor has float32's error", (rows) => {
    const shape: ProductShape = { ...SMALL, rows, depth: 48, columns: 80, transposeA: true, addend: "matrix" };
    const inputs = inputsOf(shape);
    const [found] = runKernel(vectorProductOperator(shape), 16, inputs);
    expect(errorOf(found!, expectedOf(shape, inputs))).toBeLessThan(2.5e-7);
  });
});

describeTiles("the assembler", () => {
  /** A configuration of 8 tiles with `rows` rows of 64 bytes. */
  const configuration = (rows: number) => {
    const bytes = new Uint8Array(new ArrayBuffer(64));
    bytes[0] = 1;
    for (let tile = 0; tile < 8; tile++) {
      bytes[16 + 2 * tile] = 64;
      bytes[48 + tile] = rows;
    }
    return bytes;
  };

  test.each([16, 5])("loads, clears and stores %p rows of each tile, with 80 and 96 bytes from row to row", (rows) => {
    const data = floats(8 * 16 * 20, (i) => i + 1);
    const out = floats(9 * 16 * 24, () => -1);
    const bytes = configuration(rows);
    machineFunction(16, (code) => {
      code.constant(RAX, addressOf(bytes));
      code.configureTiles(at(RAX));
      code.constant(R13, 80);
      code.move(R12, argument(0));
      for (let tile = 0; tile < 8; tile++) code.loadTile(tile, atIndex(R12, R13, 1, tile * 16 * 80));
      code.zeroTile(3);
      code.constant(R13, 48);
      code.move(RAX, argument(1));
      for (let tile = 0; tile < 8; tile++) code.storeTile(atIndex(RAX, R13, 2, tile * 16 * 96), tile);
      code.releaseTiles();
    })(addressOf(data), addressOf(out));
    const expected = out.map((_, i) => {
      const [tile, row, column] = [Math.floor(i / 384), Math.floor((i % 384) / 24), i % 24];
      if (tile === 8 || row >= rows || column >= 16) return -1;
      return tile === 3 ? 0 : data[(tile * 16 + row) * 20 + column]!;
    });
    expectSameBits(out, expected);
  });

  test("multiplyTiles adds the products of pairs of bfloat16 to each of the 8 tiles", () => {
    const bfloat = (value: number) => new Uint16Array(Float32Array.of(value).buffer)[1]!;
    const half = (tile: number) => (row: number, i: number) => ((tile * 31 + row * 7 + i * 3) % 13) - 6;
    const packed = floats(8 * 256);
    const words = new Uint16Array(packed.buffer);
    for (let tile = 0; tile < 8; tile++)
      for (let row = 0; row < 16; row++)
        for (let i = 0; i < 32; i++) words[tile * 512 + row * 32 + i] = bfloat(half(tile)(row, i));
    const bytes = configuration(16);
    for (let to = 0; to < 8; to++) {
      const [a, b] = [(to + 3) % 8, (to + 6) % 8];
      const out = floats(256);
      machineFunction(16, (code) => {
        code.constant(RAX, addressOf(bytes));
        code.configureTiles(at(RAX));
        code.constant(R13, 64);
        code.move(R12, argument(0));
        for (const tile of [a, b]) code.loadTile(tile, atIndex(R12, R13, 1, tile * 1024));
        code.multiplyTiles(to, a, b);
        code.multiplyTiles(to, a, b);
        code.move(RAX, argument(1));
        code.storeTile(atIndex(RAX, R13, 1), to);
        code.releaseTiles();
      })(addressOf(packed), addressOf(out));
      const expected = out.map((_, i) => {
        const [m, n] = [Math.floor(i / 16), i % 16];
        let sum = 0;
        for (let k = 0; k < 16; k++)
          for (const part of [0, 1]) sum += half(a)(m, 2 * k + part) * half(b)(k, 2 * n + part);
        return 2 * sum;
      });
      expectSameBits(out, expected);
    }
  });
});

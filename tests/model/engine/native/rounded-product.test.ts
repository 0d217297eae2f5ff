/** Products whose factors are rounded to bfloat16: their error and their instructions. product.test.ts has the rest. */
import { expect, test } from "bun:test";
import { at } from "../../../../model/engine/native/assembler.ts";
import { missingForBfloat16 } from "../../../../model/engine/native/machine.ts";
import type { ProductShape } from "../../../../model/engine/native/product.ts";
import { roundedProductOperator } from "../../../../model/engine/native/rounded-product.ts";
import { describeWhere } from "../../../needs.ts";
import { addressOf, argument, floats, machineFunction, runKernel } from "./machine-code.ts";
import { bfloat16, expectedOf, inputsOf, SMALL } from "./products.ts";

describeWhere(missingForBfloat16(), "a product with rounded factors", () => {
  test("has an error of about 2e-3 of the root of the sum of its squared terms", () => {
    const shape: ProductShape = { ...SMALL, rows: 96, depth: 256, columns: 96 };
    const inputs = inputsOf(shape);
    const [found] = runKernel(roundedProductOperator(shape), 16, inputs);
    const { sums } = expectedOf(shape, inputs);
    const squares = expectedOf(
      shape,
      inputs.map((values) => values.map((value) => value ** 2)),
    ).sums;
    const errors = Array.from(found!, (value, i) => (value - sums[i]!) ** 2 / squares[i]!);
    const error = Math.sqrt(errors.reduce((a, b) => a + b) / errors.length);
    expect(error).toBeGreaterThan(1.5e-3);
    expect(error).toBeLessThan(3e-3);
  });

  test.each([1, 30])(
    "toBfloats rounds to the nearest, and orderHalves puts pairs side by side, in register %p",
    (to) => {
      const low = floats(16, (i) => 1 + i / 256 + 2 ** -9);
      const high = floats(16, (i) => -3 - i / 64);
      low[3] = Number.NaN;
      const places = floats(16);
      new Uint16Array(places.buffer).set(
        Array.from({ length: 32 }, (_, i) => (i % 2 === 0 ? i / 2 : 16 + (i - 1) / 2)),
      );
      const out = floats(16);
      machineFunction(16, (code) => {
        code.move(0, argument(0));
        code.move(1, argument(1));
        code.move(2, argument(2));
        code.move(3, argument(3));
        code.loadVector(20, at(1));
        code.loadVector(21, at(2));
        code.toBfloats(to, at(0), 20);
        code.orderHalves(to, 21, to);
        code.storeVector(at(3), to);
      })(...[low, high, places, out].map(addressOf));
      const words = new Uint16Array(out.buffer);
      const read = (word: number) => new Float32Array(Int32Array.of(word << 16).buffer)[0]!;
      const expected = Array.from(low, (value, i) => [value, high[i]!].map((x) => (Number.isNaN(x) ? x : bfloat16(x))));
      expect(Array.from({ length: 16 }, (_, i) => [read(words[2 * i]!), read(words[2 * i + 1]!)])).toEqual(expected);
    },
  );
});

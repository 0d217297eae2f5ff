/** Which matrix products run kernels of ours, and that these products equal their definitions in onnxruntime and tfjs. */
import { describe, expect, test } from "bun:test";
import * as tf from "@tensorflow/tfjs-core";
import { compiledEngine } from "../../../../model/engine/compiled.ts";
import { type Engine, f32, type Spec, type TensorFunction } from "../../../../model/engine/engine.ts";
import { type Instructions, missingForBfloat16 } from "../../../../model/engine/native/machine.ts";
import { type Bfloat16Products, type Target, trace } from "../../../../model/engine/trace.ts";
import { linear } from "../../../../model/policy/ops.ts";
import { describeWhere } from "../../../needs.ts";
import { farthest } from "../../farthest.ts";
import { bitsOf, describeTiles, expectSameBits, lackOf } from "./machine-code.ts";
import { transposed } from "./products.ts";
import { type Case, definition, evaluated, ours, weighed } from "./traced.ts";

function productCase(rows: number, depth: number, columns: number, [transposeA, transposeB] = [false, false]): Case {
  return {
    build: ({ a, b }) => ({ y: tf.matMul(a!, b!, transposeA, transposeB) }),
    specs: {
      a: transposeA ? f32(depth, rows) : f32(rows, depth),
      b: transposeB ? f32(columns, depth) : f32(depth, columns),
    },
  };
}

/** `linear` and its gradients. Each is a product with an addend: a gradient is added to an earlier gradient. */
function linearCase(addend: Spec): Case {
  const of = weighed(["x", "weight"], ({ x, weight, addend }) => linear(x!, weight!, addend!));
  return {
    build: (given) => {
      const { y, ...gradients } = of(given);
      const sums = Object.entries(gradients).map(([name, d]) => [name, tf.add(given[`earlier ${name}`]!, d)]);
      return { y: y!, ...Object.fromEntries(sums) };
    },
    specs: {
      x: f32(144, 32),
      weight: f32(128, 32),
      addend,
      dy: f32(144, 128),
      "earlier d x": f32(144, 32),
      "earlier d weight": f32(128, 32),
    },
  };
}

describe("a traced product of matrices", () => {
  const operators = (of: Case, target: Target) => trace(of.build, of.specs, target).graph.nodes.map(({ op }) => op);

  test.each(transposed)(
    "is a node of ours on a CPU with AVX-512 or tiles, with its factors transposed or not (%p, %p)",
    (left, right) => {
      const product = productCase(128, 48, 32, [left, right]);
      expect(operators(product, "AVX-512")).toEqual([`Product_128_48_32_${left}_${right}_none`]);
      expect(operators(product, "AMX")).toEqual([`TileProduct_128_48_32_${left}_${right}_none`]);
      for (const target of ["cpu", "webgpu", "cuda", "AVX2"] as const) expect(ours(product, target)).toEqual([]);
    },
  );

  test.each([
    ["steps that are no multiple of 16", productCase(128, 40, 32)],
    ["columns that are no multiple of 16", productCase(128, 48, 24)],
    ["a batch", { build: ({ a, b }) => ({ y: tf.matMul(a!, b!) }), specs: { a: f32(2, 128, 48), b: f32(2, 48, 32) } }],
  ] satisfies [string, Case][])("with %s runs in onnxruntime", (_, of) => {
    for (const target of ["AVX-512", "AMX"] as const) expect(ours(of, target)).toEqual([]);
  });

  test("with columns of its left factor that are no multiple of 16 runs in onnxruntime where tiles would multiply", () => {
    const turned = productCase(129, 48, 32, [true, false]);
    expect(ours(turned, "AMX")).toEqual([]);
    expect(ours(turned, "AVX-512")).toEqual(["Product"]);
  });

  test.each([
    ["a bias", f32(128), "bias"],
    ["a matrix", f32(144, 128), "matrix"],
  ] as const)("contains the addition of %s, and the sum with an earlier gradient", (_, addend, kind) => {
    for (const [target, name] of [
      ["AVX-512", "Product"],
      ["AMX", "TileProduct"],
    ] as const) {
      const nodes = operators(linearCase(addend), target).filter((op) => /^(Tile|Product|Add)/.test(op));
      expect(nodes).toEqual([
        `${name}_144_32_128_false_true_${kind}`,
        `${name}_144_128_32_false_false_matrix`,
        `${name}_128_144_32_true_false_matrix`,
      ]);
    }
  });

  test("has rounded factors where the graph asks for it: in gradients, or in linear layers too", () => {
    const { build, specs } = linearCase(f32(144, 128));
    for (const [target, name] of [
      ["AVX-512", "Product"],
      ["AMX", "TileProduct"],
    ] as const) {
      for (const [rounded, forward] of [
        ["gradients", name],
        ["all", "RoundedProduct"],
      ] as const) {
        const nodes = trace(build, specs, target, rounded).graph.nodes.map(({ op }) => op);
        expect(nodes.filter((op) => /Product|Add/.test(op))).toEqual([
          `${forward}_144_32_128_false_true_matrix`,
          "RoundedProduct_144_128_32_false_false_matrix",
          "RoundedProduct_128_144_32_true_false_matrix",
        ]);
      }
    }
    for (const target of ["cpu", "webgpu", "cuda", "AVX2"] as const)
      expect(trace(build, specs, target, "all").graph).toEqual(trace(build, specs, target).graph);
  });

  test.each([1, 4, 127])(
    "is a node of ours with %p rows: a row's result does not depend on the number of rows",
    (rows) => {
      expect(ours(productCase(rows, 48, 32), "AVX-512")).toEqual(["Product"]);
      expect(ours(productCase(rows, 48, 32), "AMX")).toEqual(["TileProduct"]);
    },
  );

  test("does not contain the addition of a matrix of another shape", () => {
    const build: TensorFunction = ({ a, b, row }) => ({ y: tf.add(tf.matMul(a!, b!), row!) });
    const nodes = operators({ build, specs: { a: f32(128, 16), b: f32(16, 32), row: f32(32) } }, "AMX");
    expect(nodes).toEqual(["TileProduct_128_16_32_false_false_none", "Add"]);
  });
});

describeWhere(lackOf(16), "a compiled function, on vectors of 16 floats,", () => productTests("AVX-512"));
describeWhere(missingForBfloat16(), "a compiled function that rounds factors", () => {
  const of = linearCase(f32(144, 128));
  const resultsOf = (bfloat16Products: Bfloat16Products) =>
    evaluated(compiledEngine({ threads: 1, instructions: "AVX-512", bfloat16Products }), of);
  const length = (values: Float32Array) => Math.hypot(...values);
  function expectNear(found: Float32Array, expected: Float32Array): void {
    const gap = length(found.map((value, i) => value - expected[i]!)) / length(expected);
    expect(gap).toBeGreaterThan(1e-3);
    expect(gap).toBeLessThan(3e-3);
  }

  test("of gradients has gradients near those of its definition, and the same bits in all other results", async () => {
    const [expected, found] = [await resultsOf("none"), await resultsOf("gradients")];
    expectSameBits(found["y"]!, expected["y"]!);
    for (const name of ["d x", "d weight"]) expectNear(found[name]!, expected[name]!);
  });

  test("of all products has all results near those of its definition", async () => {
    const [expected, found] = [await resultsOf("none"), await resultsOf("all")];
    for (const name of ["y", "d x", "d weight"]) expectNear(found[name]!, expected[name]!);
  });
});

describeTiles("a compiled function", () => {
  productTests("AMX");

  test("whose products have few rows runs without tiles, as the bits of its results show", async () => {
    const engine = compiledEngine({ threads: 1, instructions: "AMX" });
    const few: Engine = {
      ...engine,
      compile: (name, build, inputs) => engine.compile(name, build, inputs, { fewRows: true }),
    };
    const withoutTiles = compiledEngine({ threads: 1, instructions: "AVX-512" });
    const bits = async (on: Engine) => bitsOf((await evaluated(on, productCase(144, 48, 32)))["y"]!);
    const expected = await bits(withoutTiles);
    expect(await bits(few)).toEqual(expected);
    expect(await bits(engine)).not.toEqual(expected);
  });
});

function productTests(instructions: Instructions): void {
  const engine = compiledEngine({ threads: 1, instructions });

  test.each([
    ["a product", productCase(144, 48, 32)],
    ["a linear layer with a bias", linearCase(f32(128))],
    ["a linear layer with a matrix", linearCase(f32(144, 128))],
  ])("of %s equals its definition", async (_, of) => {
    const [found, expected] = [await evaluated(engine, of), await definition(of)];
    expect(Object.keys(found)).toEqual(Object.keys(expected));
    for (const [name, values] of Object.entries(expected)) {
      const largest = Math.max(...values.map(Math.abs));
      expect(farthest(found[name]!, values) / largest).toBeLessThan(1e-6);
    }
  });

  test("has room for the packed blocks of a large product on the stack of each lane", async () => {
    const several = compiledEngine({ threads: 2, instructions });
    const [rows, depth, columns] = [128, 512, 1024];
    const { build, specs } = productCase(rows, depth, columns, [true, true]);
    const run = await several.compile("large", build, specs, { inLane: true });
    const job = () => {
      const inputs = { a: several.array(specs["a"]!), b: several.array(specs["b"]!) };
      for (const array of Object.values(inputs))
        array.write(Float32Array.from({ length: array.read().length }, (_, i) => (i % 7) - 3));
      return { run, inputs, outputs: { y: several.array(run.outputs["y"]!) } };
    };
    const jobs = [job(), job()];
    await several.runLanes(jobs.map((each) => [each]));
    // Whole numbers, so sums are exact.
    const sum = (row: number, column: number) => {
      let sum = 0;
      for (let k = 0; k < depth; k++) sum += (((k * rows + row) % 7) - 3) * (((column * depth + k) % 7) - 3);
      return sum;
    };
    const expected = Float32Array.from({ length: rows * columns }, (_, i) => sum(Math.floor(i / columns), i % columns));
    for (const { outputs } of jobs) expectSameBits(outputs.y.read() as Float32Array, expected);
    await run.dispose();
  });
}

/** Engines: the compiled one equals the eager one, operation by operation; refusals; release of memory. */
import { describe, expect, test } from "bun:test";
import { join } from "node:path";
import * as tf from "@tensorflow/tfjs-core";
import { compiledEngine } from "../../../model/engine/compiled.ts";
import { eagerEngine } from "../../../model/engine/eager.ts";
import {
  type Device,
  type Engine,
  f32,
  i32,
  lanesFor,
  type Spec,
  type TensorFunction,
} from "../../../model/engine/engine.ts";
import { OrtSession } from "../../../model/engine/onnxruntime.ts";
import { selfCheck } from "../../../model/engine/self-check.ts";
import { trace } from "../../../model/engine/trace.ts";
import { appendAttention, cachedAttention } from "../../../model/policy/cached-attention.ts";
import { farthest } from "../farthest.ts";
import { randomValues } from "../policy/gradient-check.ts";
import { engines } from "./engines.ts";

const compiled = compiledEngine({ threads: 1 });
const eager = eagerEngine();

/** Floats in about [-1.5, 1.5]; whole numbers in [0, 4). */
function fill(engine: Engine, name: string, spec: Spec) {
  const values = randomValues(
    spec.shape.reduce((size, dim) => size * dim, 1),
    name,
  );
  const whole = Int32Array.from(values, (value) => Math.min(3, Math.floor((value + 1.5) * 1.333)));
  return engine.array(spec, spec.dtype === "float32" ? Float32Array.from(values) : whole);
}

async function evaluate(engine: Engine, build: TensorFunction, inputs: Readonly<Record<string, Spec>>) {
  const run = await engine.compile("evaluated", build, inputs);
  const given = Object.fromEntries(Object.entries(inputs).map(([name, spec]) => [name, fill(engine, name, spec)]));
  const results = Object.fromEntries(Object.entries(run.outputs).map(([name, spec]) => [name, engine.array(spec)]));
  await run.run(given, results);
  await run.dispose();
  return { values: results["y"]!.read(), spec: run.outputs["y"]! };
}

const [a, b, c] = [f32(2, 3, 4), f32(2, 3, 4), f32(3, 1)];
const i = i32(2, 3);
type Inputs = Readonly<Record<string, tf.Tensor>>;
type Case = [name: string, inputs: Record<string, Spec>, y: (x: Inputs) => tf.Tensor];
const positive = (x: tf.Tensor) => tf.add(tf.abs(x), 0.5);

/** Every kernel that lowerings.ts knows. */
const operations: Case[] = [
  ["add, broadcast", { a, c }, ({ a, c }) => tf.add(a!, c!)],
  ["subtract", { a, b }, ({ a, b }) => tf.sub(a!, b!)],
  ["multiply, whole numbers", { i }, ({ i }) => tf.mul(i!, i!)],
  ["divide", { a, b }, ({ a, b }) => tf.div(a!, positive(b!))],
  ["divide by 0 and by -0", { a }, ({ a }) => tf.mul(tf.greater(tf.div(a!, 0), tf.div(a!, -0)), 1)],
  ["maximum", { a, b }, ({ a, b }) => tf.maximum(a!, b!)],
  ["minimum", { a, b }, ({ a, b }) => tf.minimum(a!, b!)],
  ["exp", { a }, ({ a }) => tf.exp(a!)],
  ["log", { a }, ({ a }) => tf.log(positive(a!))],
  ["neg", { a }, ({ a }) => tf.neg(a!)],
  ["sqrt", { a }, ({ a }) => tf.sqrt(positive(a!))],
  ["sigmoid", { a }, ({ a }) => tf.sigmoid(a!)],
  ["tanh", { a }, ({ a }) => tf.tanh(a!)],
  ["square", { a }, ({ a }) => tf.square(a!)],
  ["clip", { a }, ({ a }) => tf.clipByValue(a!, -0.5, 0.25)],
  ["greater", { a, b }, ({ a, b }) => tf.cast(tf.greater(a!, b!), "float32")],
  ["greater or equal", { a, b }, ({ a, b }) => tf.cast(tf.greaterEqual(a!, b!), "float32")],
  ["less", { a, b }, ({ a, b }) => tf.cast(tf.less(a!, b!), "float32")],
  ["less or equal", { a, b }, ({ a, b }) => tf.cast(tf.lessEqual(a!, b!), "float32")],
  ["and", { a, b }, ({ a, b }) => tf.cast(tf.logicalAnd(tf.greater(a!, 0), tf.less(b!, 0)), "float32")],
  ["select", { a, b }, ({ a, b }) => tf.where(tf.greater(a!, b!), a!, tf.neg(b!))],
  ["cast to whole numbers and back", { i }, ({ i }) => tf.cast(i!, "float32")],
  ["reshape", { a }, ({ a }) => tf.reshape(a!, [4, -1])],
  ["expand", { a }, ({ a }) => tf.expandDims(a!, -2)],
  ["transpose", { a }, ({ a }) => tf.transpose(a!, [2, 0, 1])],
  ["product", { a, b }, ({ a, b }) => tf.matMul(a!, tf.transpose(b!, [0, 2, 1]))],
  ["product, left transposed", { a, b }, ({ a, b }) => tf.matMul(a!, b!, true, false)],
  ["product, right transposed", { a, b }, ({ a, b }) => tf.matMul(a!, b!, false, true)],
  ["sum of an axis", { a }, ({ a }) => tf.sum(a!, 1)],
  ["sum of everything", { a }, ({ a }) => tf.sum(a!)],
  ["mean, kept", { a }, ({ a }) => tf.mean(a!, -1, true)],
  ["max", { a }, ({ a }) => tf.max(a!, 0)],
  ["softmax", { a }, ({ a }) => tf.softmax(a!, -1)],
  ["log softmax", { a }, ({ a }) => tf.logSoftmax(a!, -1)],
  ["concatenate", { a, b }, ({ a, b }) => tf.concat([a!, b!, a!], 1)],
  ["slice", { a }, ({ a }) => tf.slice(a!, [0, 1, 1], [-1, 2, 2])],
  ["split", { a }, ({ a }) => tf.split(a!, [1, 3], 2)[1]!],
  [
    "pad",
    { a },
    ({ a }) =>
      tf.pad(
        a!,
        [
          [0, 1],
          [2, 0],
          [0, 0],
        ],
        0.5,
      ),
  ],
  ["tile", { a }, ({ a }) => tf.tile(a!, [1, 2, 3])],
  ["range", { a }, ({ a }) => tf.add(tf.range(0, 4, 1), a!)],
  ["zeros like", { a }, ({ a }) => tf.add(tf.zerosLike(a!), 1)],
  ["gather", { a, i }, ({ a, i }) => tf.gather(tf.reshape(a!, [6, 4]), i!)],
  ["gather along another axis", { a, i }, ({ a, i }) => tf.gather(a!, tf.reshape(i!, [6]), 2)],
  [
    "scatter rows",
    { a },
    ({ a }) => tf.tensorScatterUpdate(tf.reshape(a!, [6, 4]), tf.tensor([[4], [1]], [2, 1], "int32"), tf.ones([2, 4])),
  ],
  [
    "add up rows by index",
    { a, i },
    ({ a, i }) => tf.unsortedSegmentSum(tf.reshape(a!, [6, 4]) as tf.Tensor2D, tf.reshape(i!, [6]) as tf.Tensor1D, 5),
  ],
  ["one-hot", { i }, ({ i }) => tf.cast(tf.oneHot(i as tf.Tensor2D, 5, 2, -1), "float32")],
];

describe("the compiled engine equals the eager one", () => {
  test.each(operations.map(([name]) => name))("%s", async (name) => {
    const [, inputs, y] = operations.find((operation) => operation[0] === name)!;
    const build = (x: Inputs) => ({ y: y(x) });
    const [fast, plain] = [await evaluate(compiled, build, inputs), await evaluate(eager, build, inputs)];
    expect(fast.spec).toEqual(plain.spec);
    expect(farthest(fast.values, plain.values)).toBeLessThan(1e-6);
  });
});

const add: TensorFunction = ({ x, y }) => ({ sum: tf.add(x!, y!) });
const specs = { x: f32(2, 2), y: f32(2, 2) };

describe.each(engines)("the %s engine", (_, engine) => {
  const [x, y] = [engine.array(f32(2, 2), Float32Array.of(1, 2, 3, 4)), engine.array(f32(2, 2))];

  test("computes a known product", async () => {
    await selfCheck(engine);
  });

  test("works on the caller's own memory", async () => {
    const memory = Float32Array.of(1, 2, 3, 4);
    const array = engine.array(f32(2, 2), memory);
    memory[0] = 10;
    const sum = new Float32Array(4);
    const run = await engine.compile("add", add, specs);
    await run.run({ x: array, y: array }, { sum: engine.array(f32(2, 2), sum) });
    expect([...sum]).toEqual([20, 4, 6, 8]);
  });

  test("updates in place where an output is an input", async () => {
    const total = engine.array(f32(2, 2));
    const run = await engine.compile("add", add, specs);
    for (let i = 0; i < 3; i++) await run.run({ x, y: total }, { sum: total });
    expect([...total.read()]).toEqual([3, 6, 9, 12]);
  });

  test("returns one value under two names, and an input under a third name", async () => {
    const build: TensorFunction = ({ x, y }) => {
      const sum = tf.add(x!, y!);
      return { sum, again: tf.clone(sum), x: tf.clone(x!) };
    };
    const run = await engine.compile("names", build, specs);
    const out = { sum: engine.array(f32(2, 2)), again: engine.array(f32(2, 2)), x: engine.array(f32(2, 2)) };
    await run.run({ x, y: x }, out);
    expect([[...out.sum.read()], [...out.again.read()], [...out.x.read()]]).toEqual([
      [2, 4, 6, 8],
      [2, 4, 6, 8],
      [1, 2, 3, 4],
    ]);
  });

  test("takes an input that no output depends on", async () => {
    const run = await engine.compile("first", ({ x }) => ({ twice: tf.mul(x!, 2) }), specs);
    const twice = engine.array(f32(2, 2));
    await run.run({ x, y }, { twice });
    expect([...twice.read()]).toEqual([2, 4, 6, 8]);
  });

  test("names every missing, extra and misshapen array in one line", async () => {
    const run = await engine.compile("add", add, specs);
    const sum = engine.array(f32(2, 2));
    await expect(run.run({ x, z: y }, { sum })).rejects.toThrow(
      new Error("add: inputs: y is missing; z is not expected"),
    );
    await expect(run.run({ x, y: engine.array(i32(2, 2)) }, { sum })).rejects.toThrow(
      new Error("add: inputs: y is int32[2,2], expected float32[2,2]"),
    );
    await expect(run.run({ x, y }, { sum: engine.array(f32(4)) })).rejects.toThrow(
      new Error("add: outputs: sum is float32[4], expected float32[2,2]"),
    );
    await expect(run.run({ x, y }, {})).rejects.toThrow(new Error("add: outputs: sum is missing"));
  });

  test("refuses memory of the wrong length", () => {
    expect(() => engine.array(f32(2, 2), new Float32Array(3))).toThrow(
      new RangeError("an array of shape [2,2] needs 4 values, its memory holds 3"),
    );
  });

  test("refuses a function that reads values", async () => {
    const peek: TensorFunction = ({ x }) => ({ x: tf.mul(x!, x!.dataSync()[0]!) });
    await expect(engine.compile("peek", peek, { x: f32(2) })).rejects.toThrow("use operations on tensors instead");
  });
});

describe("onnxruntime", () => {
  test("refuses an invalid model in one line", () => {
    const broken = () => new OrtSession(Uint8Array.of(1, 2, 3), [], [], { threads: 1 });
    expect(broken).toThrow(/^onnxruntime: [^\n]+$/);
  });

  test("reports in one line that memory is short", async () => {
    const size = 2 ** 23;
    const table: TensorFunction = ({ x }) => ({ y: tf.sum(tf.exp(tf.add(tf.reshape(x!, [size, 1]), x!))) });
    const run = await compiled.compile("a table of 2^46 numbers", table, { x: f32(size) });
    const given = { x: compiled.array(f32(size)) };
    await expect(run.run(given, { y: compiled.array(f32()) })).rejects.toThrow(/^onnxruntime: [^\n]*memory[^\n]*$/);
  });

  test("does not run a disposed function", async () => {
    const run = await compiled.compile("add", add, specs);
    const x = compiled.array(f32(2, 2));
    await run.dispose();
    await run.dispose();
    await expect(run.run({ x, y: x }, { sum: x })).rejects.toThrow(new Error("onnxruntime: this session was released"));
  });

  test.each([0, -1, 1.5])("refuses %p threads", (threads) => {
    expect(() => compiledEngine({ threads })).toThrow(
      new RangeError(`engine threads must be at least 1, got ${threads}`),
    );
  });

  test("holds no more memory after 500 runs and 20 compilations", async () => {
    const size = 1 << 18;
    const grow: TensorFunction = ({ x }) => ({ y: tf.softmax(tf.mul(x!, tf.exp(x!)), -1) });
    const inputs = { x: f32(4, size / 4) };
    const [x, y] = [compiled.array(inputs.x), compiled.array(inputs.x)];
    const compile = async (times: number) => {
      for (let i = 0; i < times; i++) {
        const run = await compiled.compile("grow", grow, inputs);
        for (let j = 0; j < 25; j++) await run.run({ x }, { y });
        await run.dispose();
      }
      Bun.gc(true);
      return process.memoryUsage().rss;
    };
    const before = await compile(5);
    // 500 runs of 1 MiB outputs: a leak of one output in twenty would show.
    expect((await compile(20)) - before).toBeLessThan(25 * 2 ** 20);
  }, 300_000);

  test("takes no more memory for a second run than for the first", async () => {
    const x = f32(2 ** 23);
    const functions = [tf.exp, tf.square, tf.sigmoid, tf.tanh, tf.abs, tf.neg];
    const many: TensorFunction = ({ x }) => ({
      y: tf.sum(functions.map((f) => f(x!)).reduce((sum, y) => tf.add(sum, y))),
    });
    const run = await compiled.compile("many at once", many, { x });
    const given = { x: compiled.array(x) };
    const result = { y: compiled.array(f32()) };
    await run.run(given, result);
    const afterFirst = process.memoryUsage().rss;
    await run.run(given, result);
    // Six arrays of 32 MiB are alive at once.
    expect(process.memoryUsage().rss - afterFirst).toBeLessThan(2 ** 26);
    await run.dispose();
  });
});

describe("lanes", () => {
  const engine = compiledEngine({ threads: 3 });
  const pick =
    (count: number) =>
    ({ table, row }: Readonly<Record<string, tf.Tensor>>) => ({
      sum: tf.sum(tf.gather(tf.mul(table!, count), row!)),
    });
  const compile = (count: number) =>
    engine.compile(`pick ${count}`, pick(count), { table: f32(4), row: i32(2) }, { inLane: true });
  const job = async (count: number, rows: readonly number[]) => ({
    run: await compile(count),
    inputs: {
      table: engine.array(f32(4), Float32Array.of(1, 2, 3, 4)),
      row: engine.array(i32(2), Int32Array.from(rows)),
    },
    outputs: { sum: engine.array(f32()) },
  });

  test("run models of up to 128 MiB; rounded products refuse a larger model on several threads", () => {
    const [small, large] = [{ byteLength: 2 ** 27 }, { byteLength: 2 ** 27 + 1 }];
    for (const roundsProducts of [false, true]) {
      expect(lanesFor({ lanesMax: 3, roundsProducts }, small)).toBe(3);
      expect(lanesFor({ lanesMax: 1, roundsProducts }, large)).toBe(1);
    }
    expect(lanesFor({ lanesMax: 3 }, large)).toBe(1);
    expect(() => lanesFor({ lanesMax: 3, roundsProducts: true }, large, small)).toThrow(
      "with 3 threads, engine.bfloat16Products takes a model of at most 128 MiB of parameters, got 257 MiB; set it to none, or set engine.threads to 1",
    );
  });

  test("run every call of every list, also of different lengths", async () => {
    const lists = [[await job(1, [0, 1]), await job(2, [0, 1])], [await job(3, [2, 3])], []];
    await engine.runLanes(lists);
    expect(lists.map((list) => list.map(({ outputs }) => outputs.sum.read()[0]!))).toEqual([[3, 6], [21], []]);
    const many = Array.from({ length: 600 }, () => lists[1]![0]!);
    await engine.runLanes([[], many, [await job(5, [3, 3])]]);
    expect(lists[1]![0]!.outputs.sum.read()[0]).toBe(21);
  });

  test("run more lists than there are lanes, each in its order", async () => {
    const size = 2 ** 16;
    const change = (name: string, to: (x: tf.Tensor) => tf.Tensor) =>
      engine.compile(name, ({ x }) => ({ x: to(x!) }), { x: f32(size) }, { inLane: true });
    const double = await change("double", (x) => tf.mul(x, 2));
    const increase = await change("increase", (x) => tf.add(x, 1));
    const lists = Array.from({ length: 8 }, (_, list) => {
      const x = engine.array(f32(size), new Float32Array(size).fill(list));
      return Array.from({ length: 3 * list }, (_, i) => {
        return { run: i % 3 === 2 ? double : increase, inputs: { x }, outputs: { x } };
      });
    });
    // Starts the lanes' threads, so that all of them take part in what follows.
    await engine.runLanes([[await job(1, [0, 1])], [await job(1, [1, 1])], [await job(1, [2, 1])]]);
    await engine.runLanes(lists);
    for (const [list, jobs] of lists.entries()) {
      const expected = jobs.reduce((x, { run }) => (run === double ? 2 * x : x + 1), list);
      expect(jobs.every(({ outputs }) => outputs.x.read().every((x) => x === expected))).toBe(true);
    }
  });

  test("run thousands of lists, as an optimizer has on hundreds of threads", async () => {
    const x = Array.from({ length: 2500 }, (_, list) => engine.array(f32(1), Float32Array.of(list)));
    const run = await engine.compile("one more", ({ x }) => ({ x: tf.add(x!, 1) }), { x: f32(1) }, { inLane: true });
    await engine.runLanes(x.map((x) => [{ run, inputs: { x }, outputs: { x } }]));
    expect(x.map((array) => array.read()[0]!)).toEqual(x.map((_, list) => list + 1));
  });

  test.each([0, 1, 2])("throw the error of list %p, and still work", async (lane) => {
    const lists = [[await job(1, [0, 1])], [await job(1, [1, 1])], [await job(1, [2, 1])]];
    lists[lane]!.unshift(await job(1, [7, 0]));
    await expect(engine.runLanes(lists)).rejects.toThrow(/onnxruntime: .*indices element out of data bounds/);
    lists[lane]!.shift();
    await engine.runLanes(lists);
    expect(lists.flat().map(({ outputs }) => outputs.sum.read()[0]!)).toEqual([3, 4, 5]);
  });

  test.if(process.platform === "linux" && process.arch === "x64")(
    "take subnormal numbers as zero, while JavaScript keeps its own arithmetic",
    async () => {
      const [small, product] = [1e-30, 1e-40];
      const square = await engine.compile(
        "small",
        ({ x }) => ({ y: tf.mul(x!, 1e-10) }),
        { x: f32(1) },
        { inLane: true },
      );
      const one = () => ({
        run: square,
        inputs: { x: engine.array(f32(1), Float32Array.of(small)) },
        outputs: { y: engine.array(f32(1), Float32Array.of(1)) },
      });
      const lists = [[one()], [one()], [one()]];
      await engine.runLanes(lists);
      expect(lists.flat().map(({ outputs }) => outputs.y.read()[0]!)).toEqual([0, 0, 0]);
      expect(Math.fround(product)).toBeCloseTo(product, 44);
      expect(Float32Array.of(product)[0]! / product).toBeCloseTo(1, 4);
    },
  );

  test("refuse a job of a disposed function", async () => {
    const gone = await job(7, [0, 1]);
    await engine.runLanes([[gone]]);
    await gone.run.dispose();
    await expect(engine.runLanes([[gone]])).rejects.toThrow("onnxruntime: this session was released");
  });
});

describe("a start-up check", () => {
  test("names the engine and the device with the wrong result", async () => {
    const lying: Engine = {
      ...compiled,
      device: "webgpu, nothing",
      compile: async (...args) => {
        const { outputs } = await compiled.compile(...args);
        return { outputs, run: async () => {}, dispose: async () => {} };
      },
    };
    await expect(selfCheck(lying)).rejects.toThrow(
      new Error(
        "engine compiled on webgpu, nothing computes wrong results: a known product is 0,0,0,0, not 58,64,139,154; choose another engine or --device",
      ),
    );
  });

  test("prints nothing, and neither do the engines", async () => {
    const program = `
      import { compiledEngine } from "./model/engine/compiled.ts";
      import { eagerEngine } from "./model/engine/eager.ts";
      import { selfCheck } from "./model/engine/self-check.ts";
      await import("./model/learn/network.ts");
      for (const engine of [eagerEngine(), compiledEngine({ threads: 2 })]) await selfCheck(engine);`;
    const child = Bun.spawn([process.execPath, "-e", program], {
      cwd: join(import.meta.dir, "../../.."),
      env: { ...process.env, NODE_ENV: "production" },
      stdio: ["ignore", "pipe", "pipe"],
    });
    const output = await Promise.all([new Response(child.stdout).text(), new Response(child.stderr).text()]);
    expect([await child.exited, ...output]).toEqual([0, "", ""]);
  });
});

describe("attention over a cache", () => {
  const shape = { heads: 2, kvHeads: 1, headWidth: 16, window: 7 };
  const [rows, added] = [3, 4];
  const tables = { cos: f32(16, 8), sin: f32(16, 8) };
  const steps = {
    qkv: f32(rows, 1, 64),
    keys: f32(rows, 1, 16, 16),
    values: f32(rows, 1, 16, 16),
    last: i32(rows),
    total: i32(),
    ...tables,
  };
  const step: TensorFunction = ({ qkv, keys, values, last, total, cos, sin }) => ({
    ...cachedAttention(
      { qkv: qkv!, keys: keys!, values: values!, last: last!, total: total!, cos: cos!, sin: sin! },
      shape,
    ),
  });
  const eachRow = <T>(of: (row: number) => T) => Array.from({ length: rows }, (_, row) => of(row));
  const appends = {
    qkv: f32(rows, added, 64),
    last: i32(rows),
    ...tables,
    ...Object.fromEntries(eachRow((row) => [`keys.${row}`, f32(1, 1, 16, 16)])),
    ...Object.fromEntries(eachRow((row) => [`values.${row}`, f32(1, 1, 16, 16)])),
  };
  const append: TensorFunction = ({ qkv, last, cos, sin, ...caches }) => {
    const of = (name: string) => eachRow((row) => caches[`${name}.${row}`]!);
    const { out, keys, values } = appendAttention(
      qkv!,
      of("keys"),
      of("values"),
      last!,
      { cos: cos!, sin: sin! },
      shape,
    );
    return {
      out,
      ...Object.fromEntries(keys.map((cache, row) => [`keys.${row}`, cache])),
      ...Object.fromEntries(values.map((cache, row) => [`values.${row}`, cache])),
    };
  };

  test.each([
    ["a step", step, steps, ["cpu", "webgpu"], ["cuda"]],
    ["an append", append, appends, ["cpu"], ["webgpu", "cuda"]],
  ] as const)(
    "of %s is onnxruntime's operator on some devices, and written out on others",
    (_, of, specs, its, ours) => {
      const operators = (device: Device) => trace(of, specs, device).graph.nodes.map(({ op }) => op);
      for (const device of its) expect(operators(device)).toContain("GroupQueryAttention");
      for (const device of ours) expect(operators(device)).not.toContain("GroupQueryAttention");
      expect(operators("cuda")).toContain("Softmax");
    },
  );

  test("of an append equals its definition, for first tokens and for later ones", async () => {
    const results: Float32Array[][] = [];
    for (const on of [eager, compiled]) {
      const run = await on.compile("append", append, appends);
      const made = (specs: Readonly<Record<string, Spec>>) =>
        Object.fromEntries(Object.entries(specs).map(([name, spec]) => [name, on.array(spec)]));
      const inputs = made(appends);
      const outputs = made(run.outputs);
      const outs = [];
      for (const [round, lasts] of [
        [3, 3, 3],
        [7, 7, 5],
        [11, 9, 9],
      ].entries()) {
        for (const [index, name] of ["qkv", "cos", "sin"].entries()) {
          const array = inputs[name]!;
          const count = array.shape.reduce((a, b) => a * b, 1);
          array.write(Float32Array.from({ length: count }, (_, i) => Math.sin(i + index + 7 * round)));
        }
        inputs["last"]!.write(Int32Array.from(lasts));
        await run.run(inputs, outputs);
        outs.push((outputs["out"]!.read() as Float32Array).slice());
        for (const [name, array] of Object.entries(outputs)) if (name !== "out") inputs[name]!.write(array.read());
      }
      results.push(outs);
    }
    const [definition, operator] = results as [Float32Array[], Float32Array[]];
    for (const [round, values] of definition.entries()) expect(farthest(operator[round]!, values)).toBeLessThan(1e-5);
  });
});

/** Which functions run kernels of ours, and that these functions equal their definitions in onnxruntime, tfjs and a decoder. */
import { describe, expect, test } from "bun:test";
import * as tf from "@tensorflow/tfjs-core";
import { Decoder } from "../../../../model/decode/decoder.ts";
import { compiledEngine } from "../../../../model/engine/compiled.ts";
import { type Engine, f32, i32 } from "../../../../model/engine/engine.ts";
import type { Instructions } from "../../../../model/engine/native/machine.ts";
import { MACHINE_CODE, trace } from "../../../../model/engine/trace.ts";
import { type PrefixTree, treeAttention } from "../../../../model/policy/attention.ts";
import { type CachedInputs, cachedAttention } from "../../../../model/policy/cached-attention.ts";
import { ModelConfig } from "../../../../model/policy/model-config.ts";
import { type AttentionShape, linear, rmsNorm, swiglu, tokenLogProbs } from "../../../../model/policy/ops.ts";
import { stepSlots } from "../../decode/steps.ts";
import { farthest } from "../../farthest.ts";
import { tinyParameters } from "../../policy/tiny-policy.ts";
import { bitsOf, describeWidths } from "./machine-code.ts";
import { type Case, definition, evaluated, ours, weighed } from "./traced.ts";

/** Two sequences of 8 and 12 tokens that begin with the same 4 tokens: 16 tokens. */
function treeOf(length: number): PrefixTree {
  const tokenOfPath = Array.from({ length: 3 * length }, () => 0);
  for (let at = 0; at < 8; at++) tokenOfPath[at] = at;
  for (let at = 0; at < 12; at++) tokenOfPath[length + at] = at < 4 ? at : at + 4;
  const pathOfToken = Array.from({ length: 16 }, (_, token) => (token < 8 ? token : length + token - 4));
  return {
    branches: tf.tensor([0, 8, 4, 12, 0, 0], [3, 2], "int32"),
    tokenOfPath: tf.tensor(tokenOfPath, [3, length], "int32"),
    pathOfToken: tf.tensor(pathOfToken, [16], "int32"),
    isPicked: tf.ones([4], "int32"),
  };
}

function attentionCase(length: number, shape: AttentionShape): Case {
  const { heads, kvHeads, headWidth } = shape;
  const half = headWidth / 2;
  return {
    build: weighed(["qkv"], ({ qkv, cos, sin }) => treeAttention(qkv!, treeOf(length), cos!, sin!, shape, false)),
    specs: {
      qkv: f32(16, (heads + 2 * kvHeads) * headWidth),
      cos: f32(length, half),
      sin: f32(length, half),
      dy: f32(16, heads * headWidth),
    },
  };
}
const swigluCase = (width: number): Case => ({
  build: weighed(["gate", "up"], ({ gate, up }) => swiglu(gate!, up!)),
  specs: { gate: f32(3, width), up: f32(3, width), dy: f32(3, width) },
});
const rmsNormCase = (width: number): Case => ({
  build: weighed(["x", "gain"], ({ x, gain }) => rmsNorm(x!, gain!, 1e-3)),
  specs: { x: f32(5, width), gain: f32(width), dy: f32(5, width) },
});

/** The input of a norm goes around the norm too, as in a layer. */
const residualCase: Case = {
  build: weighed(["x", "gain"], ({ x, gain }) => tf.add(x!, tf.square(rmsNorm(x!, gain!, 1e-3)))),
  specs: rmsNormCase(48).specs,
};

const tokenLogProbsCase = (vocabulary: number): Case => ({
  build: weighed(["logits"], ({ logits, targets }) => {
    const { logProbs, entropies } = tokenLogProbs(logits!, targets!);
    return tf.concat([tf.reshape(logProbs, [4, 1]), tf.reshape(entropies, [4, 1])], 1);
  }),
  specs: { logits: f32(4, vocabulary), targets: i32(4), dy: f32(4, 2) },
});
const biasCase = (width: number): Case => ({
  build: weighed(["bias"], ({ x, weight, bias }) => linear(x!, weight!, bias!)),
  specs: { x: f32(5, 8), weight: f32(width, 8), bias: f32(width), dy: f32(5, width) },
});

function stepCase(capacity: number, shape: AttentionShape, rows = 3): Case {
  const { heads, kvHeads, headWidth } = shape;
  const cache = f32(rows, kvHeads, capacity, headWidth);
  return {
    build: (inputs) => ({ y: cachedAttention(inputs as unknown as CachedInputs, shape).out }),
    specs: {
      qkv: f32(rows, 1, (heads + 2 * kvHeads) * headWidth),
      keys: cache,
      values: cache,
      last: i32(rows),
      total: i32(),
      cos: f32(capacity, headWidth / 2),
      sin: f32(capacity, headWidth / 2),
    },
  };
}

/** Two rows in the last two of nine slots. @param added  new tokens of a row */
function inSlotsCase(added: number, capacity: number, shape: AttentionShape): Case {
  const { total: _, ...specs } = stepCase(capacity, shape, 9).specs;
  const size = specs["qkv"]!.shape[2]!;
  return {
    build: (inputs) => ({ y: cachedAttention(inputs as unknown as CachedInputs, shape).out }),
    specs: { ...specs, qkv: f32(2, added, size), last: i32(2), slots: i32(2) },
  };
}

const heads = { heads: 4, kvHeads: 2, headWidth: 16 };
const taken: [string, Case, operators: string[]][] = [
  ["attention", attentionCase(16, heads), ["TreeAttention", "TreeAttentionGradient"]],
  ["SwiGLU", swigluCase(48), ["Swiglu", "SwigluGradient"]],
  ["RMSNorm", rmsNormCase(48), ["RmsNorm", "RmsNormGradient"]],
  ["RMSNorm around which its input goes", residualCase, ["RmsNorm", "RmsNormGradient"]],
  ["log-probabilities", tokenLogProbsCase(48), ["TokenLogProbs", "TokenLogProbsGradient"]],
  ["a bias's gradient", biasCase(48), ["RowSum"]],
  ["a step over a cache", stepCase(32, heads), ["CachedAttention"]],
  ["a step in a window", stepCase(32, { ...heads, window: 3, scoreScale: 0.7 }), ["CachedAttention"]],
  ["a step in slots", inSlotsCase(1, 32, heads), ["CachedAttention"]],
  ["an append to slots", inSlotsCase(3, 32, heads), ["CachedAttention"]],
];
const notTaken: [string, Case][] = [
  ["attention of paths of 20 tokens", attentionCase(20, heads)],
  ["attention of heads of 8", attentionCase(16, { ...heads, headWidth: 8 })],
  ["attention of heads of 24", attentionCase(16, { ...heads, headWidth: 24 })],
  ["attention in a window", attentionCase(16, { ...heads, window: 5 })],
  ["SwiGLU of 24", swigluCase(24)],
  ["RMSNorm of 24", rmsNormCase(24)],
  ["log-probabilities of 24 tokens", tokenLogProbsCase(24)],
  ["a bias of 24", biasCase(24)],
  ["a step of heads of 8", stepCase(32, { ...heads, headWidth: 8 })],
  ["a step over a cache of 24", stepCase(24, heads)],
  ["an append to slots of heads of 8", inSlotsCase(3, 32, { ...heads, headWidth: 8 })],
  ["an append to slots of 24 tokens", inSlotsCase(3, 24, heads)],
];

describe("a traced function", () => {
  test.each(taken)(
    "of %s has nodes of ours for a CPU with machine code, and for no other target",
    (_, of, operators) => {
      for (const target of MACHINE_CODE) expect(ours(of, target)).toEqual(operators);
      for (const target of ["cpu", "webgpu", "cuda"] as const) expect(ours(of, target)).toEqual([]);
    },
  );

  test.each(notTaken)("of %s, whose sizes our kernel does not take, has no node of ours", (_, of) => {
    expect(ours(of, "AVX2")).toEqual([]);
  });

  test("of attention has a node of ours up to 4096 tokens, whose scores fit on the stack", () => {
    const one = { heads: 1, kvHeads: 1, headWidth: 16 };
    expect(ours(attentionCase(4096, one), "AVX2")).toEqual(["TreeAttention", "TreeAttentionGradient"]);
    expect(ours(attentionCase(4112, one), "AVX2")).toEqual([]);
  });

  test("of a residual stream has no node for the sum of its gradients", () => {
    const nodes = trace(residualCase.build, residualCase.specs, "AVX2").graph.nodes;
    expect(nodes.filter(({ op }) => op === "Add")).toHaveLength(1);
    const gradient = nodes.find(({ op }) => op.startsWith("RmsNormGradient"))!;
    expect(gradient.inputs).toHaveLength(5);
    expect(gradient.outputs).toEqual(["out.d x", "out.d gain"]);
  });

  test("of a cache has a node of ours up to 131,072 tokens, and refuses more of 16-bit floats", () => {
    const one = { heads: 1, kvHeads: 1, headWidth: 16 };
    const most = 2 ** 17;
    const operators = ({ build, specs }: Case) => trace(build, specs, "AVX2").graph.nodes.map(({ op }) => op);
    expect(ours(stepCase(most, one, 1), "AVX2")).toEqual(["CachedAttention"]);
    expect(operators(stepCase(most + 16, one, 1))).toContain("GroupQueryAttention");
    const half = { ...one, halfCaches: true };
    expect(ours(stepCase(most / 2, half, 1), "AVX2")).toEqual(["CachedAttention"]);
    expect(() => ours(stepCase(most / 2 + 8, half, 1), "AVX2")).toThrow(
      new RangeError("caches in half precision take at most 131072 tokens, got 131088"),
    );
    expect(() => ours(inSlotsCase(1, most + 16, one), "AVX2")).toThrow(
      new RangeError("caches that rows share by slots take at most 131072 tokens, got 131088"),
    );
  });

  test.each(["cpu", "webgpu", "cuda", "AVX2"] as const)(
    "for %s refuses caches of 16-bit floats that it cannot read",
    (target) => {
      const half = { ...heads, headWidth: target === "AVX2" ? 8 : 16, halfCaches: true };
      for (const of of [stepCase(32, half), inSlotsCase(3, 32, half)])
        expect(() => ours(of, target)).toThrow(TypeError);
    },
  );

  test("of a transpose that moves no axis has no node for it", () => {
    const specs = { x: f32(3, 4) };
    const nodes = (perm: number[]) =>
      trace(({ x }) => ({ y: tf.neg(tf.transpose(x!, perm)) }), specs).graph.nodes.map(({ op }) => op);
    expect(nodes([0, 1])).toEqual(["Neg"]);
    expect(nodes([1, 0])).toEqual(["Transpose", "Neg"]);
  });

  test("names operators of different sizes differently, and those of equal sizes equally", () => {
    const names = (of: Case) => trace(of.build, of.specs, "AVX2").graph.nodes.map(({ op }) => op);
    const [short, long] = [attentionCase(16, heads), attentionCase(32, heads)].map(names);
    const operators = short!.filter((op) => op.startsWith("TreeAttention"));
    expect(operators).toHaveLength(2);
    expect(names(attentionCase(16, heads))).toEqual(short!);
    expect(operators.filter((op) => long!.includes(op))).toEqual([]);
    const scaled = names(attentionCase(16, { ...heads, scoreScale: 0.3 }));
    expect(operators.filter((op) => scaled.includes(op))).toEqual([]);
  });
});

describeWidths("a compiled function", (vectorWidth) => {
  const instructions = vectorWidth === 8 ? "AVX2" : "AVX-512";
  const engine = compiledEngine({ threads: 1, instructions });
  const plain = compiledEngine({ threads: 1, instructions: null });

  test.each(taken)("of %s equals its definition", async (_, of) => {
    const [found, expected] = [await evaluated(engine, of), await definition(of)];
    expect(Object.keys(found)).toEqual(Object.keys(expected));
    for (const [name, values] of Object.entries(expected)) expect(farthest(found[name]!, values)).toBeLessThan(1e-5);
  });

  test.each(notTaken.filter((_, i) => i % 3 === 0))("of %s runs by its definition", async (_, of) => {
    const [found, expected] = [await evaluated(engine, of), await definition(of)];
    for (const [name, values] of Object.entries(expected)) expect(farthest(found[name]!, values)).toBeLessThan(1e-5);
  });

  test("runs our kernels on one thread only, as the bits of the results show", async () => {
    const of = swigluCase(1024);
    const bits = async (on: Engine) => bitsOf((await evaluated(on, of))["y"]!);
    const without = await bits(plain);
    expect(await bits(engine)).not.toEqual(without);
    expect(await bits(compiledEngine({ threads: 2, instructions }))).toEqual(without);
  });

  test("runs our kernels in a lane of an engine with several threads", async () => {
    const { build, specs } = swigluCase(1024);
    const several = compiledEngine({ threads: 2, instructions });
    const inLane: Engine = {
      ...several,
      compile: (name, build, inputs) => several.compile(name, build, inputs, { inLane: true }),
    };
    const [found, expected] = [await evaluated(inLane, { build, specs }), await evaluated(engine, { build, specs })];
    expect(bitsOf(found["y"]!)).toEqual(bitsOf(expected["y"]!));
  });

  test("has room on the stack of each lane for the scores of 131,072 tokens", async () => {
    const several = compiledEngine({ threads: 2, instructions });
    const { build, specs } = stepCase(2 ** 17, { heads: 2, kvHeads: 1, headWidth: 16 }, 1);
    const run = await several.compile("long", build, specs, { inLane: true });
    const job = () => {
      const inputs = Object.fromEntries(Object.entries(specs).map(([name, spec]) => [name, several.array(spec)]));
      inputs["last"]!.write(Int32Array.of(2 ** 17 - 1));
      inputs["values"]!.write(new Float32Array(2 ** 21).map((_, i) => (i < 2 ** 20 ? i % 16 : -1)));
      return { run, inputs, outputs: { y: several.array(run.outputs["y"]!) } };
    };
    const jobs = [job(), job()];
    await several.runLanes(jobs.map((each) => [each]));
    // All keys are 0, so the result is the mean of all values; the new token's value is 0.
    const expected = Array.from({ length: 32 }, (_, i) => ((i % 16) - 1) / 2);
    for (const { outputs } of jobs) expect(farthest(outputs.y.read(), expected)).toBeLessThan(1e-4);
    await run.dispose();
  });

  decoderTests(instructions);
});

function decoderTests(instructions: Instructions): void {
  const config = ModelConfig.parse({
    vocabulary: 24,
    width: 32,
    layers: 1,
    heads: 4,
    kvHeads: 2,
    headWidth: 16,
    hidden: 32,
  });
  const make = (halfCaches = false) =>
    new Decoder(compiledEngine({ threads: 1, instructions }), config, tinyParameters(config, 1, 10).flat, {
      slots: 4,
      capacity: 70,
      halfCaches,
    });
  const tokens = (seed: number, count: number) =>
    Array.from({ length: count }, (_, i) => (seed * 7 + i * i * 5 + i) % 24);
  const row = (values: Float32Array, index: number) => bitsOf(values.slice(index * 24, (index + 1) * 24));
  const others = { 0: 17, 1: 35, 3: 50 } as const;

  test.each([
    ["32", false],
    ["16", true],
  ] as const)("of a decoder of %s-bit caches moves slots of 17, 35 and 50 tokens with their bits", async (_, half) => {
    const [moved, still] = [make(half), make(half)];
    for (const decoder of [moved, still])
      for (const [slot, length] of Object.entries(others))
        await decoder.append([Number(slot)], [tokens(length, length)]);
    moved.swap(0, 3);
    moved.swap(1, 2);
    const [after, expected] = [await stepSlots(moved, [3, -1, 1, 0]), await stepSlots(still, [0, 1, -1, 3])];
    for (const [from, to] of [
      [0, 3],
      [1, 2],
      [3, 0],
    ] as const)
      expect(row(after, to)).toEqual(row(expected, from));
  });

  test.each([
    ["32", false],
    ["16", true],
  ] as const)("of a decoder of %s-bit caches copies prompts of 19 and 33 tokens with their bits", async (_, half) => {
    for (const length of [19, 33]) {
      const [copied, alone] = [make(half), make(half)];
      const prompt = tokens(2, length);
      await copied.append([3, 0, 1], [prompt, prompt, prompt]);
      await alone.append([0], [prompt]);
      for (const token of [5, 6]) {
        const [after, expected] = [await stepSlots(copied, [token, token, -1, token]), await stepSlots(alone, [token])];
        for (const slot of [0, 1, 3]) expect(row(after, slot)).toEqual(row(expected, 0));
      }
    }
  });
}

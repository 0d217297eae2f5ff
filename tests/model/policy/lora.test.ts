/** A model with adapters against the model with these adapters merged in: logits, gradients by the chain rule, decoding. */
import { describe, expect, test } from "bun:test";
import { join } from "node:path";
import * as tf from "@tensorflow/tfjs-core";
import "@tensorflow/tfjs-core/dist/register_all_gradients.js";
import { loadPretrained, readPretrained } from "../../../actors/policy/pretrained.ts";
import { huggingFaceViews } from "../../../model/checkpoint/hugging-face.ts";
import { Decoder } from "../../../model/decode/decoder.ts";
import { compiledEngine } from "../../../model/engine/compiled.ts";
import { f32, i32 } from "../../../model/engine/engine.ts";
import { adapterShapes, LORA_TARGETS, mergeAdapters } from "../../../model/policy/lora.ts";
import { ModelConfig, parameterShapes } from "../../../model/policy/model-config.ts";
import { tokenLogProbs } from "../../../model/policy/ops.ts";
import {
  initialize,
  layFrozen,
  layParameters,
  type Parameters,
  parameterArrays,
  parameterCount,
} from "../../../model/policy/parameters.ts";
import { hiddenStates, logits } from "../../../model/policy/transformer.ts";
import { sequence } from "../../../model/rng.ts";
import { stepSlots } from "../decode/steps.ts";
import { farthest } from "../farthest.ts";
import { withGradients } from "./gradient-check.ts";

const engine = compiledEngine({ threads: 1 });
const tokens = Int32Array.from({ length: 2 * 7 }, (_, i) => (31 * i + 5) % 400);
const [rows, length] = [2, 7];

/** Logits of `tokens`, and gradients of their mean log-probability by all that is trained. */
async function compute(model: ModelConfig, trained: Parameters, frozen: Parameters | null) {
  const specs = (parameters: Parameters) => [...parameters.views].map(([name, { shape }]) => [name, f32(...shape)]);
  const run = await engine.compile(
    "logits and gradients",
    (x: Readonly<Record<string, tf.Tensor>>) => {
      const targets = tf.reshape(x["tokens"]!, [rows * length]);
      const { value, gradients } = withGradients(
        x,
        [...parameterShapes(model).keys()],
        (named) => logits(model, named, hiddenStates(model, named, x["tokens"]!)),
        (all) => tf.mean(tokenLogProbs(all, targets).logProbs) as tf.Scalar,
        "gradient.",
      );
      return { logits: value, ...gradients };
    },
    {
      tokens: i32(rows, length),
      ...Object.fromEntries([...specs(trained), ...(frozen === null ? [] : specs(frozen))]),
    },
  );
  const gradients = layParameters(model);
  const out = engine.array(f32(rows * length, model.vocabulary));
  await run.run(
    {
      tokens: engine.array(i32(rows, length), tokens.slice()),
      ...parameterArrays(engine, trained),
      ...(frozen === null ? {} : parameterArrays(engine, frozen)),
    },
    { logits: out, ...parameterArrays(engine, gradients, "gradient.") },
  );
  return { logits: out.read() as Float32Array, gradients };
}

async function adaptedModel(name: string, targets: (typeof LORA_TARGETS)[number][]) {
  const folder = join(import.meta.dir, "../../golden/checkpoints", name);
  const { model: base } = readPretrained(folder);
  const whole = layParameters(base);
  await loadPretrained(folder, base, whole);
  const model: ModelConfig = { ...base, lora: { rank: 3, alpha: 6, targets } };
  const adapters = layParameters(model);
  initialize(adapters, sequence(1, "lora"));
  return { base, whole, model, adapters };
}

/** Random B too: fresh adapters have no effect. */
function stir(adapters: Parameters): void {
  const uniform = sequence(2, "lora");
  for (const [name, { values }] of adapters.views) {
    if (name.includes("lora_B")) for (let i = 0; i < values.length; i++) values[i] = 0.4 * (uniform() - 0.5);
  }
}

const cases = [
  ["qwen2", [...LORA_TARGETS]],
  ["qwen3", [...LORA_TARGETS]],
  ["llama", ["q_proj", "v_proj", "down_proj"]],
] as const;

describe.each(cases)("adapters of %s", (name, targets) => {
  test("that are fresh change nothing", async () => {
    const { base, whole, model, adapters } = await adaptedModel(name, [...targets]);
    const plain = await compute(base, whole, null);
    const fresh = await compute(model, adapters, layFrozen(model, whole.flat));
    expect(farthest(plain.logits, fresh.logits)).toBeLessThan(1e-6);
  });

  test("compute what the merged model computes, with the same gradients", async () => {
    const { base, whole, model, adapters } = await adaptedModel(name, [...targets]);
    stir(adapters);
    const before = await compute(base, whole, null);
    const ours = await compute(model, adapters, layFrozen(model, whole.flat));
    expect(farthest(before.logits, ours.logits)).toBeGreaterThan(0.01);
    const merged = layParameters(base, whole.flat.slice());
    mergeAdapters(huggingFaceViews(base, merged), adapters.views, model.lora!);
    const expected = await compute(base, merged, null);
    expect(farthest(expected.logits, ours.logits)).toBeLessThan(1e-5);

    // W + s · B · A: by the chain rule dA = s · Bᵀ · dW and dB = s · dW · Aᵀ.
    const dense = huggingFaceViews(base, expected.gradients);
    const scale = model.lora!.alpha / model.lora!.rank;
    for (const [key, { shape, values }] of adapters.views) {
      if (!key.includes("lora_A")) continue;
      const module = key.replace(".lora_A.weight", "");
      const [rank, inner] = shape as [number, number];
      const dW = dense.get(`${module}.weight`)!.values;
      const b = adapters.views.get(`${module}.lora_B.weight`)!.values;
      const at = (r: number, i: number) => {
        let sum = 0;
        for (let o = 0; o < b.length / rank; o++) sum += b[o * rank + r]! * dW[o * inner + i]!;
        return scale * sum;
      };
      const dA = Float32Array.from(values, (_, i) => at(Math.floor(i / inner), i % inner));
      const dB = Float32Array.from(b, (_, i) => {
        const [o, r] = [Math.floor(i / rank), i % rank];
        let sum = 0;
        for (let j = 0; j < inner; j++) sum += dW[o * inner + j]! * values[r * inner + j]!;
        return scale * sum;
      });
      expect(farthest(ours.gradients.views.get(key)!.values, dA)).toBeLessThan(1e-5);
      expect(farthest(ours.gradients.views.get(`${module}.lora_B.weight`)!.values, dB)).toBeLessThan(1e-5);
    }
  });

  test("decode with a cache what the whole forward pass computes", async () => {
    const { whole, model, adapters } = await adaptedModel(name, [...targets]);
    stir(adapters);
    const { logits: expected } = await compute(model, adapters, layFrozen(model, whole.flat));
    const decoder = new Decoder(engine, model, adapters.flat, { slots: 2, capacity: 16, frozen: whole.flat });
    await decoder.append([0, 1], [[...tokens.slice(0, length - 1)], [...tokens.slice(length, 2 * length - 1)]]);
    const last = await stepSlots(decoder, [tokens[length - 1]!, tokens[2 * length - 1]!], model.vocabulary);
    for (const row of [0, 1]) {
      const at = (row * length + length - 1) * model.vocabulary;
      const said = last.subarray(row * model.vocabulary, (row + 1) * model.vocabulary);
      expect(farthest(said, expected.subarray(at, at + model.vocabulary))).toBeLessThan(1e-4);
    }
  });
});

test("Qwen2.5-0.5B with adapters of rank 64 on every matrix has peft's number of trained parameters", () => {
  const model = ModelConfig.parse({
    vocabulary: 151_936,
    width: 896,
    layers: 24,
    heads: 14,
    kvHeads: 2,
    headWidth: 64,
    hidden: 4864,
    lora: { rank: 64, alpha: 64, targets: [...LORA_TARGETS] },
  });
  expect(parameterCount({ ...model, lora: null })).toBe(494_032_768);
  expect(parameterCount(model)).toBe(35_192_832);
  expect([...adapterShapes(model, model.lora!)].slice(2, 4)).toEqual([
    ["model.layers.0.self_attn.k_proj.lora_A.weight", [64, 896]],
    ["model.layers.0.self_attn.k_proj.lora_B.weight", [128, 64]],
  ]);
});

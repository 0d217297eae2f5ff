/** One training step as Hugging Face computed it, on one of our engines: of the whole model, or of adapters beside it. */
import { expect } from "bun:test";
import * as tf from "@tensorflow/tfjs-core";
import "@tensorflow/tfjs-core/dist/register_all_gradients.js";
import { huggingFaceViews } from "../../../model/checkpoint/hugging-face.ts";
import { type Engine, f32, i32 } from "../../../model/engine/engine.ts";
import { Optimizer } from "../../../model/learn/optimizer.ts";
import { isOfAttention, LORA_TARGETS } from "../../../model/policy/lora.ts";
import { frozenShapes, parameterShapes } from "../../../model/policy/model-config.ts";
import { tokenLogProbs } from "../../../model/policy/ops.ts";
import {
  layFrozen,
  layParameters,
  type Parameters,
  parameterArrays,
  parameterCount,
} from "../../../model/policy/parameters.ts";
import { hiddenStates, logits } from "../../../model/policy/transformer.ts";
import { farthest } from "../farthest.ts";
import type { Golden } from "../policy/golden-model.ts";

/** Largest error of a gradient that cancellation leaves near 0. */
const GRADIENT_ERROR = 1e-7;

/** The step of `golden.parameters`. */
export async function expectGoldenStep(engine: Engine, golden: Golden): Promise<void> {
  const { out } = await expectStep(engine, golden, null, "");
  const { record, expected } = golden;
  const [batch, length] = [record.tokens.length, record.tokens[0]!.length];
  expect(farthest(out.logits.read(), expected.get("logits")!.values)).toBeLessThan(1e-4);
  const shifted = expected.get("logProbs")!.values;
  const ours = out.logProbs.read();
  for (let row = 0; row < batch; row++) {
    const mine = ours.subarray(row * length, row * length + length - 1);
    expect(farthest(mine, shifted.subarray(row * length + 1, (row + 1) * length))).toBeLessThan(1e-4);
  }
}

/** The step of peft's adapters on every matrix of `golden.model` except the matrices of experts. */
export async function expectGoldenAdapters(engine: Engine, golden: Golden): Promise<void> {
  const { rank, alpha, loss, gradNorm } = golden.record.lora!;
  const targets = LORA_TARGETS.filter((target) => golden.model.experts === null || isOfAttention(target));
  const model = { ...golden.model, lora: { rank, alpha, targets } };
  const parameters = layParameters(model);
  for (const [name, { values }] of parameters.views) values.set(golden.expected.get(`lora.before.${name}`)!.values);
  const record = { ...golden.record, loss, gradNorm };
  await expectStep(engine, { ...golden, record, model, parameters }, layFrozen(model, golden.parameters.flat), "lora.");
}

/** @param prefix  of what is expected of gradients and of parameters after the step */
async function expectStep(engine: Engine, golden: Golden, frozen: Parameters | null, prefix: "" | "lora.") {
  const { record, model, parameters, expected } = golden;
  const tokens = Int32Array.from(record.tokens.flat());
  const [batch, length] = [record.tokens.length, record.tokens[0]!.length];
  const shapes = parameterShapes(model);
  const names = [...shapes.keys()];

  const step = await engine.compile(
    "golden step",
    (x) => {
      const values: Record<string, tf.Tensor> = {};
      const loss = (...given: tf.Tensor[]) => {
        const named = { ...x, ...Object.fromEntries(names.map((name, i) => [name, given[i]!])) };
        const states = hiddenStates(model, named, x["tokens"]!);
        values["logits"] = tf.keep(logits(model, named, states));
        const { logProbs } = tokenLogProbs(values["logits"], x["targets"]!);
        values["logProbs"] = tf.keep(logProbs);
        return tf.neg(tf.sum(tf.mul(logProbs, x["weights"]!))) as tf.Scalar;
      };
      const { value, grads } = tf.valueAndGrads(loss)(names.map((name) => x[name]!));
      return { loss: value, ...values, ...Object.fromEntries(names.map((name, i) => [`grad.${name}`, grads[i]!])) };
    },
    {
      tokens: i32(batch, length),
      targets: i32(batch * length),
      weights: f32(batch * length),
      ...Object.fromEntries(
        [...shapes, ...(frozen === null ? [] : frozenShapes(model))].map(([name, shape]) => [name, f32(...shape)]),
      ),
    },
  );

  // Position t predicts token t + 1; the last position predicts nothing and weighs 0.
  const maskTotal = record.mask.flat().reduce((sum, m) => sum + m, 0);
  const targets = new Int32Array(batch * length);
  const weights = new Float32Array(batch * length);
  for (let row = 0; row < batch; row++) {
    for (let t = 0; t + 1 < length; t++) {
      targets[row * length + t] = record.tokens[row]![t + 1]!;
      weights[row * length + t] = (record.mask[row]![t + 1]! * record.weight[row]![t + 1]!) / maskTotal;
    }
  }
  const gradients = layParameters(model);
  const out = {
    loss: engine.array(f32()),
    logits: engine.array(f32(batch * length, model.vocabulary)),
    logProbs: engine.array(f32(batch * length)),
    ...parameterArrays(engine, gradients, "grad."),
  };
  await step.run(
    {
      tokens: engine.array(i32(batch, length), tokens),
      targets: engine.array(i32(batch * length), targets),
      weights: engine.array(f32(batch * length), weights),
      ...parameterArrays(engine, parameters),
      ...(frozen === null ? {} : parameterArrays(engine, frozen)),
    },
    out,
  );
  expect(Math.abs((out.loss.read()[0] as number) - record.loss)).toBeLessThan(1e-5);
  for (const [name, { values }] of huggingFaceViews(model, gradients)) {
    expect({ name, near: farthest(values, expected.get(`${prefix}grad.${name}`)!.values) < 1e-4 }).toEqual({
      name,
      near: true,
    });
  }

  const optimizer = await Optimizer.create(engine, parameters.flat, [gradients.flat]);
  const { lr, betas, eps, weightDecay, clipNorm } = record.adamw;
  const result = await optimizer.step({
    learningRate: lr,
    beta1: betas[0],
    beta2: betas[1],
    epsilon: eps,
    weightDecay,
    clipNorm,
  });
  expect(Math.abs(result.gradientNorm - record.gradNorm)).toBeLessThan(1e-4);
  // The first step moves a parameter by lr · g / (|g| + eps). Where a clipped gradient g is not far above eps, its last digits show.
  const clip = Math.min(1, clipNorm / record.gradNorm);
  const allowed = (gradient: number) =>
    1e-5 + (GRADIENT_ERROR * clip * lr * eps) / (Math.abs(gradient) * clip + eps) ** 2;
  for (const [name, { values }] of huggingFaceViews(model, parameters)) {
    const [after, grad] = ["after", "grad"].map((kind) => expected.get(`${prefix}${kind}.${name}`)!.values);
    const far = Array.from(after!, (value, i) => Math.abs(values[i]! - Number(value)) > allowed(Number(grad![i])));
    expect({ name, far: far.indexOf(true) }).toEqual({ name, far: -1 });
  }
  expect(parameterCount(model)).toBe(parameters.flat.length);
  return { out };
}

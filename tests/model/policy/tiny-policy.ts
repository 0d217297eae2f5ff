/**
 * A policy small enough to be checked by hand, and its forward pass in float64, loop by loop, as the Qwen2 paper has it. Slow and
 * obvious on purpose: it shares no line with model/. `trainTiny` trains the policy by the code of model/.
 */

import type { Engine } from "../../../model/engine/engine.ts";
import type { BatchLimits, Sequence } from "../../../model/learn/batch.ts";
import { Network } from "../../../model/learn/network.ts";
import { imitation } from "../../../model/learn/objective.ts";
import { ModelConfig, parameterShapes } from "../../../model/policy/model-config.ts";
import { initialize, layParameters, type Parameters as PolicyParameters } from "../../../model/policy/parameters.ts";
import { sequence } from "../../../model/rng.ts";

export const tinyModel = ModelConfig.parse({
  vocabulary: 12,
  width: 8,
  layers: 2,
  heads: 2,
  kvHeads: 1,
  headWidth: 4,
  hidden: 6,
});

/** Weights so large that the policy's distributions are far from uniform. */
export function tinyParameters(config: ModelConfig = tinyModel, seed = 1, scale = 20): PolicyParameters {
  const parameters = layParameters(config);
  initialize(parameters, sequence(seed, "tiny policy"));
  for (const [name, { values }] of parameters.views) {
    if (!name.endsWith("norm.weight")) for (let i = 0; i < values.length; i++) values[i]! *= scale;
  }
  return parameters;
}

/** Sequences of 4 to 12 tokens. The policy wrote all tokens but the first. */
export const tinySequences = (count: number, uniform: () => number): Sequence[] =>
  Array.from({ length: count }, () => {
    const length = 4 + Math.floor(uniform() * 9);
    return {
      tokens: Int32Array.from({ length }, () => Math.floor(uniform() * tinyModel.vocabulary)),
      written: Int32Array.from({ length: length - 1 }, (_, i) => i + 1),
    };
  });

/** Trains the tiny policy by imitation, a step on each batch. @param options  limits of a micro-batch; settings of the optimizer */
export async function* trainTiny(
  engine: Engine,
  batches: readonly (readonly Sequence[])[],
  { limits, settings }: { limits: BatchLimits; settings: Parameters<Network["step"]>[0] },
) {
  const parameters = layParameters(tinyModel, tinyParameters().flat.slice());
  const network = await Network.create(engine, tinyModel, parameters);
  for (const sequences of batches) {
    const weights = sequences.map(({ written }) => new Float32Array(written.length).fill(0.02));
    const { loss } = await network.accumulate(imitation, sequences, { weights }, limits);
    await network.step(settings);
    yield { loss: loss!, parameters: parameters.flat };
  }
}

type Row = Float64Array<ArrayBuffer>;

/** A parameter as a matrix: its place in the flat array, and its shape. */
interface Matrix {
  readonly at: number;
  readonly rows: number;
  readonly columns: number;
}

const layouts = new WeakMap<ModelConfig, ReadonlyMap<string, Matrix>>();

/** Matrices by name. The map is kept, because central differences ask for it a thousand times. */
function layoutOf(config: ModelConfig): ReadonlyMap<string, Matrix> {
  return layouts.getOrInsertComputed(config, () => {
    let at = 0;
    return new Map(
      [...parameterShapes(config)].map(([name, shape]) => {
        const [rows, columns] = shape.length === 2 ? [shape[0]!, shape[1]!] : [1, shape[0]!];
        const matrix = { at, rows, columns };
        at += rows * columns;
        return [name, matrix];
      }),
    );
  });
}

/** @returns (T, V) logits, or (T, 1) values, for a sequence of T tokens. */
export function referenceOutputs(config: ModelConfig, flat: ArrayLike<number>, tokens: ArrayLike<number>): Row[] {
  const { width, layers, heads, kvHeads, headWidth, ropeTheta, normEpsilon } = config;
  const named = layoutOf(config);
  const matrix = (name: string) => named.get(name)!;
  const times = ({ at, rows, columns }: Matrix, x: Row): Row => {
    const y = new Float64Array(rows);
    for (let r = 0; r < rows; r++) {
      let sum = 0;
      for (let c = 0; c < columns; c++) sum += flat[at + r * columns + c]! * x[c]!;
      y[r] = sum;
    }
    return y;
  };
  /** Without `map`, which is slow on typed arrays. */
  const row = (length: number, value: (i: number) => number): Row => {
    const y = new Float64Array(length);
    for (let i = 0; i < length; i++) y[i] = value(i);
    return y;
  };
  const plus = (x: Row, y: Row): Row => row(x.length, (i) => x[i]! + y[i]!);
  const norm = (x: Row, { at }: Matrix): Row => {
    let squares = 0;
    for (let i = 0; i < width; i++) squares += x[i]! * x[i]!;
    const scale = 1 / Math.sqrt(squares / width + normEpsilon);
    return row(width, (i) => x[i]! * scale * flat[at + i]!);
  };
  /** The head at `index` of a packed row, rotated by its position. */
  const rotated = (packed: Row, index: number, position: number): Row => {
    const half = headWidth / 2;
    const first = index * headWidth;
    return row(headWidth, (i) => {
      const angle = position / ropeTheta ** ((2 * (i % half)) / headWidth);
      const other = i < half ? -packed[first + i + half]! : packed[first + i - half]!;
      return packed[first + i]! * Math.cos(angle) + other * Math.sin(angle);
    });
  };
  const embedding = matrix("model.embed_tokens.weight");
  let states = Array.from(tokens, (token) => row(width, (i) => flat[embedding.at + token * width + i]!));
  for (let layer = 0; layer < layers; layer++) {
    const part = (rest: string) => matrix(`model.layers.${layer}.${rest}`);
    const [before, after] = [part("input_layernorm.weight"), part("post_attention_layernorm.weight")];
    const [qkv, output] = [part("self_attn.qkv_proj.weight"), part("self_attn.o_proj.weight")];
    const [wGate, wUp, wDown] = [
      part("mlp.gate_proj.weight"),
      part("mlp.up_proj.weight"),
      part("mlp.down_proj.weight"),
    ];
    const bias = part("self_attn.qkv_proj.bias");
    const packed = states.map((x) =>
      plus(
        times(qkv, norm(x, before)),
        row(qkv.rows, (i) => flat[bias.at + i]!),
      ),
    );
    const keys = packed.map((one, t) => Array.from({ length: kvHeads }, (_, k) => rotated(one, heads + k, t)));
    states = states.map((x, t) => {
      const mixed = new Float64Array(heads * headWidth);
      for (let h = 0; h < heads; h++) {
        const shared = Math.floor(h / (heads / kvHeads));
        const query = rotated(packed[t]!, h, t);
        const scores: number[] = [];
        for (let s = 0; s <= t; s++) {
          let sum = 0;
          for (let d = 0; d < headWidth; d++) sum += query[d]! * keys[s]![shared]![d]!;
          scores.push(sum / Math.sqrt(headWidth));
        }
        const most = Math.max(...scores);
        const weights = scores.map((score) => Math.exp(score - most));
        const total = weights.reduce((sum, weight) => sum + weight, 0);
        const values = (heads + kvHeads + shared) * headWidth;
        for (let d = 0; d < headWidth; d++) {
          let sum = 0;
          for (let s = 0; s <= t; s++) sum += weights[s]! * packed[s]![values + d]!;
          mixed[h * headWidth + d] = sum / total;
        }
      }
      return plus(x, times(output, mixed));
    });
    states = states.map((x) => {
      const wide = norm(x, after);
      const [gate, up] = [times(wGate, wide), times(wUp, wide)];
      const gated = row(wGate.rows, (i) => (gate[i]! / (1 + Math.exp(-gate[i]!))) * up[i]!);
      return plus(x, times(wDown, gated));
    });
  }
  const last =
    config.head === "value"
      ? "value_head.weight"
      : config.tiedEmbedding
        ? "model.embed_tokens.weight"
        : "lm_head.weight";
  return states.map((x) => times(matrix(last), norm(x, matrix("model.norm.weight"))));
}

/** Natural-log probabilities of every token after each position, (T, V). */
export function referenceLogProbs(
  config: ModelConfig,
  flat: ArrayLike<number>,
  tokens: ArrayLike<number>,
  temperature = 1,
): number[][] {
  return referenceOutputs(config, flat, tokens).map((logits) => {
    const scaled = Array.from(logits, (logit) => logit / temperature);
    const most = Math.max(...scaled);
    const total = Math.log(scaled.reduce((sum, logit) => sum + Math.exp(logit - most), 0));
    return scaled.map((logit) => logit - most - total);
  });
}

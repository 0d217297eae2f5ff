/**
 * A policy small enough to be checked by hand, and its forward pass in float64, loop by loop, as the Qwen2 paper has it. Slow and
 * obvious on purpose: it shares no line with model/.
 */

import { ModelConfig, parameterShapes } from "../../../model/policy/model-config.ts";
import { initialize, layParameters, type Parameters } from "../../../model/policy/parameters.ts";
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

/** Weights large enough that the policy has opinions. */
export function tinyParameters(config: ModelConfig = tinyModel, seed = 1, scale = 20): Parameters {
  const parameters = layParameters(config);
  initialize(parameters, sequence(seed, "tiny policy"));
  for (const [name, { values }] of parameters.views) {
    if (!name.endsWith("norm.weight")) for (let i = 0; i < values.length; i++) values[i]! *= scale;
  }
  return parameters;
}

type Row = number[];
const dot = (a: ArrayLike<number>, b: ArrayLike<number>) => {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i]! * b[i]!;
  return sum;
};

/** @returns (T, V) logits, or (T, 1) values, for a sequence of T tokens. */
export function referenceOutputs(config: ModelConfig, flat: ArrayLike<number>, tokens: ArrayLike<number>): Row[] {
  const { width, layers, heads, kvHeads, headWidth, ropeTheta, normEpsilon } = config;
  const named = new Map<string, Row[]>();
  let at = 0;
  for (const [name, shape] of parameterShapes(config)) {
    const [rows, columns] = shape.length === 2 ? [shape[0]!, shape[1]!] : [1, shape[0]!];
    const matrix = Array.from({ length: rows }, (_, row) =>
      Array.from({ length: columns }, (_, column) => flat[at + row * columns + column]!),
    );
    named.set(name, matrix);
    at += rows * columns;
  }
  const matrix = (name: string) => named.get(name)!;
  const times = (name: string, x: Row) => matrix(name).map((row) => dot(row, x));
  const norm = (x: Row, name: string) => {
    const scale = 1 / Math.sqrt(dot(x, x) / width + normEpsilon);
    return x.map((value, i) => value * scale * matrix(name)[0]![i]!);
  };
  const rotated = (x: Row, position: number) => {
    const half = headWidth / 2;
    return x.map((value, i) => {
      const angle = position / ropeTheta ** ((2 * (i % half)) / headWidth);
      const other = i < half ? -x[i + half]! : x[i - half]!;
      return value * Math.cos(angle) + other * Math.sin(angle);
    });
  };
  let states = Array.from(tokens, (token) => [...matrix("model.embed_tokens.weight")[token]!]);
  for (let layer = 0; layer < layers; layer++) {
    const name = (rest: string) => `model.layers.${layer}.${rest}`;
    const packed = states.map((x) => {
      const bias = matrix(name("self_attn.qkv_proj.bias"))[0]!;
      return times(name("self_attn.qkv_proj.weight"), norm(x, name("input_layernorm.weight"))).map(
        (v, i) => v + bias[i]!,
      );
    });
    const head = (row: Row, index: number) => row.slice(index * headWidth, (index + 1) * headWidth);
    states = states.map((x, t) => {
      const mixed: Row = [];
      for (let h = 0; h < heads; h++) {
        const shared = Math.floor(h / (heads / kvHeads));
        const query = rotated(head(packed[t]!, h), t);
        const scores = packed
          .slice(0, t + 1)
          .map((row, s) => dot(query, rotated(head(row, heads + shared), s)) / Math.sqrt(headWidth));
        const most = Math.max(...scores);
        const weights = scores.map((score) => Math.exp(score - most));
        const total = weights.reduce((sum, weight) => sum + weight, 0);
        for (let d = 0; d < headWidth; d++) {
          mixed.push(
            weights.reduce((sum, weight, s) => sum + weight * head(packed[s]!, heads + kvHeads + shared)[d]!, 0) /
              total,
          );
        }
      }
      const added = times(name("self_attn.o_proj.weight"), mixed);
      return x.map((value, i) => value + added[i]!);
    });
    states = states.map((x) => {
      const wide = norm(x, name("post_attention_layernorm.weight"));
      const [gate, up] = [times(name("mlp.gate_proj.weight"), wide), times(name("mlp.up_proj.weight"), wide)];
      const added = times(
        name("mlp.down_proj.weight"),
        gate.map((g, i) => (g / (1 + Math.exp(-g))) * up[i]!),
      );
      return x.map((value, i) => value + added[i]!);
    });
  }
  const last =
    config.head === "value"
      ? "value_head.weight"
      : config.tiedEmbedding
        ? "model.embed_tokens.weight"
        : "lm_head.weight";
  return states.map((x) => times(last, norm(x, "model.norm.weight")));
}

/** Natural-log probabilities of every token after each position, (T, V). */
export function referenceLogProbs(
  config: ModelConfig,
  flat: ArrayLike<number>,
  tokens: ArrayLike<number>,
  temperature = 1,
): Row[] {
  return referenceOutputs(config, flat, tokens).map((logits) => {
    const scaled = logits.map((logit) => logit / temperature);
    const most = Math.max(...scaled);
    const total = Math.log(scaled.reduce((sum, logit) => sum + Math.exp(logit - most), 0));
    return scaled.map((logit) => logit - most - total);
  });
}

/**
 * The policy: a decoder of the Llama family (RMSNorm, rotary positions, grouped-query attention, a gated unit). Training, scoring and
 * cached decoding share all code but the attention.
 * Source: https://arxiv.org/abs/2407.10671 (Qwen2), https://arxiv.org/abs/2505.09388 (Qwen3), https://arxiv.org/abs/2407.21783
 * (Llama 3), https://arxiv.org/abs/2310.06825 (Mistral), https://arxiv.org/abs/2503.19786 (Gemma 3),
 * https://huggingface.co/blog/smollm3; parameter names as in transformers.
 *
 * B batch, T tokens, S new tokens of a slot, N rows, M rows with a loss, H query heads, K key/value heads, D head width, E experts,
 * V vocabulary.
 */
import * as tf from "@tensorflow/tfjs-core";
import { attention, type PrefixTree, treeAttention } from "./attention.ts";
import { appendAttention, cachedAttention, type Rotary } from "./cached-attention.ts";
import type { Lora } from "./lora.ts";
import { type Experts, type LayerKind, layerName, type ModelConfig, VALUE_HEAD } from "./model-config.ts";
import { type AttentionShape, expertWeights, geglu, linear, rmsNorm, swiglu } from "./ops.ts";
import { rotaryTables } from "./rope.ts";

type ParameterTensors = Readonly<Record<string, tf.Tensor>>;

/** Attention of a layer: (N, (H + 2K) · D) to (N, H · D). */
type Attend = (qkv: tf.Tensor, layer: number) => tf.Tensor;

/** @param x (N, width). @param name  the name of the norm's gains, without `.weight` */
function norm({ gainOffset, normEpsilon }: ModelConfig, parameters: ParameterTensors, x: tf.Tensor, name: string) {
  const gain = parameters[`${name}.weight`]!;
  return rmsNorm(x, gainOffset === 0 ? gain : tf.add(gain, gainOffset), normEpsilon);
}

/**
 * Embedding, layers and final norm.
 *
 * @param tokens  (N)
 * @param picks   (M) the rows to compute, among N. Default: all. The last layer's attention reads all rows; after it,
 * this layer computes only the picked rows.
 * @returns (M, width)
 */
function body(
  config: ModelConfig,
  parameters: ParameterTensors,
  tokens: tf.Tensor,
  attend: Attend,
  picks?: tf.Tensor,
): tf.Tensor {
  const { width, layers, outputNorms, activation, scaledEmbedding, lora, experts } = config;
  const unit = activation === "silu" ? swiglu : geglu;
  let x: tf.Tensor = tf.gather(parameters["model.embed_tokens.weight"]!, tokens);
  if (scaledEmbedding) x = tf.mul(x, Math.sqrt(width));
  for (let layer = 0; layer < layers; layer++) {
    const name = (rest: string) => layerName(layer, rest);
    /** `x · Wᵀ + addend` */
    const project = (x: tf.Tensor, module: string, addend?: tf.Tensor) => {
      const weight = parameters[name(`${module}.weight`)]!;
      return adapted(lora, parameters, name(module), x, linear(x, weight, addend));
    };
    const normed = (x: tf.Tensor, module: string) => norm(config, parameters, x, name(module));
    /** `x + rows · Wᵀ`. If the model has norms of outputs, the product is normalized before the sum. */
    const residual = (x: tf.Tensor, rows: tf.Tensor, module: string, outputNorm: string) =>
      outputNorms ? tf.add(x, normed(project(rows, module), outputNorm)) : project(rows, module, x);
    const qkv = queriesKeysValues(config, parameters, normed(x, "input_layernorm"), layer);
    let rows = attend(qkv, layer);
    if (picks !== undefined && layer === layers - 1) [x, rows] = [tf.gather(x, picks), tf.gather(rows, picks)];
    x = residual(x, rows, "self_attn.o_proj", "post_attention_layernorm");
    const wide = normed(x, outputNorms ? "pre_feedforward_layernorm" : "post_attention_layernorm");
    if (experts !== null) {
      const part = (rest: string) => parameters[name(`mlp.${rest}.weight`)]!;
      x = tf.add(x, mixture(experts, unit, part, wide));
      continue;
    }
    const gated = unit(project(wide, "mlp.gate_proj"), project(wide, "mlp.up_proj"));
    x = residual(x, gated, "mlp.down_proj", "post_feedforward_layernorm");
  }
  return norm(config, parameters, x, "model.norm");
}

/**
 * A mixture of experts: `Σ weight_e(x) · expert_e(x)`. Every expert computes every row, as one gated unit of width E · hidden. This
 * takes E / used times the arithmetic of the chosen experts alone.
 * Source: https://arxiv.org/abs/2505.09388 (Qwen3), transformers' Qwen3MoeSparseMoeBlock.
 *
 * @param x  (N, width)
 */
function mixture(experts: Experts, unit: typeof swiglu, part: (rest: string) => tf.Tensor, x: tf.Tensor): tf.Tensor {
  const { count } = experts;
  const down = part("experts.down_proj");
  const [, width, hidden] = down.shape as [number, number, number];
  const weights = expertWeights(linear(x, part("gate")), experts);
  const gated = unit(linear(x, part("experts.gate_proj")), linear(x, part("experts.up_proj")));
  const weighted = tf.mul(tf.reshape(gated, [-1, count, hidden]), tf.expandDims(weights, -1));
  const columns = tf.reshape(tf.transpose(down, [1, 0, 2]), [width, count * hidden]);
  return linear(tf.reshape(weighted, [-1, count * hidden]), columns);
}

/**
 * `y` plus the adapter's product, if the matrix has an adapter.
 *
 * @param module  "model.layers.0.mlp.up_proj"
 * @param x       (N, in)
 * @param y       (N, out)
 * @returns (N, out)
 */
function adapted(
  lora: Lora | null,
  parameters: ParameterTensors,
  module: string,
  x: tf.Tensor,
  y: tf.Tensor,
): tf.Tensor {
  const [a, b] = [parameters[`${module}.lora_A.weight`], parameters[`${module}.lora_B.weight`]];
  if (lora === null || a === undefined || b === undefined) return y;
  return linear(tf.mul(linear(x, a), lora.alpha / lora.rank), b, y);
}

/** @param x (N, width). @returns (N, (H + 2K) · D), before rotation */
function queriesKeysValues(config: ModelConfig, parameters: ParameterTensors, x: tf.Tensor, layer: number): tf.Tensor {
  const { heads, kvHeads, headWidth, qkvBias, qkNorm, lora } = config;
  const part = (rest: string) => parameters[layerName(layer, `self_attn.${rest}`)]!;
  const weight = part("qkv_proj.weight");
  const packed = linear(x, weight, qkvBias ? part("qkv_proj.bias") : undefined);
  if (!qkNorm && lora === null) return packed;
  const widths = [heads, kvHeads, kvHeads].map((count) => count * headWidth);
  const [q, k, v] = tf
    .split(packed, widths, -1)
    .map((rows, i) => adapted(lora, parameters, layerName(layer, `self_attn.${"qkv"[i]}_proj`), x, rows));
  if (!qkNorm) return tf.concat([q!, k!, v!], -1);
  const byHead = (rows: tf.Tensor, module: string) => {
    const perHead = tf.reshape(rows, [-1, headWidth]);
    return tf.reshape(norm(config, parameters, perHead, layerName(layer, `self_attn.${module}`)), rows.shape);
  };
  return tf.concat([byHead(q!, "q_norm"), byHead(k!, "k_norm"), v!], -1);
}

interface LayerAttention extends Rotary {
  readonly shape: AttentionShape;
}

/** The attention of each layer at positions 0 … length - 1. Layers of a kind share their tables. */
function attentions(config: ModelConfig, length: number): (layer: number) => LayerAttention {
  const { heads, kvHeads, headWidth, ropeTheta, ropeScaling, scoreScale, layerKinds, slidingRopeTheta } = config;
  const tables = (kind: LayerKind) => {
    if (kind === "unrotated") return rotaryTables(length, headWidth, null);
    if (kind === "full" || slidingRopeTheta === null) return rotaryTables(length, headWidth, ropeTheta, ropeScaling);
    return rotaryTables(length, headWidth, slidingRopeTheta);
  };
  const attentionOf = (kind: LayerKind): LayerAttention => {
    const { cos, sin } = tables(kind);
    // A window of at least `length` tokens hides nothing.
    const window = kind === "sliding" && config.window! < length ? config.window : null;
    return {
      cos: tf.tensor(cos, [length, headWidth / 2]),
      sin: tf.tensor(sin, [length, headWidth / 2]),
      shape: { heads, kvHeads, headWidth, scoreScale, window },
    };
  };
  const kinds: readonly LayerKind[] = layerKinds.length === 0 ? ["full"] : layerKinds;
  const byKind = new Map([...new Set(kinds)].map((kind) => [kind, attentionOf(kind)]));
  return (layer) => byKind.get(layerKinds[layer] ?? "full")!;
}

/** @param states (M, width). @returns (M, V) */
export function logits(config: ModelConfig, parameters: ParameterTensors, states: tf.Tensor): tf.Tensor {
  const head = config.tiedEmbedding ? "model.embed_tokens.weight" : "lm_head.weight";
  return linear(states, parameters[head]!);
}

/** A critic's value of each state. @param states (M, width). @returns (M, 1) */
export function stateValues(parameters: ParameterTensors, states: tf.Tensor): tf.Tensor {
  return linear(states, parameters[VALUE_HEAD]!);
}

/** The function `attend`, which takes and returns (B, T, …), as a function that takes and returns (B · T, …). @param tokens (B, T) */
const byRow =
  (tokens: tf.Tensor, attend: Attend): Attend =>
  (qkv, layer) =>
    tf.reshape(attend(tf.reshape(qkv, [...tokens.shape, -1]), layer), [tokens.size, -1]);

/**
 * Final hidden states of whole sequences. Rows may be padded at the end with any token.
 *
 * @param tokens  (B, T) int32; (N) with a tree
 * @param picks   (M) int32, the states to return, among the B · T or N. Default: all
 * @param tree    default: the tokens are rows
 * @returns (M, width)
 */
export function hiddenStates(
  config: ModelConfig,
  parameters: ParameterTensors,
  tokens: tf.Tensor,
  picks?: tf.Tensor,
  tree?: PrefixTree,
): tf.Tensor {
  const of = attentions(config, (tree?.tokenOfPath ?? tokens).shape[1]!);
  const attend: Attend = (qkv, layer) => {
    const { cos, sin, shape } = of(layer);
    if (tree === undefined) return attention(qkv, cos, sin, shape);
    const isLast = picks !== undefined && layer === config.layers - 1;
    return treeAttention(qkv, tree, cos, sin, shape, isLast);
  };
  if (tree !== undefined) return body(config, parameters, tokens, attend, picks);
  return body(config, parameters, tf.reshape(tokens, [-1]), byRow(tokens, attend), picks);
}

/** How a cache holds its tokens. */
export interface CacheLayout {
  /** Maximum number of tokens of a sequence, its padding included. */
  readonly capacity: number;
  /** True: the caches are 16-bit floats. */
  readonly half: boolean;
}

/** What a decoder computes with, by name: the model's parameters, the caches, and the new tokens, S of each of B rows. */
type DecodeInputs = ParameterTensors & {
  /** (B, S) int32 */
  readonly tokens: tf.Tensor;
  /** (B) int32: for each row, the index of its last new token in its sequence. */
  readonly last: tf.Tensor;
  /** (B) int32: the slot of each row, all different. */
  readonly slots?: tf.Tensor;
  /** () int32: largest `last` + 1. */
  readonly total?: tf.Tensor;
  /** (M) int32, M ≥ B: indices among B · S. The first B indices pick one state for each row; further indices repeat a pick. */
  readonly picks?: tf.Tensor;
};

interface Decoded {
  /** (M, width) states of the picked new tokens, or of all new tokens if there are no picks. */
  readonly states: tf.Tensor;
  /** The caches with the new tokens. */
  readonly caches: ParameterTensors;
}

/**
 * Hidden states of new tokens. The caches of a layer are `keys.LAYER` and `values.LAYER`, (slots, K, capacity, D); capacity / 2 if
 * `layout.half`. Each row has the slot that `slots` names. Without `slots` but with `total`, row i has slot i, and S is 1. Without both,
 * each row has caches of its own, `keys.LAYER.ROW` and `values.LAYER.ROW`, (1, K, capacity, D).
 */
export function decodeStates(config: ModelConfig, inputs: DecodeInputs, { capacity, half }: CacheLayout): Decoded {
  const { tokens, last, slots, total, picks } = inputs;
  const picked = slots && picks && pickedTokens(tokens, picks);
  const of = attentions(config, capacity);
  const caches: Record<string, tf.Tensor> = {};
  const attend = byRow(tokens, (qkv, layer) => {
    const { cos, sin, shape: whole } = of(layer);
    const shape = { ...whole, halfCaches: half };
    const [ofKeys, ofValues] = [`keys.${layer}`, `values.${layer}`];
    if (slots === undefined && total === undefined) {
      const rows = [...Array(tokens.shape[0]!).keys()];
      const own = (name: string) => rows.map((row) => inputs[`${name}.${row}`]!);
      const { out, keys, values } = appendAttention(qkv, own(ofKeys), own(ofValues), last, { cos, sin }, shape);
      for (const row of rows) {
        caches[`${ofKeys}.${row}`] = keys[row]!;
        caches[`${ofValues}.${row}`] = values[row]!;
      }
      return out;
    }
    // After the last layer's attention, `body` reads only the picked tokens.
    const read = layer === config.layers - 1 ? picked : undefined;
    const shared = { qkv, keys: inputs[ofKeys]!, values: inputs[ofValues]!, last, cos, sin };
    const given = { ...shared, ...(slots && { slots }), ...(total && { total }), ...(read && { read }) };
    const { out, keys, values } = cachedAttention(given, shape);
    caches[ofKeys] = keys;
    caches[ofValues] = values;
    return out;
  });
  return { states: body(config, inputs, tf.reshape(tokens, [-1]), attend, picks), caches };
}

/** (B) the index among S of each row's picked token. */
function pickedTokens(tokens: tf.Tensor, picks: tf.Tensor): tf.Tensor {
  const [batch, added] = tokens.shape as [number, number];
  return tf.sub(tf.slice(picks, [0], [batch]), tf.range(0, batch * added, added, "int32"));
}

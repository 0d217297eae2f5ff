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
import {
  appendAttention,
  attentionInSlots,
  type CachedAttention,
  type Rotary,
  stepAttention,
} from "./cached-attention.ts";
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

/** Keys and values of every layer: `keys.0`, `values.0`, …. If each row has its own caches, the row's index follows: `keys.0.0`, … */
export type Caches = Readonly<Record<string, tf.Tensor>>;

export interface Decoded {
  /** (M, width) states of the picked new tokens, or of all new tokens if there are no picks. */
  readonly states: tf.Tensor;
  /** The caches with the new tokens. */
  readonly caches: Caches;
}

/**
 * Hidden states of one new token per row.
 *
 * @param tokens  (B, 1) int32
 * @param last    (B) int32, index of each row's token in its sequence
 * @param total   () int32, largest `last` + 1
 * @param caches  (B, K, capacity, D) of each layer; capacity / 2 if `layout.half`
 */
export function stepStates(
  config: ModelConfig,
  parameters: ParameterTensors,
  tokens: tf.Tensor,
  last: tf.Tensor,
  total: tf.Tensor,
  caches: Caches,
  layout: CacheLayout,
): Decoded {
  return decode(config, parameters, tokens, layout, (qkv, layer, { shape, ...rotary }) => {
    return withCommonCaches(caches, layer, (keys, values) => {
      return stepAttention(qkv, keys, values, last, total, rotary, shape);
    });
  });
}

/**
 * Hidden states of one new token per row. Each row is a slot of caches that all rows share.
 *
 * @param slots   (B) int32, the slot of each row, all different
 * @param caches  (slots, K, capacity, D) of each layer; capacity / 2 if `layout.half`
 */
export function stepStatesInSlots(
  config: ModelConfig,
  parameters: ParameterTensors,
  tokens: tf.Tensor,
  last: tf.Tensor,
  slots: tf.Tensor,
  caches: Caches,
  layout: CacheLayout,
): Decoded {
  return decode(config, parameters, tokens, layout, (qkv, layer, { shape, ...rotary }) => {
    return withCommonCaches(caches, layer, (keys, values) => {
      return attentionInSlots(qkv, keys, values, last, slots, rotary, shape);
    });
  });
}

/** Several new tokens per row. */
export interface Appended {
  /** (B, S) int32 */
  readonly tokens: tf.Tensor;
  /** (B) int32: for each row, the index of its last new token in its sequence. */
  readonly last: tf.Tensor;
  /** (M) int32, M ≥ B: indices among B · S. The first B indices pick one state for each row; further indices repeat a pick. */
  readonly picks: tf.Tensor;
}

/**
 * Hidden states of several new tokens per row.
 *
 * @param caches  (1, K, capacity, D) of each layer and row; capacity / 2 if `layout.half`
 */
export function appendStates(
  config: ModelConfig,
  parameters: ParameterTensors,
  { tokens, last, picks }: Appended,
  caches: Caches,
  layout: CacheLayout,
): Decoded {
  const rows = [...Array(tokens.shape[0]!).keys()];
  const attend: AttendCached = (qkv, layer, { shape, ...rotary }) => {
    const of = (name: "keys" | "values") => rows.map((row) => caches[`${name}.${layer}.${row}`]!);
    const { out, keys, values } = appendAttention(qkv, of("keys"), of("values"), last, rotary, shape);
    const next = rows.flatMap((row) => [
      [`keys.${layer}.${row}`, keys[row]!],
      [`values.${layer}.${row}`, values[row]!],
    ]);
    return { out, caches: Object.fromEntries(next) };
  };
  return decode(config, parameters, tokens, layout, attend, picks);
}

/**
 * Hidden states of several new tokens per row. Each row is a slot of caches that all rows share.
 *
 * @param slots   (B) int32, the slot of each row, all different
 * @param caches  (slots, K, capacity, D) of each layer
 */
export function appendStatesToSlots(
  config: ModelConfig,
  parameters: ParameterTensors,
  { tokens, last, picks }: Appended,
  slots: tf.Tensor,
  caches: Caches,
  layout: CacheLayout,
): Decoded {
  const [batch, added] = tokens.shape as [number, number];
  const reads = tf.sub(tf.slice(picks, [0], [batch]), tf.range(0, batch * added, added, "int32"));
  const attend: AttendCached = (qkv, layer, { shape, ...rotary }) =>
    withCommonCaches(caches, layer, (keys, values) => {
      // After the last layer's attention, `body` reads only the picked tokens.
      const read = layer === config.layers - 1 ? reads : undefined;
      return attentionInSlots(qkv, keys, values, last, slots, rotary, shape, read);
    });
  return decode(config, parameters, tokens, layout, attend, picks);
}

interface Attended {
  readonly out: tf.Tensor;
  readonly caches: Caches;
}

type AttendCached = (qkv: tf.Tensor, layer: number, of: LayerAttention) => Attended;

/** Attention over caches that all rows of a layer share. */
function withCommonCaches(
  caches: Caches,
  layer: number,
  attend: (keys: tf.Tensor, values: tf.Tensor) => CachedAttention,
): Attended {
  const [ofKeys, ofValues] = [`keys.${layer}`, `values.${layer}`];
  const { out, keys, values } = attend(caches[ofKeys]!, caches[ofValues]!);
  return { out, caches: { [ofKeys]: keys, [ofValues]: values } };
}

function decode(
  config: ModelConfig,
  parameters: ParameterTensors,
  tokens: tf.Tensor,
  { capacity, half }: CacheLayout,
  attendCached: AttendCached,
  picks?: tf.Tensor,
): Decoded {
  const of = attentions(config, capacity);
  const caches: Record<string, tf.Tensor> = {};
  const attend = byRow(tokens, (qkv, layer) => {
    const { shape, ...tables } = of(layer);
    const attended = attendCached(qkv, layer, { ...tables, shape: { ...shape, halfCaches: half } });
    Object.assign(caches, attended.caches);
    return attended.out;
  });
  return { states: body(config, parameters, tf.reshape(tokens, [-1]), attend, picks), caches };
}

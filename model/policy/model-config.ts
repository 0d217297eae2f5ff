/**
 * The model's configuration, and the names and shapes of its parameters. `ModelConfig` has an option for each difference between
 * model families; checkpoint/config.ts says which options a family uses. This file does not import tfjs, so code that only reads
 * checkpoints does not load tfjs. Parameter names are those of transformers, except the packed `qkv_proj` and `experts`.
 * D head width, E experts, V vocabulary.
 */
import { isDeepStrictEqual } from "node:util";
import { z } from "zod";
import { adapterShapes, Lora } from "./lora.ts";
import { RopeScaling } from "./rope.ts";

/** A mixture of experts: each layer has `count` gated units, and a router chooses `used` of them for each token. */
export const Experts = z.strictObject({
  /** E. */
  count: z.int().min(2),
  /** Experts chosen for a token. */
  used: z.int().positive(),
  /** True: the weights of a token's chosen experts add up to 1. False: each weight is its value in the softmax over all experts. */
  normalized: z.boolean(),
});
export type Experts = z.infer<typeof Experts>;

/** The tokens that a token sees, itself included. full: all so far. sliding: the last `window`. unrotated: all, without rotary positions (NoPE). */
const LayerKind = z.enum(["full", "sliding", "unrotated"]);
export type LayerKind = z.infer<typeof LayerKind>;

export const ModelConfig = z
  .strictObject({
    /** V. A multiple of 64 keeps matrix products aligned. */
    vocabulary: z.int().positive(),
    width: z.int().positive().default(128),
    layers: z.int().positive().default(3),
    heads: z.int().positive().default(4),
    kvHeads: z.int().positive().default(2),
    headWidth: z.int().positive().default(32),
    /** Width of the gated unit; in a mixture of experts, of each expert's gated unit. */
    hidden: z.int().positive().default(256),
    /** A mixture of experts in every layer; null: one gated unit. */
    experts: Experts.nullable().default(null),
    ropeTheta: z.number().positive().default(10_000),
    ropeScaling: RopeScaling.nullable().default(null),
    /** The projections of queries, keys and values have biases (Qwen2). */
    qkvBias: z.boolean().default(true),
    /** Queries and keys are normalized by head before their rotation (Qwen3). */
    qkNorm: z.boolean().default(false),
    normEpsilon: z.number().positive().default(1e-6),
    /** Added to the stored gains of norms (Gemma stores gain - 1). */
    gainOffset: z.number().default(0),
    /** The outputs of attention and gated unit are normalized too (Gemma). */
    outputNorms: z.boolean().default(false),
    /** Activation of the gated unit; gelu is the tanh approximation of GELU. */
    activation: z.enum(["silu", "gelu"]).default("silu"),
    /** Multiply embeddings by the square root of the width (Gemma). */
    scaledEmbedding: z.boolean().default(false),
    /** Factor of the attention scores; null: 1 / sqrt(D). */
    scoreScale: z.number().positive().nullable().default(null),
    /** The kind of each layer; empty: all layers are full. */
    layerKinds: z.array(LayerKind).default([]),
    /** Tokens that a token of a sliding layer sees, itself included. */
    window: z.int().positive().nullable().default(null),
    /** Rotary base of sliding layers, which then ignore `ropeScaling`. null: sliding layers have the rotary positions of full layers. */
    slidingRopeTheta: z.number().positive().nullable().default(null),
    /** The output projection is the embedding itself. */
    tiedEmbedding: z.boolean().default(true),
    /** Output of the last layer for each state: a logit per token, one value (a critic), or both. */
    head: z.enum(["tokens", "value", "both"]).default("tokens"),
    /** Train adapters and freeze the rest. */
    lora: Lora.nullable().default(null),
  })
  .refine(({ heads, kvHeads }) => heads % kvHeads === 0, {
    path: ["kvHeads"],
    error: "kvHeads must divide heads: each key/value head serves heads / kvHeads query heads",
  })
  .refine(({ headWidth }) => headWidth % 2 === 0, {
    path: ["headWidth"],
    error: "headWidth must be even for rotary positions",
  })
  .refine(({ experts }) => experts === null || experts.used <= experts.count, {
    path: ["experts", "used"],
    error: "used must be at most count: a token cannot have more experts than a layer",
  })
  .refine(({ layerKinds, layers }) => layerKinds.length === 0 || layerKinds.length === layers, {
    path: ["layerKinds"],
    error: "layerKinds must be empty or have an entry for each layer",
  })
  .refine(({ layerKinds, window }) => window !== null || !layerKinds.includes("sliding"), {
    path: ["window"],
    error: "sliding layers need a window",
  });
export type ModelConfig = z.infer<typeof ModelConfig>;

/** A key whose values differ between two models; undefined if there is none. */
export const differingKey = (a: ModelConfig, b: ModelConfig): keyof ModelConfig | undefined =>
  (Object.keys(b) as (keyof ModelConfig)[]).find((key) => !isDeepStrictEqual(a[key], b[key]));

export const layerName = (layer: number, rest: string) => `model.layers.${layer}.${rest}`;

type Shapes = ReadonlyMap<string, readonly number[]>;

export const VALUE_HEAD = "value_head.weight";

/**
 * Names and shapes of the trained parameters, in the order of their memory. Matrices are (out, in).
 * `qkv_proj` stacks q_proj, k_proj and v_proj, one below the other. Each parameter under `experts` stacks the experts' matrices.
 */
export function parameterShapes(config: ModelConfig): Shapes {
  if (config.lora === null) return wholeShapes(config);
  const shapes = adapterShapes(config, config.lora);
  return config.head === "tokens" ? shapes : shapes.set(VALUE_HEAD, [1, config.width]);
}

/** Names and shapes of the frozen parameters, which are the first parameters of `baseOf(config)`. Empty without adapters. */
export function frozenShapes(config: ModelConfig): Shapes {
  if (config.lora === null) return new Map();
  return new Map([...wholeShapes(config)].filter(([name]) => name !== VALUE_HEAD));
}

/** The model without its adapters and value head. */
export const baseOf = (config: ModelConfig): ModelConfig => ({ ...config, lora: null, head: "tokens" });

function wholeShapes(config: ModelConfig): Shapes {
  const { vocabulary, width, layers, heads, kvHeads, headWidth, hidden, qkvBias, qkNorm, tiedEmbedding, head } = config;
  const { outputNorms, experts } = config;
  const packed = (heads + 2 * kvHeads) * headWidth;
  const shapes = new Map<string, readonly number[]>([["model.embed_tokens.weight", [vocabulary, width]]]);
  for (let layer = 0; layer < layers; layer++) {
    shapes.set(layerName(layer, "input_layernorm.weight"), [width]);
    shapes.set(layerName(layer, "self_attn.qkv_proj.weight"), [packed, width]);
    if (qkvBias) shapes.set(layerName(layer, "self_attn.qkv_proj.bias"), [packed]);
    if (qkNorm) {
      shapes.set(layerName(layer, "self_attn.q_norm.weight"), [headWidth]);
      shapes.set(layerName(layer, "self_attn.k_norm.weight"), [headWidth]);
    }
    shapes.set(layerName(layer, "self_attn.o_proj.weight"), [width, heads * headWidth]);
    shapes.set(layerName(layer, "post_attention_layernorm.weight"), [width]);
    if (outputNorms) {
      shapes.set(layerName(layer, "pre_feedforward_layernorm.weight"), [width]);
      shapes.set(layerName(layer, "post_feedforward_layernorm.weight"), [width]);
    }
    if (experts === null) {
      shapes.set(layerName(layer, "mlp.gate_proj.weight"), [hidden, width]);
      shapes.set(layerName(layer, "mlp.up_proj.weight"), [hidden, width]);
      shapes.set(layerName(layer, "mlp.down_proj.weight"), [width, hidden]);
    } else {
      shapes.set(layerName(layer, "mlp.gate.weight"), [experts.count, width]);
      shapes.set(layerName(layer, "mlp.experts.gate_proj.weight"), [experts.count * hidden, width]);
      shapes.set(layerName(layer, "mlp.experts.up_proj.weight"), [experts.count * hidden, width]);
      shapes.set(layerName(layer, "mlp.experts.down_proj.weight"), [experts.count, width, hidden]);
    }
  }
  shapes.set("model.norm.weight", [width]);
  if (head !== "value" && !tiedEmbedding) shapes.set("lm_head.weight", [vocabulary, width]);
  // The value head is last, so the parameters of the policy come first in a network with both heads.
  if (head !== "tokens") shapes.set(VALUE_HEAD, [1, width]);
  return shapes;
}

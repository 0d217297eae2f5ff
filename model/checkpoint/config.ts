/** Converts between transformers' config.json and `ModelConfig`. This file refuses every model that Bunraku does not compute exactly. */
import { z } from "zod";
import { type LayerKind, ModelConfig } from "../policy/model-config.ts";
import type { RopeScaling } from "../policy/rope.ts";

const Count = z.int().positive();
const Flag = z.boolean().nullish();
const Rope = z.looseObject({
  rope_type: z.string().optional(),
  type: z.string().optional(),
  rope_theta: z.number().positive().optional(),
  partial_rotary_factor: z.number().optional(),
});

const HuggingFaceConfig = z.looseObject({
  vocab_size: Count,
  hidden_size: Count,
  intermediate_size: Count,
  num_hidden_layers: Count.max(1000),
  num_attention_heads: Count,
  num_key_value_heads: Count.nullish(),
  head_dim: Count.nullish(),
  hidden_act: z.string().default("silu"),
  /** Gemma's name for hidden_act. */
  hidden_activation: z.string().nullish(),
  rms_norm_eps: z.number().positive(),
  tie_word_embeddings: z.boolean().default(false),
  max_position_embeddings: Count.nullish(),
  rope_theta: z.number().positive().nullish(),
  /** Key of transformers 4; transformers 5 writes `rope_parameters`. */
  rope_scaling: Rope.nullish(),
  rope_parameters: Rope.extend({ full_attention: Rope.optional(), sliding_attention: Rope.optional() }).nullish(),
  /** Rotary base of sliding layers. */
  rope_local_base_freq: z.number().positive().nullish(),
  attention_bias: Flag,
  mlp_bias: Flag,
  use_sliding_window: Flag,
  sliding_window: Count.nullish(),
  /** Layers before this one have full attention, if there is no layer_types. */
  max_window_layers: z.int().nonnegative().default(28),
  layer_types: z.array(z.string()).nullish(),
  /** Layers whose number, counted from 1, is a multiple of this have full attention. */
  sliding_window_pattern: Count.default(6),
  /** For each layer: 0 if the layer has no rotary positions. */
  no_rope_layers: z.array(z.int()).nullish(),
  no_rope_layer_interval: Count.default(4),
  query_pre_attn_scalar: z.number().positive().nullish(),
  attn_logit_softcapping: z.number().nullish(),
  final_logit_softcapping: z.number().nullish(),
  use_bidirectional_attention: z.union([z.boolean(), z.string()]).nullish(),
  quantization_config: z.unknown().optional(),
  /** Number of experts of a layer; transformers 5 writes num_local_experts. */
  num_experts: Count.nullish(),
  num_local_experts: Count.nullish(),
  num_experts_per_tok: Count.nullish(),
  moe_intermediate_size: Count.nullish(),
  norm_topk_prob: z.boolean().default(false),
  /** Layers whose number, counted from 1, is a multiple of this have experts, except mlp_only_layers. */
  decoder_sparse_step: Count.default(1),
  mlp_only_layers: z.array(z.int()).nullish(),
});
type HuggingFaceConfig = z.infer<typeof HuggingFaceConfig>;

interface Family {
  /** How the family's models differ from Llama. */
  readonly options: Partial<ModelConfig>;
  /** The values that transformers uses for keys that config.json lacks. */
  readonly defaults?: Partial<HuggingFaceConfig>;
  readonly kindOf: (config: HuggingFaceConfig, layer: number) => LayerKind;
}

/** The kind that layer_types gives a layer. Without layer_types, a layer is sliding if `isSliding` returns true. */
const typedOr = (isSliding: (config: HuggingFaceConfig, layer: number) => boolean): Family["kindOf"] => {
  return (config, layer) => {
    const sliding = config.layer_types?.[layer] ?? (isSliding(config, layer) ? "sliding_attention" : "");
    return sliding === "sliding_attention" ? "sliding" : "full";
  };
};
const qwenLayers = typedOr(({ max_window_layers: first }, layer) => layer >= first);
const slides = ({ use_sliding_window: used, sliding_window: window }: HuggingFaceConfig) => used && window !== null;
const qwenKind: Family["kindOf"] = (config, layer) => (slides(config) ? qwenLayers(config, layer) : "full");

/** The supported model types of transformers. */
const FAMILIES = {
  qwen2: { options: { qkvBias: true }, defaults: { sliding_window: 4096 }, kindOf: qwenKind },
  qwen3: { options: { qkNorm: true }, defaults: { sliding_window: 4096 }, kindOf: qwenKind },
  qwen3_moe: {
    options: { qkNorm: true },
    defaults: { sliding_window: 4096 },
    // All layers slide, or no layer does: for this type transformers ignores layer_types and max_window_layers.
    kindOf: (config) => (slides(config) ? "sliding" : "full"),
  },
  llama: { options: {}, kindOf: () => "full" },
  mistral: {
    options: {},
    defaults: { sliding_window: 4096 },
    kindOf: ({ sliding_window: window }) => (window === null ? "full" : "sliding"),
  },
  smollm3: {
    options: {},
    defaults: { tie_word_embeddings: true, rope_theta: 2_000_000 },
    kindOf: ({ no_rope_layers: rotated, no_rope_layer_interval: interval }, layer) =>
      (rotated?.[layer] ?? (layer + 1) % interval) === 0 ? "unrotated" : "full",
  },
  gemma3_text: {
    options: { qkNorm: true, outputNorms: true, gainOffset: 1, scaledEmbedding: true },
    defaults: {
      tie_word_embeddings: true,
      hidden_activation: "gelu_pytorch_tanh",
      query_pre_attn_scalar: 256,
      rope_theta: 1_000_000,
      rope_local_base_freq: 10_000,
    },
    kindOf: typedOr(({ sliding_window_pattern: period }, layer) => (layer + 1) % period !== 0),
  },
} as const satisfies Record<string, Family>;
type Architecture = keyof typeof FAMILIES;

/** Advice for unsupported types that users try. */
const REFUSED: Readonly<Record<string, string>> = {
  gemma3: "it reads images too; take a text model, such as gemma-3-270m-it or gemma-3-1b-it",
  qwen2_moe: "qwen3_moe is the only supported mixture of experts",
  mixtral: "qwen3_moe is the only supported mixture of experts",
};

/** transformers' names of activations. */
const ACTIVATIONS: Readonly<Record<string, ModelConfig["activation"]>> = { silu: "silu", gelu_pytorch_tanh: "gelu" };

/** An unusable checkpoint. The message says what was found and what is needed, and names the file if one was read. */
export class CheckpointFormatError extends Error {
  override readonly name = "CheckpointFormatError";
}

/** The faults of a file in one line. */
export const faultsOf = (error: z.ZodError): string => z.prettifyError(error).replaceAll(/\s*\n\s*/g, " ");

export const refusal =
  (file: string) =>
  (why: string): never => {
    throw new CheckpointFormatError(`cannot use ${file}: ${why}`);
  };

/** The contents of a file, by a schema. @throws {CheckpointFormatError} with the faults in one line of at most 300 characters */
export function parseFile<T extends z.ZodType>(schema: T, json: unknown, file: string): z.infer<T> {
  const parsed = schema.safeParse(json);
  return parsed.success ? parsed.data : refusal(file)(faultsOf(parsed.error).slice(0, 300));
}

/**
 * @param json  the parsed contents of the file.
 * @param file  name of the file in error texts.
 * @throws {CheckpointFormatError} if Bunraku would not compute exactly what the model computes.
 */
export function readModelConfig(json: unknown, file: string): ModelConfig {
  const refuse: (why: string) => never = refusal(file);
  const type = (json as { model_type?: unknown } | null)?.model_type;
  if (typeof type !== "string" || !Object.hasOwn(FAMILIES, type)) {
    const why = typeof type === "string" && Object.hasOwn(REFUSED, type) ? `${REFUSED[type]}; ` : "";
    const known = Object.keys(FAMILIES).join(", ");
    return refuse(`model_type ${JSON.stringify(type) ?? "is missing"}; ${why}supported are ${known}`);
  }
  const family: Family = FAMILIES[type as Architecture];
  const config = parseFile(HuggingFaceConfig, { ...family.defaults, ...(json as object) }, file);
  for (const [key, why] of unsupported(config, type as Architecture)) {
    refuse(`${key} ${JSON.stringify(config[key])}; ${why}`);
  }
  const { hidden_size: width, num_attention_heads: heads, query_pre_attn_scalar: scalar } = config;
  if (config.rope_parameters && config.rope_scaling && !Bun.deepEquals(config.rope_parameters, config.rope_scaling))
    refuse("rope_parameters and rope_scaling differ, and programs disagree on which to read; keep one of them");
  const rope = config.rope_parameters?.full_attention ?? config.rope_parameters ?? config.rope_scaling ?? {};
  const local = config.rope_parameters?.sliding_attention;
  const odd = config.layer_types?.find((kind) => !["full_attention", "sliding_attention"].includes(kind));
  if (odd !== undefined) refuse(`layer_types has ${odd}; supported are full_attention, sliding_attention`);
  const typed = config.layer_types?.length ?? config.num_hidden_layers;
  if (typed !== config.num_hidden_layers)
    refuse(`layer_types has ${typed} entries, but num_hidden_layers says ${config.num_hidden_layers}; make them equal`);
  const kinds = Array.from({ length: config.num_hidden_layers }, (_, layer) => family.kindOf(config, layer));
  const slidingRope = local?.rope_type ?? "default";
  if (slidingRope !== "default")
    refuse(`rope scaling ${JSON.stringify(slidingRope)} of sliding-attention layers is not supported`);
  const rotatedShare = rope.partial_rotary_factor ?? 1;
  if (rotatedShare !== 1) refuse(`partial_rotary_factor ${rotatedShare} is not supported; it must be 1`);
  const model = {
    vocabulary: config.vocab_size,
    width,
    layers: config.num_hidden_layers,
    heads,
    kvHeads: config.num_key_value_heads ?? heads,
    headWidth: config.head_dim ?? width / heads,
    hidden: type === "qwen3_moe" ? config.moe_intermediate_size : config.intermediate_size,
    experts: type === "qwen3_moe" ? expertsOf(config, refuse) : null,
    ropeTheta: rope.rope_theta ?? config.rope_theta ?? 10_000,
    ropeScaling: ropeScaling(rope, config.max_position_embeddings ?? null, refuse),
    normEpsilon: config.rms_norm_eps,
    tiedEmbedding: config.tie_word_embeddings,
    qkvBias: false,
    ...family.options,
    activation: ACTIVATIONS[activationOf(config)],
    scoreScale: typeof scalar === "number" ? 1 / Math.sqrt(scalar) : null,
    layerKinds: kinds.every((kind) => kind === "full") ? [] : kinds,
    window: kinds.includes("sliding") ? config.sliding_window : null,
    slidingRopeTheta: local?.rope_theta ?? config.rope_local_base_freq ?? null,
  };
  return parseFile(ModelConfig, model, file);
}

function expertsOf(config: HuggingFaceConfig, refuse: (why: string) => never): ModelConfig["experts"] {
  const { num_experts_per_tok: used, moe_intermediate_size: hidden, norm_topk_prob: normalized } = config;
  const count = config.num_experts ?? config.num_local_experts;
  if (!count || !used || !hidden) {
    const found = JSON.stringify({ num_experts: count, num_experts_per_tok: used, moe_intermediate_size: hidden });
    return refuse(
      `a mixture of experts needs num_experts, num_experts_per_tok and moe_intermediate_size, found ${found}`,
    );
  }
  if (config.decoder_sparse_step !== 1 || (config.mlp_only_layers ?? []).length > 0)
    return refuse("decoder_sparse_step or mlp_only_layers leave layers without experts; every layer must have experts");
  return { count, used, normalized };
}

function* unsupported(config: HuggingFaceConfig, type: Architecture): Generator<[keyof HuggingFaceConfig, string]> {
  if (!Object.hasOwn(ACTIVATIONS, activationOf(config)))
    yield [
      config.hidden_activation ? "hidden_activation" : "hidden_act",
      `supported are ${Object.keys(ACTIVATIONS).join(", ")}`,
    ];
  // Qwen2 has biases of its own and ignores the key.
  if (config.attention_bias && type !== "qwen2")
    yield ["attention_bias", `biases in the attention of ${type} are not supported`];
  if (config.mlp_bias) yield ["mlp_bias", "biases in the gated unit are not supported"];
  // Besides Qwen, only SmolLM3 reads this key in transformers: SmolLM3's layers without positions then slide.
  if (config.use_sliding_window && type === "smollm3")
    yield ["use_sliding_window", "sliding layers without positions are not supported"];
  if (config.attn_logit_softcapping) yield ["attn_logit_softcapping", "soft caps are not supported"];
  if (config.final_logit_softcapping) yield ["final_logit_softcapping", "soft caps are not supported"];
  if (config.use_bidirectional_attention) yield ["use_bidirectional_attention", "only causal attention is supported"];
  if (config.quantization_config != null)
    yield ["quantization_config", "quantized weights cannot be trained; take the unquantized weights"];
}

const activationOf = (config: HuggingFaceConfig): string => config.hidden_activation ?? config.hidden_act;

type Rope = z.infer<typeof Rope>;

function ropeScaling(rope: Rope, longest: number | null, refuse: (why: string) => never): RopeScaling | null {
  const kind = rope.rope_type ?? rope.type ?? "default";
  const number = (key: string, fallback?: number): number => {
    const value = rope[key] ?? fallback;
    if (typeof value === "number") return value;
    return refuse(`rope scaling ${JSON.stringify(kind)} needs a number ${key}, found ${JSON.stringify(value)}`);
  };
  switch (kind) {
    case "default":
      return null;
    case "linear":
      return { kind, factor: number("factor") };
    case "llama3":
      return {
        kind,
        factor: number("factor"),
        lowFrequencyFactor: number("low_freq_factor"),
        highFrequencyFactor: number("high_freq_factor"),
        originalLength: number("original_max_position_embeddings"),
      };
    case "yarn": {
      const factor = number("factor");
      if (rope["mscale"] || rope["mscale_all_dim"]) return refuse("rope scaling yarn with mscale is not supported");
      return {
        kind,
        factor,
        originalLength: number("original_max_position_embeddings", longest ?? undefined),
        betaFast: number("beta_fast", 32),
        betaSlow: number("beta_slow", 1),
        attentionFactor: number("attention_factor", factor <= 1 ? 1 : 0.1 * Math.log(factor) + 1),
        truncate: rope["truncate"] !== false,
      };
    }
    default:
      return refuse(`rope scaling ${JSON.stringify(kind)}; supported are default, linear, llama3 and yarn`);
  }
}

/** @throws {CheckpointFormatError} if neither Qwen2 nor Qwen3 nor Llama computes what the model computes. */
export function architectureOf(model: ModelConfig): "qwen2" | "qwen3" | "llama" {
  const { qkvBias, qkNorm, layerKinds, outputNorms, activation, experts } = model;
  const plain =
    experts === null && layerKinds.length === 0 && !outputNorms && activation === "silu" && !(qkvBias && qkNorm);
  if (plain) return qkvBias ? "qwen2" : qkNorm ? "qwen3" : "llama";
  throw new CheckpointFormatError(
    "only a policy that computes what Qwen2, Qwen3 or Llama computes can be written as GGUF or with a " +
      "new config.json; a pretrained model can be exported to hf",
  );
}

/** transformers' class of each model type that `writeModelConfig` writes. */
const CLASSES = { qwen2: "Qwen2ForCausalLM", qwen3: "Qwen3ForCausalLM", llama: "LlamaForCausalLM" } as const;

/** A config.json for this model. @param longest  maximum number of tokens of a sequence */
export function writeModelConfig(model: ModelConfig, longest: number): Record<string, unknown> {
  const type = architectureOf(model);
  return {
    architectures: [CLASSES[type]],
    model_type: type,
    attention_bias: false,
    attention_dropout: 0,
    dtype: "float32",
    head_dim: model.headWidth,
    hidden_act: "silu",
    hidden_size: model.width,
    initializer_range: 0.02,
    intermediate_size: model.hidden,
    max_position_embeddings: longest,
    num_attention_heads: model.heads,
    num_hidden_layers: model.layers,
    num_key_value_heads: model.kvHeads,
    rms_norm_eps: model.normEpsilon,
    rope_parameters: { rope_theta: model.ropeTheta, ...writeRopeScaling(model.ropeScaling) },
    rope_theta: model.ropeTheta,
    tie_word_embeddings: model.tiedEmbedding,
    use_cache: true,
    vocab_size: model.vocabulary,
  };
}

type KeyOf<T> = T extends unknown ? keyof T : never;

/** transformers' keys of a rope scaling. */
const ROPE_KEYS: Readonly<Record<KeyOf<RopeScaling>, string>> = {
  kind: "rope_type",
  factor: "factor",
  lowFrequencyFactor: "low_freq_factor",
  highFrequencyFactor: "high_freq_factor",
  originalLength: "original_max_position_embeddings",
  betaFast: "beta_fast",
  betaSlow: "beta_slow",
  attentionFactor: "attention_factor",
  truncate: "truncate",
};

function writeRopeScaling(scaling: RopeScaling | null): Record<string, unknown> {
  const entries = Object.entries(scaling ?? { kind: "default" });
  return Object.fromEntries(entries.map(([key, value]) => [ROPE_KEYS[key as keyof typeof ROPE_KEYS], value]));
}

/**
 * Converts between transformers' config.json and `ModelConfig`. It refuses every model that this code does not compute exactly.
 */
import { z } from "zod";
import type { RopeScaling } from "../policy/rope.ts";
import { ModelConfig } from "../policy/transformer.ts";

/** The supported model types of transformers. */
const ARCHITECTURES = {
  qwen2: { class: "Qwen2ForCausalLM", qkvBias: true, qkNorm: false },
  qwen3: { class: "Qwen3ForCausalLM", qkvBias: false, qkNorm: true },
  llama: { class: "LlamaForCausalLM", qkvBias: false, qkNorm: false },
} as const;
export type Architecture = keyof typeof ARCHITECTURES;

const Count = z.int().positive();
const Flag = z.boolean().nullish();
const Rope = z.looseObject({
  rope_type: z.string().optional(),
  type: z.string().optional(),
  rope_theta: z.number().positive().optional(),
});

const HuggingFaceConfig = z.looseObject({
  vocab_size: Count,
  hidden_size: Count,
  intermediate_size: Count,
  num_hidden_layers: Count,
  num_attention_heads: Count,
  num_key_value_heads: Count.nullish(),
  head_dim: Count.nullish(),
  hidden_act: z.string().default("silu"),
  rms_norm_eps: z.number().positive(),
  tie_word_embeddings: z.boolean().default(false),
  max_position_embeddings: Count.nullish(),
  rope_theta: z.number().positive().nullish(),
  /** Until transformers 4; `rope_parameters` since 5. */
  rope_scaling: Rope.nullish(),
  rope_parameters: Rope.nullish(),
  attention_bias: Flag,
  mlp_bias: Flag,
  use_sliding_window: Flag,
  quantization_config: z.unknown().optional(),
});
type HuggingFaceConfig = z.infer<typeof HuggingFaceConfig>;

/** An unusable checkpoint. The message names the file, what was found and what is needed. */
export class CheckpointFormatError extends Error {
  override readonly name = "CheckpointFormatError";
}

/** The faults of a file in one line. */
export const faultsOf = (error: z.ZodError): string => z.prettifyError(error).replaceAll(/\s*\n\s*/g, " ");

/**
 * @param json  of the file, parsed.
 * @param file  for messages.
 * @throws {CheckpointFormatError} if the model is not supported exactly.
 */
export function readModelConfig(json: unknown, file: string): ModelConfig {
  const refuse = (why: string): never => {
    throw new CheckpointFormatError(`cannot use ${file}: ${why}`);
  };
  const type = (json as { model_type?: unknown } | null)?.model_type;
  if (typeof type !== "string" || !Object.hasOwn(ARCHITECTURES, type)) {
    const known = Object.keys(ARCHITECTURES).join(", ");
    return refuse(`model_type ${JSON.stringify(type) ?? "is missing"}; supported are ${known}`);
  }
  const parsed = HuggingFaceConfig.safeParse(json);
  if (!parsed.success) return refuse(faultsOf(parsed.error));
  const config = parsed.data;
  for (const [key, why] of unsupported(config, type as Architecture)) {
    refuse(`${key} ${JSON.stringify(config[key])}; ${why}`);
  }
  const { qkvBias, qkNorm } = ARCHITECTURES[type as Architecture];
  const { hidden_size: width, num_attention_heads: heads } = config;
  const rope = config.rope_parameters ?? config.rope_scaling ?? {};
  const model = ModelConfig.safeParse({
    vocabulary: config.vocab_size,
    width,
    layers: config.num_hidden_layers,
    heads,
    kvHeads: config.num_key_value_heads ?? heads,
    headWidth: config.head_dim ?? width / heads,
    hidden: config.intermediate_size,
    ropeTheta: rope.rope_theta ?? config.rope_theta ?? 10_000,
    ropeScaling: ropeScaling(rope, config.max_position_embeddings ?? null, refuse),
    normEpsilon: config.rms_norm_eps,
    tiedEmbedding: config.tie_word_embeddings,
    qkvBias,
    qkNorm,
  });
  return model.success ? model.data : refuse(faultsOf(model.error));
}

function* unsupported(config: HuggingFaceConfig, type: Architecture): Generator<[keyof HuggingFaceConfig, string]> {
  if (config.hidden_act !== "silu") yield ["hidden_act", "only silu is supported"];
  // Qwen2 has biases of its own and ignores the key.
  if (config.attention_bias && type !== "qwen2")
    yield ["attention_bias", `biases in the attention of ${type} are not supported`];
  if (config.mlp_bias) yield ["mlp_bias", "biases in the gated unit are not supported"];
  if (config.use_sliding_window) yield ["use_sliding_window", "only full attention is supported"];
  if (config.quantization_config !== undefined)
    yield ["quantization_config", "quantized weights cannot be trained; take the full ones"];
}

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

/** @throws {CheckpointFormatError} if no supported architecture has this model's biases and norms. */
export function architectureOf(model: ModelConfig): Architecture {
  for (const [name, { qkvBias, qkNorm }] of Object.entries(ARCHITECTURES)) {
    if (model.qkvBias === qkvBias && model.qkNorm === qkNorm) return name as Architecture;
  }
  throw new CheckpointFormatError("no supported architecture has both biases and norms of queries and keys");
}

/** A config.json for this model. @param longest  most tokens of a sequence */
export function writeModelConfig(model: ModelConfig, longest: number): Record<string, unknown> {
  const type = architectureOf(model);
  return {
    architectures: [ARCHITECTURES[type].class],
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

function writeRopeScaling(scaling: RopeScaling | null): Record<string, unknown> {
  switch (scaling?.kind) {
    case undefined:
      return { rope_type: "default" };
    case "linear":
      return { rope_type: "linear", factor: scaling.factor };
    case "llama3":
      return {
        rope_type: "llama3",
        factor: scaling.factor,
        low_freq_factor: scaling.lowFrequencyFactor,
        high_freq_factor: scaling.highFrequencyFactor,
        original_max_position_embeddings: scaling.originalLength,
      };
    case "yarn":
      return {
        rope_type: "yarn",
        factor: scaling.factor,
        original_max_position_embeddings: scaling.originalLength,
        beta_fast: scaling.betaFast,
        beta_slow: scaling.betaSlow,
        attention_factor: scaling.attentionFactor,
        truncate: scaling.truncate,
      };
    default:
      return scaling satisfies never;
  }
}

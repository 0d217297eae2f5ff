/** The config.json of published models: what is read from them, and transformers' number of parameters. */
import { expect, test } from "bun:test";
import { readModelConfig } from "../../../model/checkpoint/config.ts";
import type { ModelConfig } from "../../../model/policy/model-config.ts";
import { parameterCount } from "../../../model/policy/parameters.ts";

/** Every sixth layer is full. */
const sixth = Array.from({ length: 26 }, (_, layer) => ((layer + 1) % 6 === 0 ? "full" : "sliding"));
/** Every fourth layer has no positions. */
const fourth = Array.from({ length: 36 }, (_, layer) => ((layer + 1) % 4 === 0 ? "unrotated" : "full"));
const llama3 = { rope_type: "llama3", factor: 32, low_freq_factor: 1, high_freq_factor: 4 };

test.each<[string, object, number, object]>([
  [
    "Llama-3.2-1B-Instruct",
    {
      model_type: "llama",
      attention_bias: false,
      head_dim: 64,
      hidden_act: "silu",
      hidden_size: 2048,
      intermediate_size: 8192,
      max_position_embeddings: 131_072,
      mlp_bias: false,
      num_attention_heads: 32,
      num_hidden_layers: 16,
      num_key_value_heads: 8,
      rms_norm_eps: 1e-5,
      rope_scaling: { ...llama3, original_max_position_embeddings: 8192 },
      rope_theta: 500_000,
      tie_word_embeddings: true,
      vocab_size: 128_256,
    },
    1_235_814_400,
    {
      ropeTheta: 500_000,
      ropeScaling: { kind: "llama3", factor: 32, lowFrequencyFactor: 1, highFrequencyFactor: 4, originalLength: 8192 },
      layerKinds: [],
    },
  ],
  [
    "Mistral-7B-v0.1",
    {
      model_type: "mistral",
      hidden_act: "silu",
      hidden_size: 4096,
      intermediate_size: 14_336,
      max_position_embeddings: 32_768,
      num_attention_heads: 32,
      num_hidden_layers: 32,
      num_key_value_heads: 8,
      rms_norm_eps: 1e-5,
      rope_theta: 10_000,
      sliding_window: 4096,
      tie_word_embeddings: false,
      vocab_size: 32_000,
    },
    7_241_732_096,
    { window: 4096, layerKinds: Array(32).fill("sliding"), slidingRopeTheta: null },
  ],
  [
    "SmolLM3-3B",
    {
      model_type: "smollm3",
      attention_bias: false,
      hidden_act: "silu",
      hidden_size: 2048,
      intermediate_size: 11_008,
      layer_types: Array(36).fill("full_attention"),
      max_position_embeddings: 65_536,
      max_window_layers: 28,
      mlp_bias: false,
      no_rope_layer_interval: 4,
      no_rope_layers: fourth.map((kind) => Number(kind === "full")),
      num_attention_heads: 16,
      num_hidden_layers: 36,
      num_key_value_heads: 4,
      rms_norm_eps: 1e-6,
      rope_scaling: null,
      rope_theta: 5_000_000,
      sliding_window: null,
      use_sliding_window: false,
      vocab_size: 128_256,
    },
    3_075_098_624,
    { tiedEmbedding: true, layerKinds: fourth, window: null, ropeTheta: 5_000_000 },
  ],
  [
    "gemma-3-1b-it",
    {
      model_type: "gemma3_text",
      attention_bias: false,
      attn_logit_softcapping: null,
      cache_implementation: "hybrid",
      final_logit_softcapping: null,
      head_dim: 256,
      hidden_activation: "gelu_pytorch_tanh",
      hidden_size: 1152,
      intermediate_size: 6912,
      max_position_embeddings: 32_768,
      num_attention_heads: 4,
      num_hidden_layers: 26,
      num_key_value_heads: 1,
      query_pre_attn_scalar: 256,
      rms_norm_eps: 1e-6,
      rope_local_base_freq: 10_000,
      rope_scaling: null,
      rope_theta: 1_000_000,
      sliding_window: 512,
      sliding_window_pattern: 6,
      vocab_size: 262_144,
    },
    999_885_952,
    {
      tiedEmbedding: true,
      activation: "gelu",
      scoreScale: 1 / 16,
      window: 512,
      layerKinds: sixth,
      ropeTheta: 1_000_000,
      slidingRopeTheta: 10_000,
    },
  ],
])("%s", (_, json, count, expected) => {
  const model = readModelConfig(json, "config.json");
  expect(model).toMatchObject(expected as Partial<ModelConfig>);
  expect(parameterCount(model)).toBe(count);
});

const sizes = { hidden_size: 8, intermediate_size: 16, num_hidden_layers: 2, num_attention_heads: 2, vocab_size: 64 };
const small = { ...sizes, rms_norm_eps: 1e-5, rope_theta: 1e6 };

test("with use_sliding_window, Qwen's layers slide as layer_types says, or else the upper layers slide", () => {
  const qwen = { ...small, model_type: "qwen2", sliding_window: 4, max_window_layers: 1 };
  const kindsOf = (more: object) => readModelConfig({ ...qwen, ...more }, "config.json").layerKinds;
  expect(kindsOf({ use_sliding_window: true })).toEqual(["full", "sliding"]);
  const layer_types = ["sliding_attention", "full_attention"];
  expect(kindsOf({ use_sliding_window: true, layer_types })).toEqual(["sliding", "full"]);
  expect(kindsOf({ use_sliding_window: false })).toEqual([]);
  // Qwen2 has biases of its own, and ignores this key.
  expect(kindsOf({ attention_bias: true })).toEqual([]);
  expect(() => kindsOf({ layer_types: ["chunked_attention", "full_attention"] })).toThrow(
    "cannot use config.json: layer_types has chunked_attention; supported are full_attention, sliding_attention",
  );
});

test("Qwen's layers have transformers' default window if config.json has no window, and no window if it is null", () => {
  const read = (more: object) =>
    readModelConfig({ ...small, model_type: "qwen3", use_sliding_window: true, max_window_layers: 1, ...more }, "f");
  expect(read({})).toMatchObject({ window: 4096, layerKinds: ["full", "sliding"] });
  expect(read({ sliding_window: null })).toMatchObject({ window: null, layerKinds: [] });
});

test("either all layers of Qwen's mixture of experts slide or no layer does, as in transformers", () => {
  const mixture = { model_type: "qwen3_moe", num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 8 };
  const kindsOf = (more: object) =>
    readModelConfig({ ...small, ...mixture, sliding_window: 4, max_window_layers: 1, ...more }, "f").layerKinds;
  expect(kindsOf({ use_sliding_window: true })).toEqual(["sliding", "sliding"]);
  expect(kindsOf({ use_sliding_window: true, sliding_window: null })).toEqual([]);
  expect(kindsOf({ use_sliding_window: false })).toEqual([]);
});

test("Mistral without a window, as version 0.3 has it, computes what Llama computes", () => {
  const mistral = readModelConfig({ ...small, model_type: "mistral", sliding_window: null }, "config.json");
  expect(mistral).toEqual(readModelConfig({ ...small, model_type: "llama" }, "config.json"));
});

const llama = { ...small, model_type: "llama" };
test.each<[object, string]>([
  [
    { rope_parameters: { rope_type: "default" }, rope_scaling: { rope_type: "linear", factor: 2 } },
    "rope_parameters and rope_scaling differ",
  ],
  [{ rope_parameters: { partial_rotary_factor: 0.5 } }, "partial_rotary_factor 0.5 is not supported; it must be 1"],
  [{ layer_types: ["full_attention"] }, "layer_types has 1 entries, but num_hidden_layers says 2; make them equal"],
  [{ mlp_bias: true }, "mlp_bias true; biases"],
  [{ attention_bias: true }, "attention_bias true; biases"],
  [{ attn_logit_softcapping: 50 }, "attn_logit_softcapping 50; soft caps"],
  [{ final_logit_softcapping: 30 }, "final_logit_softcapping 30; soft caps"],
  [{ use_bidirectional_attention: true }, "use_bidirectional_attention true; only causal"],
  [{ quantization_config: { bits: 4 } }, "quantized weights cannot be trained"],
  [{ rope_scaling: { rope_type: "yarn", factor: 2, mscale_all_dim: 1 } }, "yarn with mscale is not supported"],
  [{ model_type: "smollm3", use_sliding_window: true }, "use_sliding_window true; sliding layers without positions"],
  ...[{ decoder_sparse_step: 2 }, { mlp_only_layers: [0] }].map((more): [object, string] => [
    { ...more, model_type: "qwen3_moe", num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 8 },
    "leave layers without experts",
  ]),
])("refuses a config that Bunraku would compute differently: %p", (more, message) => {
  expect(() => readModelConfig({ ...llama, ...more }, "config.json")).toThrow(message);
});

test("the rotation of sliding layers comes from rope_parameters", () => {
  const sliding_attention = { rope_type: "default", rope_theta: 5000 };
  const full_attention = { rope_type: "default", rope_theta: 7e5 };
  const given = {
    model_type: "gemma3_text",
    sliding_window: 4,
    rope_parameters: { sliding_attention, full_attention },
  };
  expect(readModelConfig({ ...small, ...given }, "config.json")).toMatchObject({
    slidingRopeTheta: 5000,
    ropeTheta: 7e5,
  });
});

test("YaRN has the defaults of transformers", () => {
  const yarn = (more: object) =>
    readModelConfig(
      { ...llama, max_position_embeddings: 128, rope_scaling: { type: "yarn", factor: 4, ...more } },
      "config.json",
    ).ropeScaling;
  const attentionFactor = 0.1 * Math.log(4) + 1;
  const expected = { kind: "yarn", factor: 4, originalLength: 128, betaFast: 32, betaSlow: 1, attentionFactor };
  expect(yarn({})).toEqual({ ...expected, truncate: true } as never);
  expect(yarn({ truncate: false, factor: 0.5 })).toMatchObject({ truncate: false, attentionFactor: 1 });
});

test("families have transformers' defaults for keys that config.json lacks", () => {
  const { rope_theta: _, ...bare } = small;
  const read = (model_type: string, more: object = {}) =>
    readModelConfig({ ...bare, model_type, ...more }, "config.json");
  expect(read("mistral")).toMatchObject({ window: 4096, layerKinds: ["sliding", "sliding"], ropeTheta: 10_000 });
  expect(read("smollm3", { num_hidden_layers: 4 })).toMatchObject({
    ropeTheta: 2_000_000,
    tiedEmbedding: true,
    layerKinds: ["full", "full", "full", "unrotated"],
  });
  expect(read("smollm3", { no_rope_layers: [0, 1] }).layerKinds).toEqual(["unrotated", "full"]);
  expect(read("gemma3_text", { sliding_window: 4 })).toMatchObject({
    scoreScale: 1 / 16,
    ropeTheta: 1_000_000,
    slidingRopeTheta: 10_000,
  });
});

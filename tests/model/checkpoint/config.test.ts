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

test("Qwen's upper layers slide if it says so, by layer_types or without", () => {
  const qwen = { ...small, model_type: "qwen2", sliding_window: 4, max_window_layers: 1 };
  const kindsOf = (more: object) => readModelConfig({ ...qwen, ...more }, "config.json").layerKinds;
  expect(kindsOf({ use_sliding_window: true })).toEqual(["full", "sliding"]);
  const layer_types = ["sliding_attention", "full_attention"];
  expect(kindsOf({ use_sliding_window: true, layer_types })).toEqual(["sliding", "full"]);
  expect(kindsOf({ use_sliding_window: false })).toEqual([]);
  expect(() => kindsOf({ layer_types: ["chunked_attention", "full_attention"] })).toThrow(
    "cannot use config.json: layer_types has chunked_attention; supported are full_attention, sliding_attention",
  );
});

test("Mistral without a window, as version 0.3 has it, computes what Llama computes", () => {
  const mistral = readModelConfig({ ...small, model_type: "mistral", sliding_window: null }, "config.json");
  expect(mistral).toEqual(readModelConfig({ ...small, model_type: "llama" }, "config.json"));
});

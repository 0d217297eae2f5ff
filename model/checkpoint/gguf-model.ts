/**
 * A policy in llama.cpp's terms: names of tensors, settings, tokenizer.
 * Source: github.com/ggml-org/llama.cpp, convert_hf_to_gguf.py and gguf-py/gguf/constants.py.
 */
import type { ModelConfig } from "../policy/model-config.ts";
import { rotaryFrequencies } from "../policy/rope.ts";
import { TokenizerFile } from "../text/bpe.ts";
import { architectureOf, CheckpointFormatError } from "./config.ts";
import type { GgufValue } from "./gguf.ts";
import type { NamedTensor } from "./safetensors.ts";

/** From Hugging Face's names to llama.cpp's, both without the number of the layer. */
const LAYER_TENSORS: Readonly<Record<string, string>> = {
  "input_layernorm.weight": "attn_norm.weight",
  "self_attn.q_proj.weight": "attn_q.weight",
  "self_attn.q_proj.bias": "attn_q.bias",
  "self_attn.k_proj.weight": "attn_k.weight",
  "self_attn.k_proj.bias": "attn_k.bias",
  "self_attn.v_proj.weight": "attn_v.weight",
  "self_attn.v_proj.bias": "attn_v.bias",
  "self_attn.q_norm.weight": "attn_q_norm.weight",
  "self_attn.k_norm.weight": "attn_k_norm.weight",
  "self_attn.o_proj.weight": "attn_output.weight",
  "post_attention_layernorm.weight": "ffn_norm.weight",
  "mlp.gate_proj.weight": "ffn_gate.weight",
  "mlp.up_proj.weight": "ffn_up.weight",
  "mlp.down_proj.weight": "ffn_down.weight",
};
const TENSORS: Readonly<Record<string, string>> = {
  "model.embed_tokens.weight": "token_embd.weight",
  "model.norm.weight": "output_norm.weight",
  "lm_head.weight": "output.weight",
};

/**
 * @param views  from `huggingFaceViews`
 * @returns the views under llama.cpp's names. Matrices whose rows llama.cpp orders differently are copies. With the rope scaling llama3,
 * the result also has the factors of the frequencies
 */
export function ggufTensors(model: ModelConfig, views: ReadonlyMap<string, NamedTensor>): Map<string, NamedTensor> {
  const { heads, kvHeads, headWidth, ropeTheta, ropeScaling } = model;
  const isLlama = architectureOf(model) === "llama";
  const tensors = new Map<string, NamedTensor>();
  for (const [name, tensor] of views) {
    const [, layer, rest] = /^model\.layers\.(\d+)\.(.*)$/.exec(name) ?? [];
    const theirs = layer === undefined ? TENSORS[name]! : `blk.${layer}.${LAYER_TENSORS[rest!]!}`;
    const reordered = isLlama && /\.(q|k)_proj\.weight$/.exec(name);
    tensors.set(theirs, reordered ? interleaved(tensor, reordered[1] === "q" ? heads : kvHeads, headWidth) : tensor);
  }
  if (ropeScaling?.kind === "llama3") {
    const [plain, scaled] = [null, ropeScaling].map((scaling) => rotaryFrequencies(headWidth, ropeTheta, scaling));
    const factors = Float32Array.from(plain!, (frequency, i) => frequency / scaled![i]!);
    tensors.set("rope_freqs.weight", { shape: [headWidth / 2], values: factors });
  }
  return tensors;
}

/** llama.cpp's llama rotates pairs of adjacent channels; transformers' llama rotates pairs of channels that are half a head apart. */
function interleaved({ shape, values }: NamedTensor, heads: number, headWidth: number): NamedTensor {
  const width = shape[1]!;
  const reordered = new Float32Array(values.length);
  for (let head = 0; head < heads; head++) {
    for (let i = 0; i < headWidth; i++) {
      const from = head * headWidth + (i % 2) * (headWidth / 2) + (i >> 1);
      reordered.set(values.subarray(from * width, (from + 1) * width), (head * headWidth + i) * width);
    }
  }
  return { shape, values: reordered };
}

/**
 * @param longest  maximum number of tokens of a sequence
 * @throws {CheckpointFormatError} if llama.cpp has no settings for the model's rope scaling
 */
export function ggufSettings(model: ModelConfig, name: string, longest: number): Map<string, GgufValue> {
  const type = architectureOf(model);
  const { ropeScaling: scaling } = model;
  const settings = new Map<string, GgufValue>([
    ["general.architecture", { text: type }],
    ["general.name", { text: name }],
    ["general.file_type", { u32: 0 }],
    [`${type}.vocab_size`, { u32: model.vocabulary }],
    [`${type}.context_length`, { u32: longest }],
    [`${type}.embedding_length`, { u32: model.width }],
    [`${type}.block_count`, { u32: model.layers }],
    [`${type}.feed_forward_length`, { u32: model.hidden }],
    [`${type}.attention.head_count`, { u32: model.heads }],
    [`${type}.attention.head_count_kv`, { u32: model.kvHeads }],
    [`${type}.attention.key_length`, { u32: model.headWidth }],
    [`${type}.attention.value_length`, { u32: model.headWidth }],
    [`${type}.attention.layer_norm_rms_epsilon`, { f32: model.normEpsilon }],
    [`${type}.rope.dimension_count`, { u32: model.headWidth }],
    [`${type}.rope.freq_base`, { f32: model.ropeTheta }],
  ]);
  if (scaling?.kind === "linear" || scaling?.kind === "yarn") {
    settings.set(`${type}.rope.scaling.type`, { text: scaling.kind });
    settings.set(`${type}.rope.scaling.factor`, { f32: scaling.factor });
  }
  if (scaling?.kind === "llama3" && type !== "llama") refuseRope(`llama3 of ${type}`);
  if (scaling?.kind === "yarn") {
    const { factor, betaFast, betaSlow, attentionFactor, truncate } = scaling;
    const usual = Math.abs(attentionFactor - (0.1 * Math.log(factor) + 1)) < 1e-6 && betaFast === 32 && betaSlow === 1;
    if (!usual || !truncate) refuseRope("yarn with other values than the defaults of its paper");
    settings.set(`${type}.rope.scaling.original_context_length`, { u32: scaling.originalLength });
  }
  return settings;
}

function refuseRope(scaling: string): never {
  throw new CheckpointFormatError(`llama.cpp has no rope scaling ${scaling}; export to hf instead`);
}

/** Values of llama.cpp's enum llama_token_type. */
const TOKEN_TYPES = { normal: 1, control: 3, userDefined: 4, unused: 5 } as const;

/**
 * @param json   tokenizer.json, parsed.
 * @throws {CheckpointFormatError} if the tokenizer has byte fallback, or a pre-tokenizer whose llama.cpp name `preTokenizer` does not know
 */
export function ggufTokenizer(
  json: unknown,
  { vocabulary }: ModelConfig,
  { eos, bos, pad, template }: { eos: number; bos: number | null; pad: number | null; template: string },
): Map<string, GgufValue> {
  const { model, added_tokens: added, pre_tokenizer } = TokenizerFile.parse(json);
  if (model.byte_fallback) {
    const text =
      "this tokenizer has byte fallback, like those of SentencePiece; gguf export writes only tokenizers with byte-level BPE, like GPT-2's";
    throw new CheckpointFormatError(`${text}; export to hf instead`);
  }
  const tokens = Array.from({ length: vocabulary }, (_, id) => `[PAD${id}]`);
  const types: number[] = tokens.map(() => TOKEN_TYPES.unused);
  for (const [token, id] of Object.entries(model.vocab)) {
    tokens[id] = token;
    types[id] = TOKEN_TYPES.normal;
  }
  for (const { id, content, special } of added) {
    if (id >= vocabulary) continue;
    tokens[id] = content;
    types[id] = special ? TOKEN_TYPES.control : TOKEN_TYPES.userDefined;
  }
  const merges = model.merges.map((merge) => (typeof merge === "string" ? merge : merge.join(" ")));
  return new Map<string, GgufValue>([
    ["tokenizer.ggml.model", { text: "gpt2" }],
    ["tokenizer.ggml.pre", { text: preTokenizer(pre_tokenizer, model.merges.length) }],
    ["tokenizer.ggml.tokens", { texts: tokens }],
    ["tokenizer.ggml.token_type", { i32s: types }],
    ["tokenizer.ggml.merges", { texts: merges }],
    ["tokenizer.ggml.eos_token_id", { u32: eos }],
    ...(bos === null ? [] : ([["tokenizer.ggml.bos_token_id", { u32: bos }]] as const)),
    ...(pad === null ? [] : ([["tokenizer.ggml.padding_token_id", { u32: pad }]] as const)),
    ["tokenizer.ggml.add_bos_token", { bool: false }],
    ["tokenizer.chat_template", { text: template }],
  ]);
}

/** llama.cpp's name for a pre-tokenizer. The families differ in how they split digits. */
function preTokenizer(json: unknown, merges: number): string {
  const text = JSON.stringify(json);
  // Mistral's pre-tokenizer splits digits as Qwen2's does, but splits words at capitals too.
  const keepsWords = text.includes("]?\\\\p{L}+|");
  if (keepsWords && text.includes("|\\\\p{N}{1,3}|")) return "llama-bpe";
  if (keepsWords && text.includes("|\\\\p{N}|")) return "qwen2";
  // Without merges, as in the built-in tokenizer, splits change nothing, so any name works.
  if (merges === 0) return "gpt-2";
  throw new CheckpointFormatError(
    "llama.cpp's name for this tokenizer's pre-tokenizer is unknown; export to hf instead",
  );
}

/** The tiny Qwen2 policies of tests/golden/model (tests/golden/qwen2.py made them), with Hugging Face's numbers. */
import { join } from "node:path";
import { readHuggingFace } from "../../../model/checkpoint/hugging-face.ts";
import { type NamedTensor, readSafetensors } from "../../../model/checkpoint/safetensors.ts";
import { ModelConfig } from "../../../model/policy/model-config.ts";
import { layParameters, type Parameters } from "../../../model/policy/parameters.ts";

/** What a NAME.json holds; rows are sequences. */
export interface GoldenRecord {
  readonly tokens: number[][];
  readonly mask: number[][];
  readonly weight: number[][];
  readonly loss: number;
  /** Before clipping. */
  readonly gradNorm: number;
  readonly adamw: {
    lr: number;
    betas: [number, number];
    eps: number;
    weightDecay: number;
    clipNorm: number;
  };
  /** peft's step, of the checkpoints that have one. */
  readonly lora?: { rank: number; alpha: number; loss: number; gradNorm: number };
  readonly decode: {
    prompt: number[][];
    tokens: number[][];
    logProbs: number[][];
  };
}

export interface Golden {
  readonly record: GoldenRecord;
  readonly model: ModelConfig;
  readonly parameters: Parameters;
  readonly expected: ReadonlyMap<string, NamedTensor>;
}

const folder = join(import.meta.dir, "../../golden/model");
const read = async (file: string) => readSafetensors(await Bun.file(join(folder, file)).bytes(), file);

export async function goldenModel(name: string): Promise<Golden> {
  const record = await Bun.file(join(folder, `${name}.json`)).json();
  const { config } = record as {
    config: Readonly<Record<string, number>> & { readonly tie_word_embeddings: boolean };
  };
  const model = ModelConfig.parse({
    vocabulary: config["vocab_size"],
    width: config["hidden_size"],
    layers: config["num_hidden_layers"],
    heads: config["num_attention_heads"],
    kvHeads: config["num_key_value_heads"],
    headWidth: config["head_dim"] ?? config["hidden_size"]! / config["num_attention_heads"]!,
    hidden: config["intermediate_size"],
    ropeTheta: config["rope_theta"],
    normEpsilon: config["rms_norm_eps"],
    tiedEmbedding: config.tie_word_embeddings,
  });
  const parameters = layParameters(model);
  readHuggingFace(model, parameters, await read(`${name}.safetensors`));
  return {
    record,
    model,
    parameters,
    expected: (await read(`${name}.expected.safetensors`)).tensors,
  };
}

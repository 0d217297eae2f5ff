/**
 * Exports a policy for other tools: a Hugging Face folder for transformers, a GGUF file for llama.cpp, a folder of adapters for peft.
 * All values are float32. Without adapters, and for peft, the values equal the trained values to the bit.
 *
 * - The export merges adapters into their model, except for peft.
 * - The export overwrites no file. After an error, it leaves no file.
 */
import { copyFileSync, existsSync, mkdirSync, writeFileSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { builtinFiles } from "../../model/checkpoint/builtin-files.ts";
import { writeModelConfig } from "../../model/checkpoint/config.ts";
import { ggufParts } from "../../model/checkpoint/gguf.ts";
import { ggufSettings, ggufTensors, ggufTokenizer } from "../../model/checkpoint/gguf-model.ts";
import { huggingFaceViews } from "../../model/checkpoint/hugging-face.ts";
import { safetensorsParts } from "../../model/checkpoint/safetensors.ts";
import { mergeAdapters } from "../../model/policy/lora.ts";
import { baseOf, type ModelConfig } from "../../model/policy/model-config.ts";
import { layParameters } from "../../model/policy/parameters.ts";
import { chatTemplate } from "../../model/text/chat-template.ts";
import type { Dialogue } from "../../model/text/dialogue.ts";
import { Tokenizer } from "../../model/text/tokenizer.ts";
import { realDisk, writeWhole } from "../checkpoint/disk.ts";
import { loadPretrained, readJson, TOKENIZER_FILES, tokenizerFiles } from "./pretrained.ts";

export interface Exportable {
  readonly model: ModelConfig;
  readonly dialogue: Dialogue;
  /** In the order of `layParameters`. */
  readonly parameters: Float32Array;
  /** Folder of the pretrained model with which training started; null for the built-in policy. */
  readonly base: string | null;
  /** Maximum number of tokens of a sequence, for the built-in policy, which has no config.json. */
  readonly contextTokensMax: number;
}

/** Writes a folder that transformers' `from_pretrained` loads. @throws {Error} if `folder` exists or cannot be written. */
export async function exportHuggingFace(policy: Exportable, folder: string): Promise<void> {
  const { base } = policy;
  const { model, parameters } = await merged(policy);
  await whole(folder, async (pending) => {
    mkdirSync(pending, { recursive: true });
    writeFileSync(join(pending, "config.json"), `${JSON.stringify(configOf(policy), null, 2)}\n`);
    if (base === null) {
      for (const [name, text] of builtinFiles(new Tokenizer())) writeFileSync(join(pending, name), text);
    } else {
      const present = TOKENIZER_FILES.filter((name) => existsSync(join(base, name)));
      for (const name of present) copyFileSync(join(base, name), join(pending, name));
    }
    const views = huggingFaceViews(model, parameters);
    await realDisk.write(join(pending, "model.safetensors"), safetensorsParts(views, { format: "pt" }));
  });
}

/** Writes a file that llama.cpp loads. @throws {Error} if `file` exists or cannot be written. */
export async function exportGguf(policy: Exportable, file: string): Promise<void> {
  const { dialogue, base, contextTokensMax } = policy;
  const { model, parameters } = await merged(policy);
  const builtin = base === null ? builtinFiles(new Tokenizer()) : null;
  const tokenizer = base === null ? JSON.parse(builtin!.get("tokenizer.json")!) : readJson(base, "tokenizer.json");
  const template = base === null ? builtin!.get("chat_template.jinja")! : chatTemplate(tokenizerFiles(base));
  const config = configOf(policy);
  const id = (key: string) => (typeof config[key] === "number" ? config[key] : null);
  const longest = id("max_position_embeddings") ?? contextTokensMax;
  const metadata = new Map([
    ...ggufSettings(model, basename(file, ".gguf"), longest),
    ...ggufTokenizer(tokenizer, model, {
      eos: dialogue.stops[0]!,
      bos: id("bos_token_id"),
      pad: id("pad_token_id"),
      template,
    }),
  ]);
  const tensors = ggufTensors(model, huggingFaceViews(model, parameters));
  await whole(file, (pending) => realDisk.write(pending, ggufParts(metadata, tensors)));
}

/** Writes a folder that peft loads beside the model. @throws {Error} if the policy has no adapters, or `folder` exists. */
export async function exportPeft(
  { model, parameters, base }: Pick<Exportable, "model" | "parameters" | "base">,
  folder: string,
): Promise<void> {
  if (model.lora === null) throw new Error("peft loads adapters, and this policy has none; export to hf instead");
  const { rank, alpha, targets } = model.lora;
  const config = {
    peft_type: "LORA",
    task_type: "CAUSAL_LM",
    base_model_name_or_path: base,
    inference_mode: true,
    r: rank,
    lora_alpha: alpha,
    target_modules: targets,
    lora_dropout: 0,
    bias: "none",
    fan_in_fan_out: false,
  };
  const { views } = layParameters(model, parameters);
  const named = [...views].map(([name, tensor]) => [`base_model.model.${name}`, tensor] as const);
  await whole(folder, async (pending) => {
    mkdirSync(pending, { recursive: true });
    writeFileSync(join(pending, "adapter_config.json"), `${JSON.stringify(config, null, 2)}\n`);
    await realDisk.write(join(pending, "adapter_model.safetensors"), safetensorsParts(named, { format: "pt" }));
  });
}

/** The policy as one model, with its adapters merged. */
async function merged({ model, parameters, base }: Exportable) {
  if (model.lora === null) return { model, parameters: layParameters(model, parameters) };
  const all = layParameters(baseOf(model));
  await loadPretrained(base!, baseOf(model), all);
  mergeAdapters(huggingFaceViews(baseOf(model), all), layParameters(model, parameters).views, model.lora);
  return { model: baseOf(model), parameters: all };
}

/** config.json of the model with which training started. All keys stay, because tools read them; only the dtype changes. */
function configOf({ model, base, contextTokensMax }: Exportable): Record<string, unknown> {
  if (base === null) return writeModelConfig(model, contextTokensMax);
  const { torch_dtype: _, ...config } = readJson(base, "config.json") as Record<string, unknown>;
  return { ...config, dtype: "float32" };
}

/** Writes a file or folder beside `path`, and then renames it to `path`. @throws {Error} if `path` exists or cannot be written */
export async function whole(path: string, write: (pending: string) => Promise<void>): Promise<void> {
  const exists = `${path} exists; choose another --out, or remove it first`;
  if (existsSync(path)) throw new Error(exists);
  try {
    mkdirSync(dirname(resolve(path)), { recursive: true });
  } catch (error) {
    throw new Error(`cannot export to ${path}: ${(error as Error).message}; choose another --out`);
  }
  try {
    await writeWhole(path, async (pending) => {
      await write(pending);
      // Check again: another export may have written the file since the first check.
      if (existsSync(path)) throw new Error(exists);
    });
  } catch (error) {
    throw new Error(`cannot export to ${path}: ${(error as Error).message}`);
  }
}

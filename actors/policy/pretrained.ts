/**
 * Reads a pretrained model from a Hugging Face folder: its shape, its tokenizer and chat template, its weights. The code of
 * model/checkpoint/ checks the content of the files.
 *
 * - Every fault of a folder is an error before training begins. The error is one line that names the file.
 */
import { existsSync, readFileSync, statSync } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { CheckpointFormatError, readModelConfig } from "../../model/checkpoint/config.ts";
import { findTensors, readTensors } from "../../model/checkpoint/hugging-face.ts";
import { SafetensorsSource } from "../../model/checkpoint/safetensors-contents.ts";
import { ATTENTION_TARGETS, isOfAttention, type Lora } from "../../model/policy/lora.ts";
import { ModelConfig } from "../../model/policy/model-config.ts";
import { type Parameters, parameterCount } from "../../model/policy/parameters.ts";
import { builtinDialogue } from "../../model/text/chat.ts";
import { pretrainedDialogue, type TokenizerFiles } from "../../model/text/chat-template.ts";
import type { Dialogue } from "../../model/text/dialogue.ts";
import { Tokenizer } from "../../model/text/tokenizer.ts";
import type { RunConfig } from "../config/config.ts";
import { schemaFaults } from "../errors.ts";

export const INDEX = "model.safetensors.index.json";
const SINGLE = "model.safetensors";

/** Files of the tokenizer and the chat template. Not every folder has all of them. */
export const TOKENIZER_FILES = [
  "tokenizer.json",
  "tokenizer_config.json",
  "generation_config.json",
  "chat_template.jinja",
  "special_tokens_map.json",
  "added_tokens.json",
  "vocab.json",
  "merges.txt",
];

/** Reads everything but the weights. @throws {CheckpointFormatError} in one line, naming the file. */
export function readPretrained(folder: string): { model: ModelConfig; dialogue: Dialogue } {
  if (!existsSync(folder))
    throw new CheckpointFormatError(
      `cannot read a model from ${folder}: there is no such folder; correct the path, or put the folder back`,
    );
  const model = readModelConfig(readJson(folder, "config.json"), join(folder, "config.json"));
  return { model, dialogue: pretrainedDialogue(tokenizerFiles(folder), model.vocabulary) };
}

export function tokenizerFiles(folder: string): TokenizerFiles {
  const [generation, template] = ["generation_config.json", "chat_template.jinja"];
  return {
    folder,
    tokenizer: readJson(folder, "tokenizer.json"),
    tokenizerConfig: readJson(folder, "tokenizer_config.json"),
    generationConfig: existsSync(join(folder, generation)) ? readJson(folder, generation) : null,
    chatTemplate: existsSync(join(folder, template)) ? readText(join(folder, template)) : null,
  };
}

/** Maximum number of parameters. One array must hold them, and one file must hold them and a header. Bun limits both to under 4 GiB. */
const PARAMETERS_MAX = 2 ** 30 - 2 ** 20;

/** Checks everything but the values of the weights. @param model  the folder's model, if the caller has read it @throws {CheckpointFormatError} */
export async function checkPretrained(folder: string, model = readPretrained(folder).model): Promise<void> {
  const count = parameterCount(model);
  if (count > PARAMETERS_MAX) {
    const text = `it has ${millions(count)} million parameters, and Bunraku holds at most ${millions(PARAMETERS_MAX)} million, 4 GiB in float32`;
    throw new CheckpointFormatError(
      `cannot use the model of ${folder}: ${text}; choose a smaller model, or train the model at a server (--engine tinker)`,
    );
  }
  await withShards(folder, async (shards) => void findTensors(model, shards, folder));
}

const millions = (count: number): string => String(Math.round(count / 1e6));

/** Fills `parameters` with the folder's weights. @throws {CheckpointFormatError} naming file and tensor. */
export async function loadPretrained(folder: string, model: ModelConfig, parameters: Parameters): Promise<void> {
  await withShards(folder, (shards) => readTensors(model, parameters, findTensors(model, shards, folder)));
}

/** The parameters that a critic has and its policy lacks: the head. */
export function criticHead(policy: Parameters, critic: Parameters): Parameters {
  return { flat: critic.flat, views: new Map([...critic.views].filter(([name]) => !policy.views.has(name))) };
}

/** Copies to the critic the parameters that policy and critic both have. */
export function shareBody(policy: Parameters, critic: Parameters): void {
  for (const [name, { values }] of critic.views) {
    const known = policy.views.get(name);
    if (known !== undefined) values.set(known.values);
  }
}

/** Refuses pipes and devices, because a read of them may never end. @throws {Error} */
function checkRegular(file: string): void {
  if (!statSync(file).isFile()) throw new Error("it is not a regular file");
}

function readText(file: string): string {
  try {
    checkRegular(file);
    return readFileSync(file, "utf8");
  } catch (error) {
    throw new CheckpointFormatError(`cannot read ${file}: ${(error as Error).message}`);
  }
}

export function readJson(folder: string, name: string): unknown {
  const file = join(folder, name);
  const text = readText(file);
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new CheckpointFormatError(`cannot use ${file}: not JSON (${(error as Error).message})`);
  }
}

async function withShards<T>(folder: string, use: (shards: readonly SafetensorsSource[]) => Promise<T>): Promise<T> {
  await using opened = new AsyncDisposableStack();
  const shards: SafetensorsSource[] = [];
  const weightMap = readIndex(folder);
  for (const name of weightMap === null ? [SINGLE] : new Set(weightMap.values())) {
    shards.push(await openShard(join(folder, name), opened));
  }
  for (const [tensor, name] of weightMap ?? []) {
    const shard = shards.find(({ file }) => file === join(folder, name))!;
    if (!shard.places.has(tensor))
      throw new CheckpointFormatError(`${shard.file} has no tensor ${tensor}, which ${INDEX} places there`);
  }
  return await use(shards);
}

/** Names of the files with the weights. @throws {CheckpointFormatError} */
export function weightFiles(folder: string): string[] {
  const hasIndex = existsSync(join(folder, INDEX)) && !existsSync(join(folder, SINGLE));
  return hasIndex ? [...new Set(readIndex(folder)!.values())] : [SINGLE];
}

/** The file of each tensor; null if one file has all tensors. */
function readIndex(folder: string): ReadonlyMap<string, string> | null {
  if (existsSync(join(folder, SINGLE))) return null;
  if (!existsSync(join(folder, INDEX))) {
    throw new CheckpointFormatError(`${folder} has neither ${SINGLE} nor ${INDEX}; only safetensors can be read`);
  }
  // The pattern allows no path in a file name, so an index cannot name a file outside the folder.
  const Index = z.looseObject({ weight_map: z.record(z.string(), z.string().regex(/^[\w.-]+\.safetensors$/)) });
  const parsed = Index.safeParse(readJson(folder, INDEX));
  if (parsed.success) return new Map(Object.entries(parsed.data.weight_map));
  throw new CheckpointFormatError(`cannot use ${join(folder, INDEX)}: ${schemaFaults(parsed.error, "the file")}`);
}

async function openShard(file: string, opened: AsyncDisposableStack): Promise<SafetensorsSource> {
  let handle: FileHandle;
  try {
    checkRegular(file);
    handle = await open(file);
  } catch (error) {
    throw new CheckpointFormatError(`cannot read ${file}, a part of the model's weights: ${(error as Error).message}`);
  }
  opened.defer(() => handle.close());
  const { size } = await handle.stat();
  return SafetensorsSource.open({
    name: file,
    byteLength: size,
    async read(into, at) {
      for (let done = 0; done < into.length; ) {
        const { bytesRead } = await handle.read(into, done, into.length - done, at + done);
        if (bytesRead === 0)
          throw new CheckpointFormatError(`${file} ends at byte ${at + done}; it was shortened while it was read`);
        done += bytesRead;
      }
    },
  });
}

/** @throws {CheckpointFormatError} in one line, if a pretrained model cannot be used. */
export function policyOf({ model, engine }: RunConfig): { dialogue: Dialogue; model: ModelConfig } {
  const { path, lora, width, layers, heads, kvHeads, hidden } = model;
  if (path !== null) {
    const read = readPretrained(path);
    if (lora.rank === 0) return read;
    // A server of Tinker's protocol chooses the adapted matrices itself.
    if (engine.name !== "tinker") checkTargets(read.model, lora.targets);
    return { ...read, model: { ...read.model, lora } };
  }
  const tokenizer = new Tokenizer();
  const shape = { width, layers, heads, headWidth: width / heads, kvHeads, hidden, vocabulary: tokenizer.size };
  return { dialogue: builtinDialogue(tokenizer), model: ModelConfig.parse(shape) };
}

/** @throws {CheckpointFormatError} if a matrix cannot have an adapter */
function checkTargets({ experts }: ModelConfig, targets: Lora["targets"]): void {
  const odd = experts === null ? [] : targets.filter((target) => !isOfAttention(target));
  if (odd.length === 0) return;
  throw new CheckpointFormatError(
    `experts cannot have adapters, but model.lora.targets has ${odd.join(", ")}; set --model.lora.targets='${JSON.stringify(ATTENTION_TARGETS)}'`,
  );
}

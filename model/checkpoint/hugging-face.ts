/**
 * Parameters under the names and shapes of transformers' causal models. Bunraku stacks q_proj, k_proj and v_proj in one matrix, and
 * also stacks the matrices of the experts. Each tensor of transformers is a view of a part of such a matrix, or of a whole tensor of Bunraku.
 */
import { sizeOf } from "../engine/graph.ts";
import { type ModelConfig, parameterShapes } from "../policy/model-config.ts";
import type { Parameters } from "../policy/parameters.ts";
import { CheckpointFormatError } from "./config.ts";
import { checkTensors, type NamedTensor, type Safetensors } from "./safetensors.ts";
import type { SafetensorsSource } from "./safetensors-contents.ts";

/** Hugging Face's names and shapes, in the order of `parameterShapes`. */
export function huggingFaceShapes(config: ModelConfig): ReadonlyMap<string, readonly number[]> {
  const { heads, kvHeads, headWidth, experts } = config;
  const rows = { q_proj: heads * headWidth, k_proj: kvHeads * headWidth, v_proj: kvHeads * headWidth };
  const shapes = new Map<string, readonly number[]>();
  for (const [name, shape] of parameterShapes(config)) {
    if (name.includes("qkv_proj")) {
      for (const [part, count] of Object.entries(rows))
        shapes.set(name.replace("qkv_proj", part), [count, ...shape.slice(1)]);
    } else if (experts !== null && name.includes(".experts.")) {
      const rest = sizeOf(shape) / experts.count / shape.at(-1)!;
      for (let expert = 0; expert < experts.count; expert++)
        shapes.set(name.replace(".experts.", `.experts.${expert}.`), [rest, shape.at(-1)!]);
    } else shapes.set(name, shape);
  }
  return shapes;
}

/** Views of `parameters`, one per Hugging Face name. Writing to a view changes the policy. */
export function huggingFaceViews(config: ModelConfig, { flat }: Parameters): ReadonlyMap<string, NamedTensor> {
  const named = new Map<string, NamedTensor>();
  let at = 0;
  for (const [name, shape] of huggingFaceShapes(config)) {
    const size = sizeOf(shape);
    named.set(name, { shape, values: flat.subarray(at, at + size) });
    at += size;
  }
  return named;
}

/**
 * Copies a checkpoint into `parameters`.
 *
 * @throws {SafetensorsError} if a tensor is missing, extra or of another shape. After this error `parameters` are unchanged.
 */
export function readHuggingFace(config: ModelConfig, parameters: Parameters, checkpoint: Safetensors): void {
  const views = huggingFaceViews(config, parameters);
  checkTensors(checkpoint, new Map([...views].map(([name, { shape }]) => [name, shape])));
  for (const [name, { values }] of views) values.set(checkpoint.tensors.get(name)!.values);
}

const OUTPUT = "lm_head.weight";
const EMBEDDING = "model.embed_tokens.weight";
/** Buffers in old checkpoints. `readTensors` skips them, because the config determines their values. */
const COMPUTED = /\.rotary_emb\.inv_freq$/;
/** Number of values of a tied output layer that `checkTied` compares at a time. */
const COMPARED = 2 ** 20;

/** The file of each tensor. */
type FileOfTensor = ReadonlyMap<string, SafetensorsSource>;

/**
 * Finds the tensors of a pretrained model in its files.
 *
 * @param folder  for error texts.
 * @throws {CheckpointFormatError} if a tensor is missing, extra, in two files or of another shape.
 */
export function findTensors(config: ModelConfig, files: readonly SafetensorsSource[], folder: string): FileOfTensor {
  const shapes = huggingFaceShapes(config);
  const found = new Map<string, SafetensorsSource>();
  for (const source of files) {
    for (const [name, { shape }] of source.places) {
      const twice = found.get(name);
      if (twice !== undefined) refuse(`tensor ${name} is in ${source.file} and in ${twice.file}; expected in one file`);
      found.set(name, source);
      const expected = shapes.get(name) ?? (name === OUTPUT ? shapes.get(EMBEDDING)! : null);
      if (expected === null && !COMPUTED.test(name))
        refuse(`${source.file}: tensor ${name} [${shape}] does not belong to the architecture in config.json`);
      if (expected !== null && expected.join() !== shape.join())
        refuse(`${source.file}: tensor ${name} is [${shape}], expected [${expected}] by config.json`);
    }
  }
  for (const [name, shape] of shapes) {
    if (!found.has(name)) refuse(`${folder}: tensor ${name} [${shape}] is in none of its ${files.length} files`);
  }
  return found;
}

/** Reads the weights of a pretrained model. @param found  from `findTensors` */
export async function readTensors(config: ModelConfig, parameters: Parameters, found: FileOfTensor): Promise<void> {
  const views = huggingFaceViews(config, parameters);
  for (const [name, { values }] of views) await found.get(name)!.read(name, values);
  const own = views.has(OUTPUT) ? undefined : found.get(OUTPUT);
  if (own !== undefined) await checkTied(own, views.get(EMBEDDING)!.values);
}

/** A stored output layer of a tied model must equal the embedding. */
async function checkTied(source: SafetensorsSource, embedding: Float32Array): Promise<void> {
  const output = new Float32Array(Math.min(COMPARED, embedding.length));
  for (let at = 0; at < embedding.length; at += COMPARED) {
    const part = output.subarray(0, Math.min(COMPARED, embedding.length - at));
    await source.read(OUTPUT, part, at);
    if (part.every((value, i) => value === embedding[at + i])) continue;
    refuse(`${source.file}: ${OUTPUT} differs from the embedding, but config.json says tie_word_embeddings`);
  }
}

function refuse(why: string): never {
  throw new CheckpointFormatError(why);
}

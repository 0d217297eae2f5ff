/**
 * Parameters under the names and shapes of transformers' Qwen2ForCausalLM. Ours differ in one thing: q_proj, k_proj and v_proj
 * are one matrix, rows below each other, so their parts are views of it.
 */
import { sizeOf } from "../engine/graph.ts";
import type { Parameters } from "../parameters.ts";
import type { ModelConfig } from "../transformer.ts";
import { checkTensors, type NamedTensor, type Safetensors } from "./safetensors.ts";

/** Views of `parameters`, one per Hugging Face name. Writing to one changes the policy. */
export function huggingFaceViews(config: ModelConfig, { views }: Parameters): ReadonlyMap<string, NamedTensor> {
  const { heads, kvHeads, headWidth } = config;
  const rows = { q_proj: heads * headWidth, k_proj: kvHeads * headWidth, v_proj: kvHeads * headWidth };
  const named = new Map<string, NamedTensor>();
  for (const [name, { shape, values }] of views) {
    if (!name.includes("qkv_proj")) {
      named.set(name, { shape, values });
      continue;
    }
    let at = 0;
    for (const [part, count] of Object.entries(rows)) {
      const partShape = [count, ...shape.slice(1)];
      const size = sizeOf(partShape);
      named.set(name.replace("qkv_proj", part), { shape: partShape, values: values.subarray(at, at + size) });
      at += size;
    }
  }
  return named;
}

/**
 * Copy a checkpoint into `parameters`.
 *
 * @throws {SafetensorsError} naming file and tensor if one is missing, extra or of another shape; then nothing was copied.
 */
export function readHuggingFace(config: ModelConfig, parameters: Parameters, checkpoint: Safetensors): void {
  const views = huggingFaceViews(config, parameters);
  checkTensors(checkpoint, new Map([...views].map(([name, { shape }]) => [name, shape])));
  for (const [name, { values }] of views) values.set(checkpoint.tensors.get(name)!.values);
}

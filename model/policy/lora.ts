/**
 * Low-rank adapters: training changes A (R, in) and B (out, R) beside a frozen matrix W (out, in). The layer computes with
 * `W + alpha / R · B · A`. B begins as zeros, so the adapted policy begins as the model itself.
 * Source: https://arxiv.org/abs/2106.09685; names as in Hugging Face's peft.
 */
import { z } from "zod";

export const ATTENTION_TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj"] as const;
/** Every matrix of a layer: what peft calls all-linear. */
export const LORA_TARGETS = [...ATTENTION_TARGETS, "gate_proj", "up_proj", "down_proj"] as const;
type Target = (typeof LORA_TARGETS)[number];

export const Lora = z.strictObject({
  rank: z.int().positive(),
  alpha: z.number().positive(),
  targets: z.array(z.enum(LORA_TARGETS)).min(1),
});
export type Lora = z.infer<typeof Lora>;

/** The sizes that determine the shapes of the matrices. A `ModelConfig` has these keys. */
interface ModelSizes {
  readonly layers: number;
  readonly width: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headWidth: number;
  readonly hidden: number;
}

export const isOfAttention = (target: Target): boolean => (ATTENTION_TARGETS as readonly Target[]).includes(target);

const moduleName = (layer: number, target: Target) =>
  `model.layers.${layer}.${isOfAttention(target) ? "self_attn" : "mlp"}.${target}`;

/** (out, in) of each matrix that can be adapted. */
function matrixShapes(model: ModelSizes): Readonly<Record<Target, readonly [out: number, inner: number]>> {
  const { width, heads, kvHeads, headWidth, hidden } = model;
  return {
    q_proj: [heads * headWidth, width],
    k_proj: [kvHeads * headWidth, width],
    v_proj: [kvHeads * headWidth, width],
    o_proj: [width, heads * headWidth],
    gate_proj: [hidden, width],
    up_proj: [hidden, width],
    down_proj: [width, hidden],
  };
}

/** Names and shapes of all adapters: A (R, in) and B (out, R) of every target. */
export function adapterShapes(model: ModelSizes, { rank, targets }: Lora): Map<string, readonly number[]> {
  const shapes = new Map<string, readonly number[]>();
  const matrices = matrixShapes(model);
  for (let layer = 0; layer < model.layers; layer++) {
    for (const target of LORA_TARGETS.filter((target) => targets.includes(target))) {
      const [out, inner] = matrices[target];
      shapes.set(`${moduleName(layer, target)}.lora_A.weight`, [rank, inner]);
      shapes.set(`${moduleName(layer, target)}.lora_B.weight`, [out, rank]);
    }
  }
  return shapes;
}

/**
 * Adds the adapters to their matrices.
 *
 * @param base      under Hugging Face's names; changed in place.
 * @param adapters  under the names of `adapterShapes`.
 */
export function mergeAdapters(
  base: ReadonlyMap<string, { readonly values: Float32Array }>,
  adapters: ReadonlyMap<string, { readonly shape: readonly number[]; readonly values: Float32Array }>,
  { alpha, rank }: Lora,
): void {
  for (const [name, { shape, values: a }] of adapters) {
    if (!name.endsWith(".lora_A.weight")) continue;
    const module = name.slice(0, -".lora_A.weight".length);
    const b = adapters.get(`${module}.lora_B.weight`)!.values;
    const weight = base.get(`${module}.weight`)!.values;
    const inner = shape[1]!;
    const sums = new Float64Array(inner);
    for (let row = 0; row * rank < b.length; row++) {
      sums.fill(0);
      for (let r = 0; r < rank; r++) {
        const factor = b[row * rank + r]!;
        if (factor === 0) continue;
        for (let i = 0; i < inner; i++) sums[i]! += factor * a[r * inner + i]!;
      }
      for (let i = 0; i < inner; i++) weight[row * inner + i]! += (alpha / rank) * sums[i]!;
    }
  }
}

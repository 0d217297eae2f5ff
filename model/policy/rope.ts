/**
 * Angles of the rotary embedding, and the scalings with which pretrained models read texts longer than those of their training.
 * Source: https://arxiv.org/abs/2104.09864; scalings as in transformers' modeling_rope_utils.py.
 *
 * D head width.
 */
import { z } from "zod";

const Factor = z.number().positive();

export const RopeScaling = z.discriminatedUnion("kind", [
  /** Divides positions by the factor. */
  z.strictObject({ kind: z.literal("linear"), factor: Factor }),
  /** Llama 3.1: divides low frequencies by the factor, keeps high frequencies, and blends those between. */
  z.strictObject({
    kind: z.literal("llama3"),
    factor: Factor,
    lowFrequencyFactor: Factor,
    highFrequencyFactor: Factor,
    /** Longest sequence of the original training, in tokens. */
    originalLength: z.int().positive(),
  }),
  /** YaRN: like llama3, but blends by dimension instead of by frequency. Source: https://arxiv.org/abs/2309.00071. */
  z.strictObject({
    kind: z.literal("yarn"),
    factor: Factor,
    originalLength: z.int().positive(),
    betaFast: Factor,
    betaSlow: Factor,
    /** Multiplies cosines and sines. */
    attentionFactor: Factor,
    /** Round the first and the last blended dimension to whole numbers. */
    truncate: z.boolean(),
  }),
]);
export type RopeScaling = z.infer<typeof RopeScaling>;

/**
 * Cosines and sines for positions 0 … length - 1. Without scaling, the angles are `position / theta^(2 i / D)`.
 *
 * @param theta  null: no rotation
 * @returns (length, D / 2) each
 */
export function rotaryTables(
  length: number,
  headWidth: number,
  theta: number | null,
  scaling: RopeScaling | null = null,
): { cos: Float32Array; sin: Float32Array } {
  const frequencies = theta === null ? new Float64Array(headWidth / 2) : rotaryFrequencies(headWidth, theta, scaling);
  const half = frequencies.length;
  const amplitude = scaling?.kind === "yarn" ? scaling.attentionFactor : 1;
  const cos = new Float32Array(length * half);
  const sin = new Float32Array(length * half);
  for (let position = 0; position < length; position++) {
    for (let i = 0; i < half; i++) {
      const angle = position * frequencies[i]!;
      cos[position * half + i] = Math.cos(angle) * amplitude;
      sin[position * half + i] = Math.sin(angle) * amplitude;
    }
  }
  return { cos, sin };
}

/** Radians per token. @returns (D / 2) */
export function rotaryFrequencies(headWidth: number, theta: number, scaling: RopeScaling | null): Float64Array {
  const plain = Float64Array.from({ length: headWidth / 2 }, (_, i) => theta ** ((-2 * i) / headWidth));
  if (scaling === null) return plain;
  switch (scaling.kind) {
    case "linear":
      return plain.map((frequency) => frequency / scaling.factor);
    case "llama3":
      return plain.map((frequency) => llama3(frequency, scaling));
    case "yarn":
      return yarn(plain, headWidth, theta, scaling);
    default:
      return scaling satisfies never;
  }
}

type Of<Kind extends RopeScaling["kind"]> = Extract<RopeScaling, { kind: Kind }>;

function llama3(frequency: number, scaling: Of<"llama3">): number {
  const { factor, lowFrequencyFactor: low, highFrequencyFactor: high, originalLength } = scaling;
  const turns = (originalLength * frequency) / (2 * Math.PI);
  if (turns < low) return frequency / factor;
  if (turns > high) return frequency;
  const share = (turns - low) / (high - low);
  return (1 - share) * (frequency / factor) + share * frequency;
}

function yarn(plain: Float64Array, headWidth: number, theta: number, scaling: Of<"yarn">): Float64Array {
  const { factor, originalLength, betaFast, betaSlow, truncate } = scaling;
  /** The dimension that rotates this many times over the original length. */
  const dimension = (turns: number) =>
    (headWidth * Math.log(originalLength / (turns * 2 * Math.PI))) / (2 * Math.log(theta));
  const [first, last] = [dimension(betaFast), dimension(betaSlow)];
  const low = Math.max(truncate ? Math.floor(first) : first, 0);
  const high = Math.min(truncate ? Math.ceil(last) : last, headWidth - 1);
  return plain.map((frequency, i) => {
    const slow = Math.min(Math.max((i - low) / (low === high ? 0.001 : high - low), 0), 1);
    return slow * (frequency / factor) + (1 - slow) * frequency;
  });
}

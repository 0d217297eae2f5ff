/**
 * A check of a GPU at start-up: compares training steps and decoding steps of a tiny model with those of the CPU. The one product that
 * self-check.ts checks is not enough: WebGPU's norm in onnxruntime 1.30 left a result unwritten, which made only the gradients wrong.
 */

import { Decoder } from "../decode/decoder.ts";
import { Network } from "../learn/network.ts";
import { imitation } from "../learn/objective.ts";
import { ModelConfig } from "../policy/model-config.ts";
import { initialize, layParameters } from "../policy/parameters.ts";
import { sequence } from "../rng.ts";
import { type CompiledEngine, compiledEngine } from "./compiled.ts";
import type { Engine } from "./engine.ts";

/** onnxruntime's attention operator accepts this head width. */
const MODEL = ModelConfig.parse({
  vocabulary: 64,
  width: 32,
  layers: 1,
  heads: 2,
  kvHeads: 1,
  headWidth: 16,
  hidden: 32,
});
const TOKENS = Int32Array.of(3, 60, 1, 4, 1, 59, 26, 5);
const LIMITS = { tokensMax: 8, lengthMultiple: 8, widthMultiple: 8 };
/** Largest allowed error, relative to the CPU's largest value. A GPU adds numbers up in another order than a CPU. */
const RELATIVE_ERROR_MAX = 1e-3;
/** Largest allowed error if products round their factors to 10 bits of mantissa. */
const TF32_ERROR_MAX = 2e-2;
/** Number of steps. On CUDA the engine records a job's kernels at the second step and replays them at the third step. */
const STEPS = 3;
const ADAMW = { learningRate: 1e-2, beta1: 0.9, beta2: 0.99, epsilon: 1e-2, weightDecay: 0.01, clipNorm: 1 };

/**
 * @returns a text: the operators that run on the CPU instead, because there is no GPU kernel.
 * @throws {Error} naming the first result that differs from the CPU's, and by how much.
 */
export async function deviceCheck(engine: CompiledEngine, tf32 = false): Promise<string> {
  const errorMax = tf32 ? TF32_ERROR_MAX : RELATIVE_ERROR_MAX;
  const [expected, found] = [await samples(compiledEngine({ threads: 1 })), await samples(engine)];
  for (const [name, values] of Object.entries(expected)) {
    const size = Math.max(...values.map(Math.abs));
    const errors = values.map((value, i) => Math.abs(found[name]![i]! - value) / size);
    // NaN is an error too.
    if (errors.every((error) => error <= errorMax)) continue;
    const worst = Math.max(...errors).toPrecision(2);
    throw new Error(
      `engine ${engine.name} on ${engine.device} computes wrong results: ${name} differ by ${worst} from the CPU's (allowed ${errorMax}); choose another --device`,
    );
  }
  const kinds = [...engine.onCpu].map(([operator, count]) => `${operator} ${count}`);
  return kinds.length === 0 ? "no operator falls back to the CPU" : `on the CPU instead: ${kinds.join(", ")}`;
}

async function samples(engine: Engine): Promise<Record<string, number[]>> {
  const parameters = layParameters(MODEL);
  initialize(parameters, sequence(1, "device check"));
  const network = await Network.create(engine, MODEL, parameters);
  const written = Int32Array.from({ length: TOKENS.length - 1 }, (_, i) => i + 1);
  const weights = [new Float32Array(written.length).fill(1 / written.length)];
  const sequences = [{ tokens: TOKENS, written }];
  const losses: number[] = [];
  for (let step = 0; step < STEPS; step++) {
    const { loss } = await network.accumulate(imitation, sequences, { weights }, LIMITS);
    losses.push(loss!);
    if (step < STEPS - 1) await network.step(ADAMW);
  }
  const norm = await network.dropGradient();
  network.toHost({ moments: false });
  const decoder = new Decoder(engine, MODEL, parameters.flat, { slots: 2, capacity: 16 });
  const first = await decoder.append([0, 1], [[...TOKENS.subarray(0, 3)], [...TOKENS.subarray(3)]]);
  const decoded: number[] = [];
  for (let step = 0; step < STEPS; step++) {
    const { logits, places } = await decoder.step([0, 1], [7 + step, 8]);
    for (const place of places) decoded.push(...logits.subarray(place, place + MODEL.vocabulary));
  }
  return {
    "losses of training steps": losses,
    "norms of the gradient": [norm],
    "logits of a prompt": [...first],
    "logits of decoding steps": decoded,
  };
}

/**
 * All parameters of a policy in one piece of memory, so that an update, a checkpoint and a broadcast are each one pass over
 * one array, and processes on a host can map the same bytes.
 */
import type { DeviceArray, Engine } from "./engine/engine.ts";
import { f32 } from "./engine/engine.ts";
import { sizeOf } from "./engine/graph.ts";
import type { Uniform } from "./rng.ts";
import { type ModelConfig, parameterShapes } from "./transformer.ts";

export interface Parameters {
  /** Every value, in the order of `parameterShapes`. */
  readonly flat: Float32Array;
  /** Views into `flat`, by name. */
  readonly views: ReadonlyMap<string, { readonly shape: readonly number[]; readonly values: Float32Array }>;
}

/** Number of parameters. */
export function parameterCount(config: ModelConfig): number {
  return parameterShapes(config)
    .values()
    .reduce((sum, shape) => sum + sizeOf(shape), 0);
}

/**
 * Name the parts of `flat`.
 *
 * @param flat  memory of exactly `parameterCount(config)` values; zeros when left out
 */
export function layParameters(
  config: ModelConfig,
  flat: Float32Array = new Float32Array(parameterCount(config)),
): Parameters {
  const count = parameterCount(config);
  if (flat.length !== count) throw new RangeError(`the model has ${count} parameters, its memory holds ${flat.length}`);
  const views = new Map<string, { shape: readonly number[]; values: Float32Array }>();
  let at = 0;
  for (const [name, shape] of parameterShapes(config)) {
    const size = sizeOf(shape);
    views.set(name, { shape, values: flat.subarray(at, at + size) });
    at += size;
  }
  return { flat, views };
}

/** One array per parameter for an engine, over the same memory, under `prefix` + name. */
export function parameterArrays(engine: Engine, { views }: Parameters, prefix = ""): Record<string, DeviceArray> {
  const arrays = [...views].map(([name, { shape, values }]) => [prefix + name, engine.array(f32(...shape), values)]);
  return Object.fromEntries(arrays);
}

/** Fresh weights: normal with deviation 0.02 for matrices, 1 for norm gains, 0 for biases. Source: Qwen2's initializer_range. */
export function initialise({ views }: Parameters, uniform: Uniform): void {
  for (const [name, { values }] of views) {
    if (name.endsWith("norm.weight")) values.fill(1);
    else if (name.endsWith("bias")) values.fill(0);
    else for (let i = 0; i < values.length; i++) values[i] = 0.02 * normal(uniform);
  }
}

/** Box and Muller's normal deviate. `1 - u` keeps the logarithm finite, as u may be 0 but never 1. */
function normal(uniform: Uniform): number {
  return Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
}

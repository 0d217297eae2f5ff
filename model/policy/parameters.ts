/**
 * All parameters of a policy in one array. So an update, a checkpoint and a broadcast are each one pass over the array, and processes of
 * one machine can map the same bytes.
 */
import { type DeviceArray, type Engine, f32 } from "../engine/engine.ts";
import { sizeOf } from "../engine/graph.ts";
import type { Uniform } from "../rng.ts";
import { frozenShapes, type ModelConfig, parameterShapes } from "./model-config.ts";

export interface Parameters {
  /** Every value, in the order of `parameterShapes`. */
  readonly flat: Float32Array;
  /** Views into `flat`, by name. */
  readonly views: ReadonlyMap<string, { readonly shape: readonly number[]; readonly values: Float32Array }>;
}

export function parameterCount(config: ModelConfig): number {
  return parameterShapes(config)
    .values()
    .reduce((sum, shape) => sum + sizeOf(shape), 0);
}

/** The parameters of a model, whose values are in `flat`, not copied. @param flat  `parameterCount(config)` values; zeros by default */
export function layParameters(
  config: ModelConfig,
  flat: Float32Array = new Float32Array(parameterCount(config)),
): Parameters {
  const count = parameterCount(config);
  if (flat.length !== count) throw new RangeError(`the model has ${count} parameters, its memory holds ${flat.length}`);
  return { flat, views: viewsOf(parameterShapes(config), flat) };
}

/** The parameters that adapters do not change, whose values are in `flat`, not copied. @param flat  parameters of `baseOf(config)` */
export function layFrozen(config: ModelConfig, flat: Float32Array): Parameters {
  return { flat, views: viewsOf(frozenShapes(config), flat) };
}

function viewsOf(shapes: ReadonlyMap<string, readonly number[]>, flat: Float32Array): Parameters["views"] {
  let at = 0;
  const view = ([name, shape]: [string, readonly number[]]) => {
    const size = sizeOf(shape);
    at += size;
    return [name, { shape, values: flat.subarray(at - size, at) }] as const;
  };
  return new Map([...shapes].map(view));
}

/** An engine's arrays over the memory of these parameters: one per parameter, named `prefix` + the parameter's name. */
export function parameterArrays(engine: Engine, { views }: Parameters, prefix = ""): Record<string, DeviceArray> {
  const arrays = [...views].map(([name, { shape, values }]) => [prefix + name, engine.array(f32(...shape), values)]);
  return Object.fromEntries(arrays);
}

/**
 * Fresh weights: normal with deviation 0.02 for matrices, 1 for norm gains, 0 for biases. Source: Qwen2's initializer_range.
 * Adapters: A uniform within 1 / sqrt(in), B zeros, so adapters begin without effect. Source: peft.
 */
export function initialize({ views }: Parameters, uniform: Uniform): void {
  for (const [name, { shape, values }] of views) {
    const bound = 1 / Math.sqrt(shape.at(-1)!);
    if (name.endsWith("norm.weight")) values.fill(1);
    else if (name.endsWith("bias") || name.endsWith("lora_B.weight")) values.fill(0);
    else if (name.endsWith("lora_A.weight"))
      for (let i = 0; i < values.length; i++) values[i] = bound * (2 * uniform() - 1);
    else for (let i = 0; i < values.length; i++) values[i] = 0.02 * normal(uniform);
  }
}

/** Box and Muller's normal deviate. `1 - u` keeps the logarithm finite, because u may be 0 but never 1. */
function normal(uniform: Uniform): number {
  return Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
}

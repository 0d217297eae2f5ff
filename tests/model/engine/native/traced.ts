/** Traced functions of the tests: their operators of ours, and what an engine computes. */
import * as tf from "@tensorflow/tfjs-core";
import { eagerEngine } from "../../../../model/engine/eager.ts";
import type { Engine, Spec, TensorFunction } from "../../../../model/engine/engine.ts";
import { type Target, trace } from "../../../../model/engine/trace.ts";
import { randomFloats as random, withGradients } from "../../policy/gradient-check.ts";

export type Specs = Readonly<Record<string, Spec>>;
export interface Case {
  readonly build: TensorFunction;
  readonly specs: Specs;
}

/** A function's result and the gradients of its first inputs, for a gradient of the result that is `dy`. */
export const weighed =
  (names: readonly string[], of: (x: Readonly<Record<string, tf.Tensor>>) => tf.Tensor): TensorFunction =>
  (x) => {
    const loss = (y: tf.Tensor) => tf.sum(tf.mul(y, x["dy"]!)) as tf.Scalar;
    const { value: y, gradients } = withGradients(x, names, of, loss, "d ");
    return { y, ...gradients };
  };

/** Names of our operators in a traced function, without their sizes. */
export const ours = ({ build, specs }: Case, target: Target) =>
  trace(build, specs, target)
    .graph.nodes.filter(({ domain }) => domain === "bunraku")
    .map(({ op }) => op.split("_")[0]!);

/** What an engine computes from inputs whose values depend only on their names. */
export async function evaluated(engine: Engine, { build, specs }: Case): Promise<Record<string, Float32Array>> {
  const run = await engine.compile("evaluated", build, specs);
  const inputs = Object.fromEntries(
    Object.entries(specs).map(([name, spec]) => {
      const size = spec.shape.reduce((a, b) => a * b, 1);
      // Sequences of 8, 9, … tokens; a cache of keys holds nothing that is far from 0.
      const values = spec.dtype === "int32" ? Int32Array.from({ length: size }, (_, i) => 7 + i) : random(size, name);
      return [name, engine.array(spec, name.startsWith("k") ? new Float32Array(size) : values)];
    }),
  );
  const outputs = Object.fromEntries(Object.entries(run.outputs).map(([name, spec]) => [name, engine.array(spec)]));
  await run.run(inputs, outputs);
  await run.dispose();
  return Object.fromEntries(Object.entries(outputs).map(([name, array]) => [name, array.read() as Float32Array]));
}

const eager = eagerEngine();
const expectedOf = new Map<Case, Promise<Record<string, Float32Array>>>();
export const definition = (of: Case) => expectedOf.getOrInsertComputed(of, () => evaluated(eager, of));

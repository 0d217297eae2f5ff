/**
 * An engine that runs each operation immediately on a tfjs backend; eager.ts and tensorflow.ts use it.
 *
 * - Arrays are host memory. A run copies its inputs from the arrays and its outputs to the arrays.
 * - Between runs no tensor is alive.
 */
import * as tf from "@tensorflow/tfjs-core";
import { type CompiledFunction, checkArrays, type DeviceArray, type Engine, memoryFor } from "./engine.ts";
import "./lowerings.ts";
import { hostMemory } from "./memory.ts";
import { trace } from "./trace.ts";

/**
 * @param backend  name of a registered backend.
 * @param copies   true: a run copies its inputs first. A backend whose tensors share the arrays' memory needs this: an output may overwrite an input.
 */
export function immediateEngine(name: Engine["name"], device: string, backend: string, copies: boolean): Engine {
  return {
    name,
    device,
    runsReadHostMemory: true,
    runsMachineCode: () => false,
    toDevice: hostMemory.toDevice,
    toHost: hostMemory.toHost,
    release: hostMemory.release,
    lanesMax: 1,
    slotReaders: () => "none",
    valuesPerPiece: 2 ** 24,

    array(spec, backing): DeviceArray {
      const values = memoryFor(spec, backing);
      return { ...spec, read: () => values, write: (next) => values.set(next as typeof values) };
    },

    async compile(what, build, inputs): Promise<CompiledFunction> {
      // Tracing gives the shapes, and checks the function against the rules of the compiled engine.
      const { outputs } = trace(build, inputs);
      return {
        outputs,
        async run(given, results) {
          checkArrays(`${what}: inputs`, inputs, given);
          checkArrays(`${what}: outputs`, outputs, results);
          void tf.engine().setBackend(backend);
          tf.tidy(() => {
            const tensors = Object.entries(inputs).map(([key, { shape, dtype }]) => {
              // Without a copy, the backend uploads the values at their first use in this run, before the run writes any output.
              const values = given[key]!.read();
              return [key, tf.tensor((copies ? values.slice() : values) as Float32Array, [...shape], dtype)] as const;
            });
            const computed = build(Object.fromEntries(tensors));
            const fetched = Object.entries(computed).map(([key, tensor]) => [key, tensor.dataSync()] as const);
            for (const [key, values] of fetched) results[key]!.write(values as Float32Array);
            // `tidy` does not dispose tensors that the function kept with tf.keep.
            for (const tensor of Object.values(computed)) tensor.dispose();
          });
        },
        async dispose() {},
      };
    },

    async runLanes(lists) {
      for (const { run, inputs, outputs } of lists.flat()) await run.run(inputs, outputs);
    },
  };
}

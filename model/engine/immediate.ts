/**
 * An engine that runs each operation at once, on a backend of tfjs: the part that eager.ts and tensorflow.ts share.
 *
 * - Arrays lie in the host's memory, where threads share weights; a run reads its inputs and writes its outputs there.
 * - Between runs no tensor is alive.
 */
import * as tf from "@tensorflow/tfjs-core";
import { type CompiledFunction, checkArrays, type DeviceArray, type Engine, memoryFor } from "./engine.ts";
import "./lowerings.ts";
import { hostMemory } from "./memory.ts";
import { trace } from "./trace.ts";

/**
 * @param backend  a registered one's name.
 * @param copies  true if tensors of this backend are the very memory that they were made of, which outputs may be written to.
 */
export function immediateEngine(name: Engine["name"], device: string, backend: string, copies: boolean): Engine {
  return {
    name,
    device,
    toDevice: hostMemory.toDevice,
    toHost: hostMemory.toHost,
    release: hostMemory.release,
    lanes: 1,
    pieceValues: 2 ** 24,

    array(spec, backing): DeviceArray {
      const values = memoryFor(spec, backing);
      return { ...spec, read: () => values, write: (next) => values.set(next as typeof values) };
    },

    async compile(what, build, inputs): Promise<CompiledFunction> {
      // Traced for its shapes alone, which also holds this engine's functions to the rules of the compiled one.
      const { outputs } = trace(build, inputs);
      return {
        outputs,
        async run(given, results) {
          checkArrays(`${what}: inputs`, inputs, given);
          checkArrays(`${what}: outputs`, outputs, results);
          void tf.engine().setBackend(backend);
          tf.tidy(() => {
            const tensors = Object.entries(inputs).map(([key, { shape, dtype }]) => {
              // Without a copy it is sent at its first use, within this run: nothing writes to it before.
              const values = given[key]!.read();
              return [key, tf.tensor((copies ? values.slice() : values) as Float32Array, [...shape], dtype)] as const;
            });
            const computed = build(Object.fromEntries(tensors));
            const fetched = Object.entries(computed).map(([key, tensor]) => [key, tensor.dataSync()] as const);
            for (const [key, values] of fetched) results[key]!.write(values as Float32Array);
            // Also those that the function kept alive across a gradient's own scope.
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

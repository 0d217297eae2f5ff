/** The reference engine: each operation runs at once on tfjs' plain JavaScript backend. Slow, and easy to trust. */
import * as tf from "@tensorflow/tfjs-core";
import "@tensorflow/tfjs-backend-cpu";
import { type CompiledFunction, checkArrays, type DeviceArray, type Engine, type Spec } from "./engine.ts";
import { sizeOf } from "./graph.ts";

export function eagerEngine(): Engine {
  return {
    name: "eager",
    device: "cpu, plain JavaScript",

    array({ shape, dtype }, backing): DeviceArray {
      const length = sizeOf(shape);
      const values = backing ?? (dtype === "float32" ? new Float32Array(length) : new Int32Array(length));
      return { shape, dtype, read: () => values, write: (next) => values.set(next as typeof values) };
    },

    async compile(name, build, inputs): Promise<CompiledFunction> {
      return {
        async run(given, results) {
          checkArrays(`${name}: inputs`, inputs, given);
          void tf.engine().setBackend("cpu");
          tf.tidy(() => {
            const tensors = Object.entries(inputs).map(([key, { shape, dtype }]) => {
              return [key, tf.tensor(given[key]!.read().slice() as Float32Array, shape as number[], dtype)] as const;
            });
            const outputs = build(Object.fromEntries(tensors));
            const specs = Object.entries(outputs).map(([key, tensor]): [string, Spec] => {
              return [key, { shape: tensor.shape, dtype: tensor.dtype === "float32" ? "float32" : "int32" }];
            });
            checkArrays(`${name}: outputs`, Object.fromEntries(specs), results);
            for (const [key, tensor] of Object.entries(outputs)) results[key]!.write(tensor.dataSync() as Float32Array);
          });
        },
        async dispose() {},
      };
    },
  };
}

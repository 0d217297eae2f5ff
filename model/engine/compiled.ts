/**
 * The compiled engine: a traced graph, run by onnxruntime. `run` blocks the JavaScript thread it is called on, so actors call
 * it inside a worker.
 */
import {
  type CompiledFunction,
  checkArrays,
  type DeviceArray,
  type ElementType,
  type Engine,
  memoryFor,
  type Spec,
  type TensorFunction,
} from "./engine.ts";
import "./fused.ts";
import "./lowerings.ts";
import { encodeOnnx } from "./onnx.ts";
import { OrtSession, OrtTensor } from "./onnxruntime.ts";
import { trace } from "./trace.ts";

class HostArray implements DeviceArray {
  readonly shape: readonly number[];
  readonly dtype: ElementType;
  readonly tensor: OrtTensor;

  constructor({ shape, dtype }: Spec, values: Float32Array | Int32Array) {
    this.shape = shape;
    this.dtype = dtype;
    this.tensor = new OrtTensor(values, shape);
  }

  read(): Float32Array | Int32Array {
    return this.tensor.values;
  }

  write(values: Float32Array | Int32Array): void {
    this.tensor.values.set(values);
  }
}

const tensorOf = (array: DeviceArray | undefined): OrtTensor => (array as HostArray).tensor;

export interface CompiledOptions {
  /** Threads onnxruntime computes with. */
  readonly threads: number;
  /** Write onnxruntime's per-node profile to this file prefix. */
  readonly profile?: string;
}

export function compiledEngine({ threads, profile }: CompiledOptions): Engine {
  if (!Number.isInteger(threads) || threads < 1)
    throw new RangeError(`engine threads must be at least 1, got ${threads}`);
  return {
    name: "compiled",
    device: `cpu, ${threads} ${threads === 1 ? "thread" : "threads"}`,

    array: (spec, backing) => new HostArray(spec, memoryFor(spec, backing)),

    async compile(name: string, build: TensorFunction, inputs): Promise<CompiledFunction> {
      const { graph, outputs } = trace(build, inputs);
      // onnxruntime drops an input that nothing depends on, and then refuses to be given it.
      const read = new Set(graph.nodes.flatMap((node) => node.inputs));
      const inputNames = Object.keys(inputs).filter((key) => read.has(key));
      const outputNames = Object.keys(outputs);
      const session = new OrtSession(
        encodeOnnx({ ...graph, inputs: graph.inputs.filter((port) => read.has(port.name)) }),
        inputNames,
        outputNames.map((key) => `out.${key}`),
        { threads, ...(profile === undefined ? {} : { profile }) },
      );
      return {
        outputs,
        async run(given, results) {
          checkArrays(`${name}: inputs`, inputs, given);
          checkArrays(`${name}: outputs`, outputs, results);
          session.run(
            inputNames.map((key) => tensorOf(given[key])),
            outputNames.map((key) => tensorOf(results[key])),
          );
        },
        async dispose() {
          session.release();
        },
      };
    },
  };
}

/**
 * The compiled engine: a traced graph, run by onnxruntime. `run` blocks the JavaScript thread it is called on (onnxruntime-node
 * computes synchronously), so actors call it inside a worker.
 */
import * as ort from "onnxruntime-node";
import {
  type CompiledFunction,
  checkArrays,
  type DeviceArray,
  type ElementType,
  type Engine,
  type Spec,
  type TensorFunction,
} from "./engine.ts";
import { sizeOf } from "./graph.ts";
import "./fused.ts";
import "./lowerings.ts";
import { encodeOnnx } from "./onnx.ts";
import { trace } from "./trace.ts";

class HostArray implements DeviceArray {
  readonly shape: readonly number[];
  readonly dtype: ElementType;
  readonly tensor: ort.Tensor;
  readonly #values: Float32Array | Int32Array;

  constructor({ shape, dtype }: Spec, values: Float32Array | Int32Array) {
    this.shape = shape;
    this.dtype = dtype;
    this.#values = values;
    this.tensor = new ort.Tensor(dtype, values as Float32Array, shape as number[]);
  }

  read(): Float32Array | Int32Array {
    return this.#values;
  }

  write(values: Float32Array | Int32Array): void {
    this.#values.set(values);
  }
}

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

    array(spec, backing) {
      const length = sizeOf(spec.shape);
      const values = backing ?? (spec.dtype === "float32" ? new Float32Array(length) : new Int32Array(length));
      if (values.length !== length)
        throw new RangeError(
          `an array of shape [${spec.shape}] needs ${length} values, its memory holds ${values.length}`,
        );
      return new HostArray(spec, values);
    },

    async compile(name: string, build: TensorFunction, inputs): Promise<CompiledFunction> {
      const { graph, outputs } = trace(build, inputs);
      const session = await ort.InferenceSession.create(encodeOnnx(graph), {
        executionProviders: ["cpu"],
        intraOpNumThreads: threads,
        graphOptimizationLevel: "all",
        logSeverityLevel: 3,
        ...(profile === undefined ? {} : { enableProfiling: true, profileFilePrefix: profile }),
        // Spinning threads steal time from the other actors on the same cores; see docs/log.md.
        extra: { session: { intra_op: { allow_spinning: "0" } } },
      });
      // A graph input that no output depends on does not exist for the session.
      const used = new Set(session.inputNames);
      return {
        async run(given, results) {
          checkArrays(`${name}: inputs`, inputs, given);
          checkArrays(`${name}: outputs`, outputs, results);
          const feeds: Record<string, ort.Tensor> = {};
          for (const key of Object.keys(inputs)) if (used.has(key)) feeds[key] = (given[key] as HostArray).tensor;
          const fetches: Record<string, ort.Tensor> = {};
          for (const key of Object.keys(outputs)) fetches[`out.${key}`] = (results[key] as HostArray).tensor;
          await session.run(feeds, fetches);
        },
        dispose: () => session.release(),
      };
    },
  };
}

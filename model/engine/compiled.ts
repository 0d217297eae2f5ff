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
  type Job,
  memoryFor,
  type Spec,
  type TensorFunction,
} from "./engine.ts";
import "./fused.ts";
import "./lowerings.ts";
import { encodeOnnx } from "./onnx.ts";
import { type OrtCall, OrtSession, OrtTensor, runCalls } from "./onnxruntime.ts";
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

class Compiled implements CompiledFunction {
  readonly #name: string;
  readonly #inputs: Readonly<Record<string, Spec>>;
  readonly outputs: Readonly<Record<string, Spec>>;
  readonly #session: OrtSession;
  readonly #inputNames: readonly string[];
  readonly #outputNames: readonly string[];

  constructor(name: string, build: TensorFunction, inputs: Readonly<Record<string, Spec>>, options: CompiledOptions) {
    const { graph, outputs } = trace(build, inputs);
    this.#name = name;
    this.#inputs = inputs;
    this.outputs = outputs;
    // onnxruntime drops an input that nothing depends on, and then refuses to be given it.
    const read = new Set(graph.nodes.flatMap((node) => node.inputs));
    this.#inputNames = Object.keys(inputs).filter((key) => read.has(key));
    this.#outputNames = Object.keys(outputs);
    this.#session = new OrtSession(
      encodeOnnx({ ...graph, inputs: graph.inputs.filter((port) => read.has(port.name)) }),
      this.#inputNames,
      this.#outputNames.map((key) => `out.${key}`),
      options,
    );
  }

  call(given: Job["inputs"], results: Job["outputs"]): OrtCall {
    checkArrays(`${this.#name}: inputs`, this.#inputs, given);
    checkArrays(`${this.#name}: outputs`, this.outputs, results);
    return this.#session.call(
      this.#inputNames.map((key) => tensorOf(given[key])),
      this.#outputNames.map((key) => tensorOf(results[key])),
    );
  }

  async run(given: Job["inputs"], results: Job["outputs"]): Promise<void> {
    runCalls([[this.call(given, results)]]);
  }

  async dispose(): Promise<void> {
    this.#session.release();
  }
}

const tensorOf = (array: DeviceArray | undefined): OrtTensor => (array as HostArray).tensor;

export interface CompiledOptions {
  /** Threads onnxruntime computes with. */
  readonly threads: number;
  /** Write onnxruntime's per-node profile to this file prefix. */
  readonly profile?: string;
}

export function compiledEngine(options: CompiledOptions): Engine {
  const { threads } = options;
  if (!Number.isInteger(threads) || threads < 1)
    throw new RangeError(`engine threads must be at least 1, got ${threads}`);
  const calls = new WeakMap<Job, OrtCall>();
  const callOf = (job: Job): OrtCall => {
    // Every function of this engine is a `Compiled`.
    const call = calls.get(job) ?? (job.run as Compiled).call(job.inputs, job.outputs);
    calls.set(job, call);
    return call;
  };
  return {
    name: "compiled",
    device: `cpu, ${threads} ${threads === 1 ? "thread" : "threads"}`,

    array: (spec, backing) => new HostArray(spec, memoryFor(spec, backing)),

    lanes: threads,
    pieceValues: 2 ** 15,

    async compile(name, build, inputs, inLane = false) {
      return new Compiled(name, build, inputs, { ...options, threads: inLane ? 1 : threads });
    },

    async runLanes(lists) {
      runCalls(lists.map((list) => list.map(callOf)));
    },
  };
}

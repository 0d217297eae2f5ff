/**
 * The compiled engine: onnxruntime runs a traced graph. Running a graph blocks its JavaScript thread, so actors run the engine in a worker.
 */
import {
  type CompiledFunction,
  type CompileOptions,
  checkArrays,
  type Device,
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
import { cudaMemory } from "./cuda.ts";
import { type DeviceOptions, deviceInWords } from "./device.ts";
import { type ArrayMemory, hostMemory, TwinMemory } from "./memory.ts";
import { readsCaches } from "./native/lowerings.ts";
import { type Instructions, machineInstructions, vectorWidthOf } from "./native/machine.ts";
import { encodeOnnx } from "./onnx.ts";
import { type OrtCall, OrtSession, OrtTensor, record, runCalls } from "./onnxruntime.ts";
import { trace } from "./trace.ts";

class OrtArray implements DeviceArray {
  readonly shape: readonly number[];
  readonly dtype: ElementType;
  readonly tensor: OrtTensor;
  readonly #values: Float32Array | Int32Array;
  readonly #memory: ArrayMemory;

  constructor(spec: Spec, values: Float32Array | Int32Array, memory: ArrayMemory, device: Device) {
    this.shape = spec.shape;
    this.dtype = spec.dtype;
    this.tensor = new OrtTensor(device === "cuda" ? "cuda" : "cpu", memory.addressOf(values), spec, values);
    this.#values = values;
    this.#memory = memory;
  }

  read(): Float32Array | Int32Array {
    this.#memory.toHost(this.#values);
    return this.#values;
  }

  write(values: Float32Array | Int32Array): void {
    this.#values.set(values);
    this.#memory.toDevice(this.#values);
  }

  get byteLength(): number {
    return this.#values.byteLength;
  }

  /** Copies the values. @returns a function that writes them back */
  keep(): () => void {
    return this.#memory.keep(this.#values);
  }
}

class Compiled implements CompiledFunction {
  readonly #name: string;
  readonly #inputs: Readonly<Record<string, Spec>>;
  readonly outputs: Readonly<Record<string, Spec>>;
  readonly #session: OrtSession;
  readonly #inputNames: readonly string[];

  constructor(name: string, build: TensorFunction, inputs: Readonly<Record<string, Spec>>, options: GraphOptions) {
    const instructions = instructionsFor(options);
    const { graph, outputs } = trace(build, inputs, instructions ?? options.device, options.bfloat16Products);
    this.#name = name;
    this.#inputs = inputs;
    this.outputs = outputs;
    // onnxruntime drops an unused input, and then refuses a value for it.
    const read = new Set(graph.nodes.flatMap((node) => node.inputs));
    this.#inputNames = Object.keys(inputs).filter((key) => read.has(key));
    this.#session = new OrtSession(
      encodeOnnx({ ...graph, inputs: graph.inputs.filter((port) => read.has(port.name)) }),
      this.#inputNames,
      Object.keys(outputs).map((key) => `out.${key}`),
      {
        ...options,
        vectorWidth: instructions && vectorWidthOf(instructions),
        operators: new Map(graph.nodes.flatMap(({ op, machineCode }) => (machineCode ? [[op, machineCode]] : []))),
      },
    );
  }

  get onCpu(): readonly string[] {
    return this.#session.onCpu;
  }

  call(given: Job["inputs"], results: Job["outputs"]): OrtCall {
    checkArrays(`${this.#name}: inputs`, this.#inputs, given);
    checkArrays(`${this.#name}: outputs`, this.outputs, results);
    return this.#session.call(
      this.#inputNames.map((key) => tensorOf(given[key])),
      Object.keys(this.outputs).map((key) => tensorOf(results[key])),
    );
  }

  async run(given: Job["inputs"], results: Job["outputs"]): Promise<void> {
    runCalls([[this.call(given, results)]]);
  }

  async dispose(): Promise<void> {
    this.#session.release();
  }
}

/** If a job is not repeatable and its outputs have more bytes, it is not recorded: copying the outputs would take longer than recorded kernels save. */
const KEPT_BYTES_MAX = 2 ** 26;

/** Records the kernels of the job's call. The job's arrays keep their values. */
function recorded({ outputs, repeatable = false }: Job, call: OrtCall): OrtCall {
  const written = repeatable ? [] : (Object.values(outputs) as OrtArray[]);
  if (written.reduce((sum, { byteLength }) => sum + byteLength, 0) > KEPT_BYTES_MAX) return call;
  const restores = written.map((array) => array.keep());
  const made = record(call);
  for (const restore of restores) restore();
  return made;
}

type GraphOptions = CompiledOptions & Pick<CompileOptions, "fewRows"> & { readonly instructions: Instructions | null };

/** The instructions of a graph's machine code; null: no machine code. Machine code computes only on one thread of a CPU. */
function instructionsFor({
  threads,
  device = "cpu",
  instructions,
  fewRows = false,
}: GraphOptions): Instructions | null {
  if (threads > 1 || device !== "cpu") return null;
  // The matrix product on tiles (AMX) packs both factors first. With few rows, packing takes as much time as the tiles save.
  return fewRows && instructions === "AMX" ? "AVX-512" : instructions;
}

const tensorOf = (array: DeviceArray | undefined): OrtTensor => (array as OrtArray).tensor;

export interface CompiledOptions extends DeviceOptions {
  /** Default: the CPU. */
  readonly device?: Device;
  /** Memory of the engine's arrays, which the device must be able to read. Default: the GPU's memory for cuda, else the host's memory. */
  readonly memory?: ArrayMemory;
  /**
   * Record the kernels of a job at its second run: onnxruntime's CUDA provider then starts all of them at once. Default: true for cuda.
   */
  readonly records?: boolean;
  /** Instructions of machine code; null for no machine code. A function on several threads has no machine code. Default: the fastest of this CPU. */
  readonly instructions?: Instructions | null;
}

export interface CompiledEngine extends Engine {
  /** On a GPU: the number of compiled nodes that run on the CPU instead, by operator. */
  readonly onCpu: ReadonlyMap<string, number>;
}

/** @throws {Error} if the device is missing. */
export function compiledEngine(options: CompiledOptions): CompiledEngine {
  const { threads, device = "cpu" } = options;
  if (!Number.isInteger(threads) || threads < 1)
    throw new RangeError(`engine threads must be at least 1, got ${threads}`);
  // Call this even if `instructions` is given: it also asks Linux to let this process use tiles.
  const fastest = machineInstructions();
  const instructions = options.instructions === undefined ? fastest : options.instructions;
  const code = device === "cpu" && instructions !== null ? `, machine code for ${instructions}` : "";
  const described = deviceInWords(device, options) + code;
  const memory = options.memory ?? (device === "cuda" ? new TwinMemory(cudaMemory()) : hostMemory);
  const onCpu = new Map<string, number>();
  const records = options.records ?? device === "cuda";
  // A GPU runs one graph at a time.
  const lanesMax = device === "cpu" ? threads : 1;
  const calls = new WeakMap<Job, { call: OrtCall; runs: number }>();
  function callOf(job: Job): OrtCall {
    // Every function of this engine is a `Compiled`, and every array an `OrtArray`.
    const known = calls.getOrInsertComputed(job, ({ run, inputs, outputs }) => {
      return { call: (run as Compiled).call(inputs, outputs), runs: 0 };
    });
    // Recording takes as long as several runs, so a job that runs once is not recorded.
    if (++known.runs === 2 && known.call.session.records) known.call = recorded(job, known.call);
    return known.call;
  }
  const runsMachineCode = (inLane: boolean) =>
    instructionsFor({ ...options, instructions, threads: inLane ? 1 : threads }) !== null;
  return {
    name: "compiled",
    device: described,
    runsReadHostMemory: memory === hostMemory,
    runsMachineCode,
    onCpu,

    array: (spec, backing) => new OrtArray(spec, memoryFor(spec, backing), memory, device),
    toDevice: (values) => memory.toDevice(values),
    toHost: (values) => memory.toHost(values),
    release: (values) => memory.release(values),

    lanesMax,
    roundsProducts: device === "cpu" && (options.bfloat16Products ?? "none") !== "none",
    slotReaders(caches, inLane) {
      if (device !== "cpu") return "appends";
      return runsMachineCode(inLane) && readsCaches(caches) ? "all" : "none";
    },
    valuesPerPiece: device === "cpu" ? 2 ** 15 : 2 ** 24,

    async compile(name, build, inputs, { inLane = false, fewRows = false } = {}) {
      const own = { ...options, records, instructions, fewRows, threads: inLane ? 1 : threads };
      const compiled = new Compiled(name, build, inputs, own);
      for (const operator of compiled.onCpu) onCpu.set(operator, (onCpu.get(operator) ?? 0) + 1);
      return compiled;
    },

    async runLanes(lists) {
      runCalls(
        lists.map((list) => list.map(callOf)),
        lanesMax,
      );
    },
  };
}

/**
 * onnxruntime's C API through bun:ffi. The library comes from the package onnxruntime-node. That package's own binding copies every
 * output of every run, which takes three quarters of a decode step's time (docs/decisions.md). Here a tensor is a view of existing
 * memory, and a run writes its outputs into this memory.
 *
 * - The memory of a tensor must outlive the tensor and must not move, so an `OrtTensor` keeps the memory's owner alive.
 * - A failed call throws onnxruntime's message.
 * Source: onnxruntime/core/session/onnxruntime_c_api.h. New versions append to its table of functions, OrtApi.
 */
import { CFunction, CString, dlopen, type FFITypeOrString, type Pointer, ptr, read } from "bun:ffi";
import { dirname, join } from "node:path";
import type { Device, Spec } from "./engine.ts";
import { sizeOf } from "./graph.ts";
import { Lanes, type RunArguments } from "./lanes.ts";
import type { VectorWidth } from "./native/assembler.ts";
import { WORD_BYTES } from "./native/kernel.ts";
import {
  API_VERSION,
  type CustomOp,
  ELEMENT_TYPES,
  type MachineCodeOperator,
  makeOperator,
} from "./native/operator.ts";
import { setNativeVariable, zeroEnded } from "./native-environment.ts";
import { once } from "./once.ts";

/** Index of `Run` in the OrtApi table; lanes call it. */
const RUN = 9;

/** Index in the OrtApi table, arguments, result. Default: the result is an error status, or null. */
const FUNCTIONS = {
  getErrorMessage: [2, ["ptr"], "cstring"],
  createEnv: [3, ["i32", "ptr", "ptr"]],
  createSessionFromArray: [8, ["ptr", "ptr", "u64", "ptr", "ptr"]],
  createSessionOptions: [10, ["ptr"]],
  disableMemPattern: [17, ["ptr"]],
  setLogSeverity: [22, ["ptr", "i32"]],
  setOptimizationLevel: [23, ["ptr", "i32"]],
  setThreads: [24, ["ptr", "i32"]],
  createDomain: [26, ["ptr", "ptr"]],
  addOperator: [27, ["ptr", "ptr"]],
  addDomain: [28, ["ptr", "ptr"]],
  createRunOptions: [39, ["ptr"]],
  createTensor: [49, ["ptr", "ptr", "u64", "ptr", "u64", "i32", "ptr"]],
  createMemoryInfo: [68, ["ptr", "i32", "i32", "i32", "ptr"]],
  releaseStatus: [93, ["ptr"], "void"],
  releaseSession: [95, ["ptr"], "void"],
  releaseValue: [96, ["ptr"], "void"],
  releaseSessionOptions: [100, ["ptr"], "void"],
  releaseDomain: [101, ["ptr"], "void"],
  registerAllocator: [144, ["ptr", "ptr", "ptr"]],
  addSessionConfigEntry: [130, ["ptr", "ptr", "ptr"]],
  addRunConfigEntry: [165, ["ptr", "ptr", "ptr"]],
  appendCuda: [204, ["ptr", "ptr"]],
  createCudaOptions: [205, ["ptr"]],
  updateCudaOptions: [206, ["ptr", "ptr", "ptr", "u64"]],
  releaseCudaOptions: [208, ["ptr"], "void"],
  appendProvider: [216, ["ptr", "ptr", "ptr", "ptr", "u64"]],
  assignedGraphs: [407, ["ptr", "ptr", "ptr"]],
  providerOfGraph: [408, ["ptr", "ptr"]],
  nodesOfGraph: [409, ["ptr", "ptr", "ptr"]],
  operatorOfNode: [412, ["ptr", "ptr"]],
} as const satisfies Record<string, readonly [number, readonly FFITypeOrString[], FFITypeOrString?]>;

type Argument = number | bigint | string | NodeJS.TypedArray | Pointer | null;
/** A function of the table. A text becomes a C string for the call. @throws {Error} with onnxruntime's message if the result is an error status */
type Api = Record<keyof typeof FUNCTIONS, (...args: Argument[]) => unknown>;

/** OrtLoggingLevel: 3 is errors. */
const LOG_ERRORS = 3;
/** GraphOptimizationLevel: everything. */
const OPTIMIZE_ALL = 99;

const VALUE_BYTES = 4;

/** Session setting: record the provider of each node. */
const RECORD_ASSIGNMENT = "session.record_ep_graph_assignment_info";

/** OrtAllocatorType and OrtMemType. */
const ARENA = 1;
const DEFAULT_MEMORY = 0;

/** The host's memory, or that of the first GPU. */
type OrtMemory = "cpu" | "cuda";

interface Runtime {
  readonly api: Api;
  readonly env: Pointer;
  readonly memories: Readonly<Record<OrtMemory, Pointer>>;
  readonly lanes: Lanes;
  /** Address of the OrtApi table. */
  readonly table: Pointer;
  /** Operators of machine code so far, by their names and vector widths. */
  readonly operators: Map<string, CustomOp>;
}

const newCell = () => new BigUint64Array(new ArrayBuffer(8));

/** The pointer that a C function writes into a cell. */
function pointerFrom(write: (cell: BigUint64Array) => void): Pointer {
  const cell = newCell();
  write(cell);
  return Number(cell[0]) as Pointer;
}

/** @throws {Error} with onnxruntime's message if `status` is an error. */
function check({ getErrorMessage, releaseStatus }: Api, status: Pointer | null): void {
  if (status === null) return;
  // The message of a failed allocation ends with a line break.
  const message = `onnxruntime: ${getErrorMessage(status)}`.trim();
  releaseStatus(status);
  throw new Error(message);
}

function apiOf(table: Pointer): Api {
  const functions = Object.entries(FUNCTIONS).map(([name, [index, args, returns]]) => {
    const address = read.ptr(table, index * WORD_BYTES) as Pointer;
    const call = CFunction({ ptr: address, args: [...args], returns: returns ?? "ptr" }) as unknown as Api["createEnv"];
    return [
      name,
      (...given: Argument[]) => {
        const result = call(...given.map((value) => (typeof value === "string" ? zeroEnded(value) : value)));
        return returns === undefined ? check(api, result as Pointer | null) : result;
      },
    ];
  });
  const api: Api = Object.fromEntries(functions);
  return api;
}

/** The package's folder of libraries for this machine. */
export function libraryFolder(): string {
  const folder = join(dirname(Bun.resolveSync("onnxruntime-node/package.json", import.meta.dir)), "bin/napi-v6");
  return join(folder, process.platform, process.arch);
}

function libraryPath(): string {
  const names: Partial<Record<string, string>> = { darwin: "libonnxruntime.1.dylib", win32: "onnxruntime.dll" };
  return join(libraryFolder(), names[process.platform] ?? "libonnxruntime.so.1");
}

/** Loads the library at its first use in this thread. @throws {Error} naming the file if that fails */
const runtime = once((): Runtime => {
  // onnxruntime 1.30 reports usage to its vendor and writes a device id, events and a log to disk. It reads this variable once, when it is loaded.
  setNativeVariable("ORT_DISABLE_TELEMETRY", "1");
  const { symbols } = dlopen(libraryPath(), { OrtGetApiBase: { args: [], returns: "ptr" } });
  const getApi = CFunction({ ptr: read.ptr(symbols.OrtGetApiBase()!, 0) as Pointer, args: ["u32"], returns: "ptr" });
  const table = getApi(API_VERSION) as Pointer | null;
  if (table === null) throw new Error(`${libraryPath()} does not serve version ${API_VERSION} of onnxruntime's API`);
  const api = apiOf(table);
  const env = pointerFrom((cell) => api.createEnv(LOG_ERRORS, "bunraku", cell));
  const memoryInfo = (name: string) =>
    pointerFrom((cell) => api.createMemoryInfo(name, ARENA, 0, DEFAULT_MEMORY, cell));
  const memories = { cpu: memoryInfo("Cpu"), cuda: memoryInfo("Cuda") };
  // One arena (a pool of memory) for all sessions. If each session had an arena, it would keep its peak: half a gigabyte per compiled shape.
  try {
    api.registerAllocator(env, memories.cpu, null);
  } catch {
    // The environment belongs to the process, so in a second thread the arena exists already.
  }
  const lanes = new Lanes(read.ptr(table, RUN * WORD_BYTES));
  return { api, env, memories, lanes, table, operators: new Map() };
});

/** Releases a tensor when its object is garbage-collected. */
const collected = new FinalizationRegistry<Pointer>((value) => void runtime().api.releaseValue(value));

/** A tensor over existing memory. */
export class OrtTensor {
  readonly handle: Pointer;
  /** Keeps the memory alive. */
  readonly owner: object;

  /** @param address  of the first value */
  constructor(memory: OrtMemory, address: Pointer, { shape, dtype }: Spec, owner: object) {
    const { api, memories } = runtime();
    this.owner = owner;
    const dims = BigInt64Array.from(shape, BigInt);
    const bytes = VALUE_BYTES * sizeOf(shape);
    const dimsPointer = dims.length === 0 ? null : dims;
    const type = ELEMENT_TYPES[dtype];
    this.handle = pointerFrom((cell) =>
      api.createTensor(memories[memory], address, bytes, dimsPointer, dims.length, type, cell),
    );
    collected.register(this, this.handle);
  }
}

interface SessionOptions {
  /** Default: the CPU. */
  readonly device?: Device;
  readonly threads: number;
  /** Let `record` work if all nodes run on the GPU. Default: false. */
  readonly records?: boolean;
  /** On cuda, round the factors of products to 10 bits of mantissa. Default: false. */
  readonly tf32?: boolean;
  /** Operators of machine code that the model uses, by their names. */
  readonly operators?: ReadonlyMap<string, MachineCodeOperator>;
  /** Floats in a vector of machine code; null for no machine code. */
  readonly vectorWidth?: VectorWidth | null;
}

/** Lets a GPU compute the nodes that it supports. @throws {Error} if the GPU or its provider is missing */
function appendProvider(settings: Pointer, { device, records = false, tf32 = false }: SessionOptions): void {
  const { api } = runtime();
  api.addSessionConfigEntry(settings, RECORD_ASSIGNMENT, "1");
  if (device === "webgpu") {
    try {
      // The provider chooses the fastest adapter itself.
      api.appendProvider(settings, "WebGPU", null, null, 0);
    } catch (cause) {
      const reason = (cause as Error).message.trim().split(" was false. ").at(-1);
      const advice = "the GPU's driver may be missing, or too old (Mesa 25 works, Mesa 22 does not)";
      throw new Error(`device webgpu: ${reason}; ${advice}`, { cause });
    }
    return;
  }
  const options = pointerFrom((cell) => api.createCudaOptions(cell));
  try {
    const chosen = { use_tf32: tf32 ? "1" : "0", enable_cuda_graph: records ? "1" : "0" };
    const [keys, values] = [cStrings(Object.keys(chosen)), cStrings(Object.values(chosen))];
    api.updateCudaOptions(options, keys.pointers, values.pointers, keys.strings.length);
    api.appendCuda(settings, options);
  } finally {
    api.releaseCudaOptions(options);
  }
}

/** Lets a session use operators of machine code. @returns their domain, which must outlive the session */
function addOperators(
  settings: Pointer,
  { operators = new Map(), vectorWidth = null }: SessionOptions,
): Pointer | null {
  if (vectorWidth === null || operators.size === 0) return null;
  const { api, table, operators: made } = runtime();
  const domain = pointerFrom((cell) => api.createDomain("bunraku", cell));
  for (const [name, operator] of operators) {
    const { address } = made.getOrInsertComputed(`${name} ${vectorWidth}`, () =>
      makeOperator(name, operator, vectorWidth, table),
    );
    api.addOperator(domain, address);
  }
  api.addDomain(settings, domain);
  return domain;
}

/** The operator of each node that runs on the CPU. */
function nodesOnCpu(session: Pointer): string[] {
  const { api } = runtime();
  const textFrom = (write: (cell: BigUint64Array) => void) => new CString(pointerFrom(write)).toString();
  const listFrom = (write: (list: BigUint64Array, count: BigUint64Array) => void): Pointer[] => {
    const count = newCell();
    const list = pointerFrom((cell) => write(cell, count));
    return Array.from({ length: Number(count[0]) }, (_, i) => read.ptr(list, WORD_BYTES * i) as Pointer);
  };
  return listFrom((list, count) => api.assignedGraphs(session, list, count))
    .filter((graph) => textFrom((cell) => api.providerOfGraph(graph, cell)) === "CPUExecutionProvider")
    .flatMap((graph) => listFrom((list, count) => api.nodesOfGraph(graph, list, count)))
    .map((node) => textFrom((cell) => api.operatorOfNode(node, cell)));
}

interface Opened {
  readonly session: Pointer;
  /** Domain of the session's operators of machine code; must outlive the session. */
  readonly domain: Pointer | null;
  readonly records: boolean;
}

/** onnxruntime's error contains this text if a session should record, but the GPU cannot compute every node of the model. */
const CANNOT_RECORD = "graph capture";

/** @throws {Error} if onnxruntime refuses the model, or the device is missing. */
function open(model: Uint8Array, options: SessionOptions): Opened {
  const { api, env } = runtime();
  const { device = "cpu", threads, records = false } = options;
  const settings = pointerFrom((cell) => api.createSessionOptions(cell));
  try {
    api.setThreads(settings, threads);
    api.setLogSeverity(settings, LOG_ERRORS);
    // Otherwise a second run allocates all its memory in one new piece, beside the pieces that the first run left in the arena.
    api.disableMemPattern(settings);
    api.setOptimizationLevel(settings, OPTIMIZE_ALL);
    const entries = {
      // Spinning threads would take time from other actors on the same cores.
      "session.intra_op.allow_spinning": "0",
      "session.use_env_allocators": "1",
      // On several threads a separate transpose is faster than one inside the product (lowerings.ts); on one thread it is not.
      ...(threads > 1 && { "optimization.disable_specified_optimizers": "MatmulTransposeFusion" }),
    };
    for (const [name, value] of Object.entries(entries)) api.addSessionConfigEntry(settings, name, value);
    const domain = addOperators(settings, options);
    if (device !== "cpu") appendProvider(settings, options);
    const session = pointerFrom((cell) => api.createSessionFromArray(env, model, model.byteLength, settings, cell));
    return { session, domain, records };
  } catch (error) {
    if (!records || !(error as Error).message.includes(CANNOT_RECORD)) throw error;
    return open(model, { ...options, records: false });
  } finally {
    api.releaseSessionOptions(settings);
  }
}

/** One compiled graph. */
export class OrtSession {
  #handle: Pointer | null;
  readonly #domain: Pointer | null;
  readonly #inputNames: CStrings;
  readonly #outputNames: CStrings;
  /** On a GPU: the operator of each node that runs on the CPU instead. */
  readonly onCpu: readonly string[];
  /** True if `record` works for the calls of this session: a GPU computes all nodes. */
  readonly records: boolean;

  /** @throws {Error} if onnxruntime refuses the model, or the device is missing. */
  constructor(model: Uint8Array, inputs: readonly string[], outputs: readonly string[], options: SessionOptions) {
    const { session, domain, records } = open(model, options);
    this.#handle = session;
    this.#domain = domain;
    this.records = records;
    this.onCpu = (options.device ?? "cpu") === "cpu" ? [] : nodesOnCpu(session);
    this.#inputNames = cStrings(inputs);
    this.#outputNames = cStrings(outputs);
  }

  /** @param inputs, outputs  in the order of the names */
  call(inputs: readonly OrtTensor[], outputs: readonly OrtTensor[]): OrtCall {
    this.expectOpen();
    const handles = (tensors: readonly OrtTensor[]) => BigUint64Array.from(tensors, ({ handle }) => BigInt(handle));
    const [given, results] = [handles(inputs), handles(outputs)];
    return {
      session: this,
      runArguments: [
        BigInt(this.#handle!),
        this.records ? BigInt(notRecordedOptions()) : 0n,
        addressOf(this.#inputNames.pointers),
        addressOf(given),
        BigInt(inputs.length),
        addressOf(this.#outputNames.pointers),
        addressOf(results),
        BigInt(outputs.length),
      ] satisfies RunArguments,
      alive: [inputs, outputs, given, results],
    };
  }

  /** @throws {Error} if this session was released. */
  expectOpen(): void {
    if (this.#handle === null) throw new Error("onnxruntime: this session was released");
  }

  release(): void {
    if (this.#handle === null) return;
    runtime().api.releaseSession(this.#handle);
    if (this.#domain !== null) runtime().api.releaseDomain(this.#domain);
    this.#handle = null;
  }
}

/** A session with its tensors, ready to run. */
export interface OrtCall {
  readonly session: OrtSession;
  readonly runArguments: RunArguments;
  /** Keeps alive the memory that the arguments point at. */
  readonly alive: readonly unknown[];
}

/** Setting of a run: the number under which a session records kernels, or finds recorded kernels. */
const RECORDING = "gpu_graph_id";
const NOT_RECORDED = -1;
let recordings = 0;

/** Options of a run that is not recorded, in a session that can record. */
const notRecordedOptions = once(() => runOptions(NOT_RECORDED));

/** Makes options of a run. They stay until the process ends, and take a few hundred bytes. */
function runOptions(recording: number): Pointer {
  const { api } = runtime();
  const options = pointerFrom((cell) => api.createRunOptions(cell));
  api.addRunConfigEntry(options, RECORDING, `${recording}`);
  return options;
}

/**
 * Records the kernels that a call starts, as a CUDA graph. The returned call starts all of them at once. While recording, onnxruntime runs
 * the call at least twice, so the caller must copy the call's outputs first and restore them afterwards.
 */
export function record(call: OrtCall): OrtCall {
  const [session, , ...others] = call.runArguments;
  const recorded = {
    ...call,
    runArguments: [session, BigInt(runOptions(++recordings)), ...others] satisfies RunArguments,
  };
  runCalls([[recorded]]);
  return recorded;
}

/**
 * Runs the lists in parallel, each in order, on this thread and `lanesMax` - 1 others. Blocks until all are done.
 *
 * @throws {Error} with onnxruntime's message for the first failed call.
 */
export function runCalls(lists: readonly (readonly OrtCall[])[], lanesMax = 1): void {
  const { api, lanes } = runtime();
  for (const { session } of lists.flat()) session.expectOpen();
  const [first, ...others] = lanes.run(
    lists.map((list) => list.map(({ runArguments }) => runArguments)),
    lanesMax,
  );
  for (const status of others) api.releaseStatus(status);
  check(api, first ?? null);
}

const addressOf = (values: BigUint64Array) => (values.length === 0 ? 0n : BigInt(ptr(values)));

/** C strings, and an array of pointers to them. */
interface CStrings {
  readonly strings: readonly Uint8Array[];
  readonly pointers: BigUint64Array;
}

function cStrings(texts: readonly string[]): CStrings {
  const strings = texts.map(zeroEnded);
  return { strings, pointers: BigUint64Array.from(strings, (bytes) => BigInt(ptr(bytes))) };
}

/**
 * onnxruntime's C API through bun:ffi. The library comes from the package onnxruntime-node. That package's own binding copies every
 * output of every run (67 MB for each decode step, docs/decisions.md). Here a tensor is a view of existing memory, and a run writes its
 * outputs into this memory.
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
import {
  API_VERSION,
  type CustomOp,
  ELEMENT_TYPES,
  type MachineCodeOperator,
  makeOperator,
} from "./native/operator.ts";
import { setNativeVariable, zeroEnded } from "./native-environment.ts";

/** Index of `Run` in the OrtApi table; lanes call it. */
const RUN = 9;

/** Index in the OrtApi table, arguments, result. A returned pointer is an error status, or null. */
const FUNCTIONS = {
  getErrorMessage: [2, ["ptr"], "ptr"],
  createEnv: [3, ["i32", "ptr", "ptr"], "ptr"],
  createSessionFromArray: [8, ["ptr", "ptr", "u64", "ptr", "ptr"], "ptr"],
  createSessionOptions: [10, ["ptr"], "ptr"],
  disableMemPattern: [17, ["ptr"], "ptr"],
  setLogSeverity: [22, ["ptr", "i32"], "ptr"],
  setOptimizationLevel: [23, ["ptr", "i32"], "ptr"],
  setThreads: [24, ["ptr", "i32"], "ptr"],
  createDomain: [26, ["ptr", "ptr"], "ptr"],
  addOperator: [27, ["ptr", "ptr"], "ptr"],
  addDomain: [28, ["ptr", "ptr"], "ptr"],
  createRunOptions: [39, ["ptr"], "ptr"],
  createTensor: [49, ["ptr", "ptr", "u64", "ptr", "u64", "i32", "ptr"], "ptr"],
  createMemoryInfo: [68, ["ptr", "i32", "i32", "i32", "ptr"], "ptr"],
  releaseStatus: [93, ["ptr"], "void"],
  releaseSession: [95, ["ptr"], "void"],
  releaseValue: [96, ["ptr"], "void"],
  releaseSessionOptions: [100, ["ptr"], "void"],
  releaseDomain: [101, ["ptr"], "void"],
  registerAllocator: [144, ["ptr", "ptr", "ptr"], "ptr"],
  addSessionConfigEntry: [130, ["ptr", "ptr", "ptr"], "ptr"],
  addRunConfigEntry: [165, ["ptr", "ptr", "ptr"], "ptr"],
  appendCuda: [204, ["ptr", "ptr"], "ptr"],
  createCudaOptions: [205, ["ptr"], "ptr"],
  updateCudaOptions: [206, ["ptr", "ptr", "ptr", "u64"], "ptr"],
  releaseCudaOptions: [208, ["ptr"], "void"],
  appendProvider: [216, ["ptr", "ptr", "ptr", "ptr", "u64"], "ptr"],
  assignedGraphs: [407, ["ptr", "ptr", "ptr"], "ptr"],
  providerOfGraph: [408, ["ptr", "ptr"], "ptr"],
  nodesOfGraph: [409, ["ptr", "ptr", "ptr"], "ptr"],
  operatorOfNode: [412, ["ptr", "ptr"], "ptr"],
} as const satisfies Record<string, readonly [number, readonly FFITypeOrString[], FFITypeOrString]>;

type ApiFunction = (...args: (number | bigint | NodeJS.TypedArray | Pointer | null)[]) => Pointer | null;
type Api = Record<keyof typeof FUNCTIONS, ApiFunction>;

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

/** onnxruntime's names of memories; "Cuda" is the memory of the first GPU. */
const MEMORIES = { cpu: "Cpu", cuda: "Cuda" } as const;
type OrtMemory = keyof typeof MEMORIES;

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

/** A cell that a C function writes a pointer into. */
class Out {
  readonly cell = new BigUint64Array(new ArrayBuffer(8));
  get pointer(): Pointer {
    return Number(this.cell[0]) as Pointer;
  }
}

/** @throws {Error} with onnxruntime's message if `status` is an error. */
function check(api: Api, status: Pointer | null): void {
  if (status === null) return;
  const message = new CString(api.getErrorMessage(status)!).toString();
  api.releaseStatus(status);
  throw new Error(`onnxruntime: ${message}`);
}

/** The package's folder of libraries for this machine. */
export function libraryFolder(): string {
  const folder = join(dirname(Bun.resolveSync("onnxruntime-node/package.json", import.meta.dir)), "bin/napi-v6");
  return join(folder, process.platform, process.arch);
}

function libraryPath(): string {
  const names: Partial<Record<NodeJS.Platform, string>> = {
    darwin: "libonnxruntime.1.dylib",
    win32: "onnxruntime.dll",
  };
  return join(libraryFolder(), names[process.platform] ?? "libonnxruntime.so.1");
}

let loaded: Runtime | undefined;

/** Loads the library at its first use in this thread. @throws {Error} naming the file if that fails */
function runtime(): Runtime {
  if (loaded !== undefined) return loaded;
  // onnxruntime 1.30 reports usage to its vendor and writes a device id, events and a log to disk. It reads this variable once, when it is loaded.
  setNativeVariable("ORT_DISABLE_TELEMETRY", "1");
  const { symbols } = dlopen(libraryPath(), { OrtGetApiBase: { args: [], returns: "ptr" } });
  const getApi = CFunction({ ptr: read.ptr(symbols.OrtGetApiBase()!, 0) as Pointer, args: ["u32"], returns: "ptr" });
  const table = getApi(API_VERSION) as Pointer | null;
  if (table === null) throw new Error(`${libraryPath()} does not serve version ${API_VERSION} of onnxruntime's API`);
  const api = Object.fromEntries(
    Object.entries(FUNCTIONS).map(([name, [index, args, returns]]) => {
      return [name, CFunction({ ptr: read.ptr(table, index * 8) as Pointer, args: [...args], returns })];
    }),
  ) as unknown as Api;
  const env = new Out();
  check(api, api.createEnv(LOG_ERRORS, zeroEnded("bunraku"), env.cell));
  const memories = { cpu: memoryInfo(api, MEMORIES.cpu), cuda: memoryInfo(api, MEMORIES.cuda) };
  // One arena (a pool of memory) for all sessions. If each session had an arena, it would keep its peak: half a gigabyte per compiled shape.
  // The environment belongs to the process. In a second thread this call fails, because the arena exists already.
  const registered = api.registerAllocator(env.pointer, memories.cpu, null);
  if (registered !== null) api.releaseStatus(registered);
  const lanes = new Lanes(read.ptr(table, RUN * 8));
  loaded = { api, env: env.pointer, memories, lanes, table, operators: new Map() };
  return loaded;
}

function memoryInfo(api: Api, name: string): Pointer {
  const made = new Out();
  check(api, api.createMemoryInfo(zeroEnded(name), ARENA, 0, DEFAULT_MEMORY, made.cell));
  return made.pointer;
}

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
    const out = new Out();
    const dimsPointer = dims.length === 0 ? null : dims;
    check(
      api,
      api.createTensor(memories[memory], address, bytes, dimsPointer, dims.length, ELEMENT_TYPES[dtype], out.cell),
    );
    this.handle = out.pointer;
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
function appendProvider(
  api: Api,
  settings: Pointer,
  { device, records = false, tf32 = false }: Pick<SessionOptions, "device" | "records" | "tf32">,
): void {
  check(api, api.addSessionConfigEntry(settings, zeroEnded(RECORD_ASSIGNMENT), zeroEnded("1")));
  if (device === "webgpu") {
    try {
      // The provider chooses the fastest adapter itself.
      check(api, api.appendProvider(settings, zeroEnded("WebGPU"), null, null, 0));
    } catch (cause) {
      const reason = (cause as Error).message.trim().split(" was false. ").at(-1);
      const advice = "the GPU's driver may be missing, or too old (Mesa 25 works, Mesa 22 does not)";
      throw new Error(`device webgpu: ${reason}; ${advice}`, { cause });
    }
    return;
  }
  const options = new Out();
  check(api, api.createCudaOptions(options.cell));
  try {
    const chosen = { use_tf32: tf32 ? "1" : "0", enable_cuda_graph: records ? "1" : "0" };
    const [keys, values] = [Object.keys(chosen).map(zeroEnded), Object.values(chosen).map(zeroEnded)];
    check(api, api.updateCudaOptions(options.pointer, pointers(keys), pointers(values), keys.length));
    check(api, api.appendCuda(settings, options.pointer));
  } finally {
    api.releaseCudaOptions(options.pointer);
  }
}

/** Lets a session use operators of machine code. @returns their domain, which must outlive the session */
function addOperators(
  settings: Pointer,
  { operators = new Map(), vectorWidth = null }: SessionOptions,
): Pointer | null {
  if (vectorWidth === null || operators.size === 0) return null;
  const { api, table, operators: made } = runtime();
  const domain = new Out();
  check(api, api.createDomain(zeroEnded("bunraku"), domain.cell));
  for (const [name, operator] of operators) {
    const { address } = made.getOrInsertComputed(`${name} ${vectorWidth}`, () =>
      makeOperator(name, operator, vectorWidth, table),
    );
    check(api, api.addOperator(domain.pointer, address));
  }
  check(api, api.addDomain(settings, domain.pointer));
  return domain.pointer;
}

/** The operator of each node that runs on the CPU. */
function nodesOnCpu(api: Api, session: Pointer): string[] {
  const [list, count, text] = [new Out(), new Out(), new Out()];
  const each = (): Pointer[] =>
    Array.from({ length: Number(count.cell[0]) }, (_, i) => read.ptr(list.pointer, 8 * i) as Pointer);
  check(api, api.assignedGraphs(session, list.cell, count.cell));
  return each().flatMap((graph) => {
    check(api, api.providerOfGraph(graph, text.cell));
    if (new CString(text.pointer).toString() !== "CPUExecutionProvider") return [];
    check(api, api.nodesOfGraph(graph, list.cell, count.cell));
    return each().map((node) => {
      check(api, api.operatorOfNode(node, text.cell));
      return new CString(text.pointer).toString();
    });
  });
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
  const [made, session] = [new Out(), new Out()];
  check(api, api.createSessionOptions(made.cell));
  const settings = made.pointer;
  try {
    check(api, api.setThreads(settings, threads));
    check(api, api.setLogSeverity(settings, LOG_ERRORS));
    // Otherwise a second run allocates all its memory in one new piece, beside the pieces that the first run left in the arena.
    check(api, api.disableMemPattern(settings));
    check(api, api.setOptimizationLevel(settings, OPTIMIZE_ALL));
    const entries = {
      // Spinning threads would take time from other actors on the same cores.
      "session.intra_op.allow_spinning": "0",
      "session.use_env_allocators": "1",
      // On several threads a separate transpose is faster than one inside the product (lowerings.ts); on one thread it is not.
      ...(threads > 1 && { "optimization.disable_specified_optimizers": "MatmulTransposeFusion" }),
    };
    for (const [name, value] of Object.entries(entries)) {
      check(api, api.addSessionConfigEntry(settings, zeroEnded(name), zeroEnded(value)));
    }
    const domain = addOperators(settings, options);
    if (device !== "cpu") appendProvider(api, settings, options);
    check(api, api.createSessionFromArray(env, model, model.byteLength, settings, session.cell));
    return { session: session.pointer, domain, records };
  } finally {
    api.releaseSessionOptions(settings);
  }
}

/** One compiled graph. */
export class OrtSession {
  #handle: Pointer | null;
  readonly #domain: Pointer | null;
  readonly #inputNames: readonly Uint8Array[];
  readonly #outputNames: readonly Uint8Array[];
  readonly #inputNamePointers: BigUint64Array;
  readonly #outputNamePointers: BigUint64Array;
  /** On a GPU: the operator of each node that runs on the CPU instead. */
  readonly onCpu: readonly string[];

  /** True if `record` works for the calls of this session: a GPU computes all nodes. */
  readonly records: boolean;

  /** @throws {Error} if onnxruntime refuses the model, or the device is missing. */
  constructor(model: Uint8Array, inputs: readonly string[], outputs: readonly string[], options: SessionOptions) {
    const { api } = runtime();
    const { device = "cpu", records = false } = options;
    let opened: Opened;
    try {
      opened = open(model, options);
    } catch (error) {
      if (!records || !(error as Error).message.includes(CANNOT_RECORD)) throw error;
      opened = open(model, { ...options, records: false });
    }
    this.#handle = opened.session;
    this.#domain = opened.domain;
    this.records = opened.records;
    this.onCpu = device === "cpu" ? [] : nodesOnCpu(api, opened.session);
    this.#inputNames = inputs.map(zeroEnded);
    this.#outputNames = outputs.map(zeroEnded);
    this.#inputNamePointers = pointers(this.#inputNames);
    this.#outputNamePointers = pointers(this.#outputNames);
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
        addressOf(this.#inputNamePointers),
        addressOf(given),
        BigInt(inputs.length),
        addressOf(this.#outputNamePointers),
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

let notRecorded: Pointer | undefined;

/** Options of a run that is not recorded, in a session that can record. */
function notRecordedOptions(): Pointer {
  notRecorded ??= runOptions(NOT_RECORDED);
  return notRecorded;
}

/** Makes options of a run. They stay until the process ends, and take a few hundred bytes. */
function runOptions(recording: number): Pointer {
  const { api } = runtime();
  const made = new Out();
  check(api, api.createRunOptions(made.cell));
  check(api, api.addRunConfigEntry(made.pointer, zeroEnded(RECORDING), zeroEnded(`${recording}`)));
  return made.pointer;
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

/** C strings as an array of pointers; the strings must outlive it. */
const pointers = (strings: readonly Uint8Array[]) => BigUint64Array.from(strings, (bytes) => BigInt(ptr(bytes)));

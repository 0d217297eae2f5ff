/**
 * onnxruntime's C API through bun:ffi, on the library that the onnxruntime-node package carries. That package's own binding
 * copies every output of every run, preallocated or not (measured: 67 MB a decode step, docs/log.md); here a tensor is a
 * view of memory we own, and a run writes where it is told.
 *
 * - Memory behind a tensor must outlive it and must not move, so whose it is is kept alive by its `OrtTensor`.
 * - A call that fails throws with onnxruntime's own words.
 * Source: onnxruntime/core/session/onnxruntime_c_api.h. The table of functions only ever grows at its end.
 */
import { CFunction, CString, dlopen, type FFITypeOrString, type Pointer, ptr, read } from "bun:ffi";
import { dirname, join } from "node:path";
import type { Device, ElementType, Spec } from "./engine.ts";
import { sizeOf } from "./graph.ts";
import { type Call as LaneCall, Lanes } from "./lanes.ts";

/** Version of the function table we ask for; every later library serves it too. */
const API_VERSION = 24;

/** Index of `Run`, which lanes call, in the OrtApi table. */
const RUN = 9;

/** Index in the OrtApi table, then arguments and result. Functions that return a pointer return an error status, or null. */
const FUNCTIONS = {
  getErrorMessage: [2, ["ptr"], "ptr"],
  createEnv: [3, ["i32", "ptr", "ptr"], "ptr"],
  createSessionFromArray: [8, ["ptr", "ptr", "u64", "ptr", "ptr"], "ptr"],
  createSessionOptions: [10, ["ptr"], "ptr"],
  enableProfiling: [14, ["ptr", "ptr"], "ptr"],
  disableMemPattern: [17, ["ptr"], "ptr"],
  setLogSeverity: [22, ["ptr", "i32"], "ptr"],
  setOptimizationLevel: [23, ["ptr", "i32"], "ptr"],
  setThreads: [24, ["ptr", "i32"], "ptr"],
  createTensor: [49, ["ptr", "ptr", "u64", "ptr", "u64", "i32", "ptr"], "ptr"],
  createMemoryInfo: [68, ["ptr", "i32", "i32", "i32", "ptr"], "ptr"],
  releaseStatus: [93, ["ptr"], "void"],
  releaseSession: [95, ["ptr"], "void"],
  releaseValue: [96, ["ptr"], "void"],
  releaseSessionOptions: [100, ["ptr"], "void"],
  registerAllocator: [144, ["ptr", "ptr", "ptr"], "ptr"],
  addSessionConfigEntry: [130, ["ptr", "ptr", "ptr"], "ptr"],
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

type Call = (...args: (number | bigint | NodeJS.TypedArray | Pointer | null)[]) => Pointer | null;
type Api = Record<keyof typeof FUNCTIONS, Call>;

/** OrtLoggingLevel: 3 is errors. */
const LOG_ERRORS = 3;
/** GraphOptimizationLevel: everything. */
const OPTIMIZE_ALL = 99;
const ELEMENT_TYPES = { float32: 1, int32: 6 } as const satisfies Record<ElementType, number>;

const VALUE_BYTES = 4;

/** Session setting: keep which node was given to which provider. */
const RECORD_ASSIGNMENT = "session.record_ep_graph_assignment_info";

/** OrtAllocatorType and OrtMemType. */
const ARENA = 1;
const DEFAULT_MEMORY = 0;

/** onnxruntime's names of the memories that tensors lie in. */
const MEMORIES = { cpu: "Cpu", cuda: "Cuda" } as const;
/** What lies in the memory of the first GPU is used where it lies by providers for it. */
export type OrtMemory = keyof typeof MEMORIES;

interface Runtime {
  readonly api: Api;
  readonly env: Pointer;
  readonly memories: Readonly<Record<OrtMemory, Pointer>>;
  readonly lanes: Lanes;
}

const zeroEnded = (text: string) => new TextEncoder().encode(`${text}\0`);

/** A cell that a C function writes a pointer into. */
class Out {
  readonly cell = new BigUint64Array(new ArrayBuffer(8));
  get pointer(): Pointer {
    return Number(this.cell[0]) as Pointer;
  }
}

/** @throws {Error} with onnxruntime's message if `status` is one. */
function check(api: Api, status: Pointer | null): void {
  if (status === null) return;
  const message = new CString(api.getErrorMessage(status)!).toString();
  api.releaseStatus(status);
  throw new Error(`onnxruntime: ${message}`);
}

/** Where the package keeps its libraries for this machine. */
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

/** Loads the library at its first use in this thread. @throws {Error} naming the file if it cannot be. */
function runtime(): Runtime {
  if (loaded !== undefined) return loaded;
  disableTelemetry();
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
  // One arena for all sessions: each of its own would keep its peak for ever, half a gigabyte a compiled shape.
  // The environment is the process's; in a second thread the arena is there already, and this says so.
  const registered = api.registerAllocator(env.pointer, memories.cpu, null);
  if (registered !== null) api.releaseStatus(registered);
  const lanes = new Lanes(read.ptr(table, RUN * 8));
  loaded = { api, env: env.pointer, memories, lanes };
  return loaded;
}

/** Where each system's C library keeps the environment that native code reads. `process.env` of Bun does not reach it. */
const C_LIBRARIES: Partial<Record<NodeJS.Platform, string>> = { linux: "libc.so.6", darwin: "libSystem.B.dylib" };

/**
 * onnxruntime 1.30 sends usage data: it asks for its vendor's host, writes a device id and queued events into the user's cache folder,
 * and a log into the temporary folder. It reads this variable once, as it is loaded.
 */
function disableTelemetry(): void {
  const library = C_LIBRARIES[process.platform];
  if (library === undefined) return;
  const { symbols } = dlopen(library, { setenv: { args: ["ptr", "ptr", "i32"], returns: "i32" } });
  symbols.setenv(ptr(zeroEnded("ORT_DISABLE_TELEMETRY")), ptr(zeroEnded("1")), 1);
}

function memoryInfo(api: Api, name: string): Pointer {
  const made = new Out();
  check(api, api.createMemoryInfo(zeroEnded(name), ARENA, 0, DEFAULT_MEMORY, made.cell));
  return made.pointer;
}

/** Tensors that JavaScript forgot are released. */
const forgotten = new FinalizationRegistry<Pointer>((value) => void runtime().api.releaseValue(value));

/** A tensor over memory of somebody else's. */
export class OrtTensor {
  readonly handle: Pointer;
  /** Whose memory it is: as long as the tensor lives, so does this. */
  readonly owner: object;

  /** @param address  of the first value. */
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
    forgotten.register(this, this.handle);
  }
}

export interface SessionOptions {
  /** The CPU's if left out. */
  readonly device?: Device;
  readonly threads: number;
  /** File prefix for onnxruntime's per-node profile. */
  readonly profile?: string;
}

/** Have a device other than the CPU compute what it can. @throws {Error} if it is not there. */
function appendProvider(api: Api, settings: Pointer, device: Exclude<Device, "cpu">): void {
  check(api, api.addSessionConfigEntry(settings, zeroEnded(RECORD_ASSIGNMENT), zeroEnded("1")));
  if (device === "webgpu") {
    try {
      // Of several adapters it takes the fastest by itself.
      check(api, api.appendProvider(settings, zeroEnded("WebGPU"), null, null, 0));
    } catch (cause) {
      const words = (cause as Error).message.trim().split(" was false. ").at(-1);
      const text = `device webgpu: ${words}; the GPU's driver may be missing, or too old (Mesa 22 is, 25 is not)`;
      throw new Error(text, { cause });
    }
    return;
  }
  const options = new Out();
  check(api, api.createCudaOptions(options.cell));
  try {
    // Otherwise it rounds the factors of products to 10 bits behind the point.
    const [key, value] = [zeroEnded("use_tf32"), zeroEnded("0")];
    check(api, api.updateCudaOptions(options.pointer, pointers([key]), pointers([value]), 1));
    check(api, api.appendCuda(settings, options.pointer));
  } finally {
    api.releaseCudaOptions(options.pointer);
  }
}

/** Operators of a session's nodes that the CPU computes, one for each node. */
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

/** One compiled graph. */
export class OrtSession {
  #handle: Pointer | null;
  readonly #inputNames: readonly Uint8Array[];
  readonly #outputNames: readonly Uint8Array[];
  readonly #inputNamePointers: BigUint64Array;
  readonly #outputNamePointers: BigUint64Array;
  /** On another device than the CPU: operators of the nodes that fell back to the CPU, one for each node. */
  readonly onCpu: readonly string[];

  /** @throws {Error} if onnxruntime refuses the model. */
  constructor(model: Uint8Array, inputs: readonly string[], outputs: readonly string[], options: SessionOptions) {
    const { api, env } = runtime();
    const made = new Out();
    check(api, api.createSessionOptions(made.cell));
    const settings = made.pointer;
    check(api, api.setThreads(settings, options.threads));
    check(api, api.setLogSeverity(settings, LOG_ERRORS));
    // Otherwise a second run takes all its memory in one new piece, beside those that the first run left in the arena.
    check(api, api.disableMemPattern(settings));
    check(api, api.setOptimizationLevel(settings, OPTIMIZE_ALL));
    const entries = {
      // Spinning threads steal time from the other actors on the same cores.
      "session.intra_op.allow_spinning": "0",
      "session.use_env_allocators": "1",
      // On several threads a transposition by itself is faster than inside the product (see lowerings.ts); on one it is not.
      ...(options.threads > 1 && { "optimization.disable_specified_optimizers": "MatmulTransposeFusion" }),
    };
    for (const [name, value] of Object.entries(entries)) {
      check(api, api.addSessionConfigEntry(settings, zeroEnded(name), zeroEnded(value)));
    }
    if (options.profile !== undefined) check(api, api.enableProfiling(settings, zeroEnded(options.profile)));
    const session = new Out();
    const device = options.device ?? "cpu";
    try {
      if (device !== "cpu") appendProvider(api, settings, device);
      check(api, api.createSessionFromArray(env, model, model.byteLength, settings, session.cell));
    } finally {
      api.releaseSessionOptions(settings);
    }
    this.#handle = session.pointer;
    this.onCpu = device === "cpu" ? [] : nodesOnCpu(api, session.pointer);
    this.#inputNames = inputs.map(zeroEnded);
    this.#outputNames = outputs.map(zeroEnded);
    this.#inputNamePointers = pointers(this.#inputNames);
    this.#outputNamePointers = pointers(this.#outputNames);
  }

  /** Tensors in the order of the names. */
  call(inputs: readonly OrtTensor[], outputs: readonly OrtTensor[]): OrtCall {
    this.expectOpen();
    const handles = (tensors: readonly OrtTensor[]) => BigUint64Array.from(tensors, ({ handle }) => BigInt(handle));
    const [given, results] = [handles(inputs), handles(outputs)];
    return {
      session: this,
      words: [
        BigInt(this.#handle!),
        addressOf(this.#inputNamePointers),
        addressOf(given),
        BigInt(inputs.length),
        addressOf(this.#outputNamePointers),
        addressOf(results),
        BigInt(outputs.length),
      ] as unknown as LaneCall,
      alive: [inputs, outputs, given, results],
    };
  }

  /** @throws {Error} if this session was released. */
  expectOpen(): void {
    if (this.#handle === null) throw new Error("onnxruntime: this session was released");
  }

  release(): void {
    if (this.#handle !== null) runtime().api.releaseSession(this.#handle);
    this.#handle = null;
  }
}

/** A session with its tensors, ready to be run. */
export interface OrtCall {
  readonly session: OrtSession;
  readonly words: LaneCall;
  /** What the words point at. */
  readonly alive: readonly unknown[];
}

/**
 * Computes until done: each list in order, the lists side by side, the first of them on this thread.
 *
 * @throws {Error} with onnxruntime's message for the first call that failed.
 */
export function runCalls(lists: readonly (readonly OrtCall[])[]): void {
  const { api, lanes } = runtime();
  for (const { session } of lists.flat()) session.expectOpen();
  const [first, ...others] = lanes.run(lists.map((list) => list.map(({ words }) => words)));
  for (const status of others) api.releaseStatus(status);
  check(api, first ?? null);
}

const addressOf = (words: BigUint64Array) => (words.length === 0 ? 0n : BigInt(ptr(words)));

/** C strings as the array of pointers that C expects. The strings must outlive it. */
const pointers = (strings: readonly Uint8Array[]) => BigUint64Array.from(strings, (bytes) => BigInt(ptr(bytes)));

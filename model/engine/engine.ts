/**
 * The interface of an engine, which runs functions of tfjs tensors on a device. The model's code consists of such functions, so each
 * engine can run it. `compiled` traces a function once and runs the graph; `eager` and `tensorflow` run the function op by op.
 */
import type * as tf from "@tensorflow/tfjs-core";
import { sizeOf, type TypedArray } from "./graph.ts";

export type ElementType = "float32" | "int32";

/** Shape and element type of one named input or output. */
export interface Spec {
  readonly shape: readonly number[];
  readonly dtype: ElementType;
}

export const f32 = (...shape: number[]): Spec => ({ shape, dtype: "float32" });
export const i32 = (...shape: number[]): Spec => ({ shape, dtype: "int32" });

export type Device = "cpu" | "webgpu" | "cuda";

/** A pure function of tensors. It reads no values, does not branch on them, and has static shapes. */
export type TensorFunction = (inputs: Readonly<Record<string, tf.Tensor>>) => Readonly<Record<string, tf.Tensor>>;

/**
 * A tensor that outlives a run. If `Engine.runsReadHostMemory` is true, the tensor is a view of host memory. Otherwise it is a copy on the
 * device, and `Engine.toDevice` and `Engine.toHost` copy between host and device.
 */
export interface DeviceArray extends Spec {
  /** Copies values on a device to the host. @returns the host memory with the current values */
  read(): TypedArray;
  write(values: TypedArray): void;
}

export interface CompiledFunction {
  readonly outputs: Readonly<Record<string, Spec>>;
  /**
   * @param inputs   exactly one array per input of the compiled function.
   * @param outputs  receive the results; an output may be the array of an input of equal shape (in-place update).
   */
  run(inputs: Readonly<Record<string, DeviceArray>>, outputs: Readonly<Record<string, DeviceArray>>): Promise<void>;
  dispose(): Promise<void>;
}

/** A function with its arrays, as `CompiledFunction.run` takes them. Reuse a job: the compiled engine checks the arrays of a job only once. */
export interface Job {
  readonly run: CompiledFunction;
  readonly inputs: Readonly<Record<string, DeviceArray>>;
  readonly outputs: Readonly<Record<string, DeviceArray>>;
  /** True if a second run right after the first writes the same values, although outputs are also inputs. Default: false. */
  readonly repeatable?: boolean;
}

export interface CompileOptions {
  /** The function runs on one thread, in parallel with other functions. Default: false. */
  readonly inLane?: boolean;
  /** The left factors of matrix products have so few rows that packing factors for tiles (AMX) saves no time. Default: false. */
  readonly fewRows?: boolean;
}

export interface CacheShape {
  readonly headWidth: number;
  /** In tokens. */
  readonly capacity: number;
}

/**
 * Which functions of a decoder find a row's caches by the row's slot, an index into caches that all rows share. none: no function; each row of
 * an append has its own cache arrays. appends: only appends, which is fast on a GPU; the rows of a step are the first slots. all: appends and
 * steps, so the rows of a step may be any slots.
 */
export type SlotReaders = "none" | "appends" | "all";

export interface Engine {
  readonly name: "compiled" | "eager" | "tensorflow";
  /** In words: "cpu, 2 threads". */
  readonly device: string;
  /** True if a run reads host memory itself, in place or as a copy: values written there need no `toDevice`. */
  readonly runsReadHostMemory: boolean;
  /** @param backing  memory of the right length; fresh zeros by default. */
  array(spec: Spec, backing?: Float32Array | Int32Array): DeviceArray;
  /** Copies these host values over their copy on the device. */
  toDevice(values: TypedArray): void;
  /** Copies the device's copy of these values back to the host. */
  toHost(values: TypedArray): void;
  /** Frees the device's memory for these values; do not use arrays over them afterwards. */
  release(values: TypedArray): void;
  /** The largest number of functions that can run in parallel. */
  readonly lanesMax: number;
  /** True if functions on one thread round the factors of products (`DeviceOptions.bfloat16Products`). Functions on several threads never do. */
  readonly roundsProducts?: boolean;
  /**
   * True if functions run our machine code. Only machine code reads caches of 16-bit floats (`AttentionShape.halfCaches`).
   *
   * @param inLane  as in `CompileOptions`
   */
  runsMachineCode(inLane: boolean): boolean;
  /** @param inLane  as in `CompileOptions` */
  slotReaders(caches: CacheShape, inLane: boolean): SlotReaders;
  /** Best number of values of a long vector to process at once: they fit into a core's cache, or into a GPU's spare memory. */
  readonly valuesPerPiece: number;
  compile(
    name: string,
    build: TensorFunction,
    inputs: Readonly<Record<string, Spec>>,
    options?: CompileOptions,
  ): Promise<CompiledFunction>;
  /** Runs lists in parallel on `lanesMax` threads, each list in order. No list may write what another list reads or writes. */
  runLanes(lists: readonly (readonly Job[])[]): Promise<void>;
}

/** Largest model that runs in lanes: each lane needs a gradient as large as the model. For larger models, threads share each product. */
const LANE_MODEL_BYTES_MAX = 128 * 2 ** 20;

/** Number of lanes for a model with these parameters. @throws {RangeError} if the engine rounds products and the model is too large for lanes */
export function lanesFor(
  { lanesMax, roundsProducts = false }: Pick<Engine, "lanesMax" | "roundsProducts">,
  ...parameters: readonly Pick<Float32Array, "byteLength">[]
): number {
  const bytes = parameters.reduce((sum, { byteLength }) => sum + byteLength, 0);
  if (bytes <= LANE_MODEL_BYTES_MAX) return lanesMax;
  if (!roundsProducts || lanesMax === 1) return 1;
  const megabytes = (bytes: number) => `${Math.ceil(bytes / 2 ** 20)} MiB`;
  throw new RangeError(
    `with ${lanesMax} threads, engine.bfloat16Products takes a model of at most ${megabytes(LANE_MODEL_BYTES_MAX)} of parameters, got ` +
      `${megabytes(bytes)}; set it to none, or set engine.threads to 1`,
  );
}

/** Number of lists of jobs for this many lanes. For several lanes there is one list more than lanes, so a lane that ends a job finds a free list. */
export const listsFor = (lanes: number): number => (lanes === 1 ? 1 : lanes + 1);

/** The host memory of an array: the given memory, or fresh zeros. @throws {RangeError} if the given memory does not fit the shape. */
export function memoryFor({ shape, dtype }: Spec, backing?: Float32Array | Int32Array): Float32Array | Int32Array {
  const length = sizeOf(shape);
  const values = backing ?? (dtype === "float32" ? new Float32Array(length) : new Int32Array(length));
  if (values.length === length) return values;
  throw new RangeError(`an array of shape [${shape}] needs ${length} values, its memory holds ${values.length}`);
}

/** @throws {Error} naming every missing, extra or wrongly shaped array. */
export function checkArrays(
  what: string,
  expected: Readonly<Record<string, Spec>>,
  given: Readonly<Record<string, DeviceArray>>,
): void {
  const faults: string[] = [];
  for (const [name, spec] of Object.entries(expected)) {
    const array = given[name];
    if (array === undefined) faults.push(`${name} is missing`);
    else if (array.dtype !== spec.dtype || array.shape.join() !== spec.shape.join())
      faults.push(`${name} is ${array.dtype}[${array.shape}], expected ${spec.dtype}[${spec.shape}]`);
  }
  for (const name of Object.keys(given)) if (!(name in expected)) faults.push(`${name} is not expected`);
  if (faults.length > 0) throw new Error(`${what}: ${faults.join("; ")}`);
}

/**
 * Where tensor functions run. The model is written once as functions of tfjs tensors; an engine makes such a function
 * runnable on some device. `eager` runs it op by op on a tfjs backend; `compiled` traces it once and runs the graph.
 */
import type * as tf from "@tensorflow/tfjs-core";
import { sizeOf, type TypedArray } from "./graph.ts";

export type ElementType = "float32" | "int32";

/** Shape and type of one named input. */
export interface Spec {
  readonly shape: readonly number[];
  readonly dtype: ElementType;
}

export const f32 = (...shape: number[]): Spec => ({ shape, dtype: "float32" });
export const i32 = (...shape: number[]): Spec => ({ shape, dtype: "int32" });

/** What computes the nodes of a traced graph. */
export type Device = "cpu" | "webgpu" | "cuda";

/** A pure function of tensors: no reading of values, no branching on them, static shapes. */
export type TensorFunction = (inputs: Readonly<Record<string, tf.Tensor>>) => Readonly<Record<string, tf.Tensor>>;

/**
 * A tensor that outlives a run, where the engine wants it. On a CPU it is the host memory that it was made over, so that
 * weights in shared memory are used where they lie. A GPU has a twin of that memory, and what was written to one of the two is
 * seen in the other after `Engine.toDevice` or `Engine.toHost`.
 */
export interface DeviceArray extends Spec {
  /** The current contents; on a CPU the live memory, elsewhere a copy. */
  read(): TypedArray;
  write(values: TypedArray): void;
}

export interface CompiledFunction {
  /** What it computes, by name. */
  readonly outputs: Readonly<Record<string, Spec>>;
  /**
   * @param inputs   one array per input named at compile time; none left out, none added.
   * @param outputs  receive the results; an output may be the very array of an input of equal shape (in-place update).
   */
  run(inputs: Readonly<Record<string, DeviceArray>>, outputs: Readonly<Record<string, DeviceArray>>): Promise<void>;
  dispose(): Promise<void>;
}

/** A function with its arrays, as `CompiledFunction.run` takes them. A job that runs often is best kept: it is checked once. */
export interface Job {
  readonly run: CompiledFunction;
  readonly inputs: Readonly<Record<string, DeviceArray>>;
  readonly outputs: Readonly<Record<string, DeviceArray>>;
}

export interface Engine {
  readonly name: "compiled" | "eager" | "tensorflow";
  /** For people: "cpu, 2 threads". */
  readonly device: string;
  /** @param backing  memory to use, of the right length; fresh zeros when left out. */
  array(spec: Spec, backing?: Float32Array | Int32Array): DeviceArray;
  /** Host memory was written to: the arrays over it, of which there must be some, hold that from now on. */
  toDevice(values: TypedArray): void;
  /** Host memory takes what the arrays over it hold. */
  toHost(values: TypedArray): void;
  /** No array over this memory is used any more. */
  release(values: TypedArray): void;
  /** Functions that can run side by side; 1 where they cannot. */
  readonly lanes: number;
  /** Most values of a long vector that are best worked on together: what a core's cache holds, or a GPU's spare memory. */
  readonly pieceValues: number;
  /** @param inLane  the function is for one lane: it computes on one thread, beside others. */
  compile(
    name: string,
    build: TensorFunction,
    inputs: Readonly<Record<string, Spec>>,
    inLane?: boolean,
  ): Promise<CompiledFunction>;
  /** At most `lanes` lists, side by side, each in order. No list may write what another one reads or writes. */
  runLanes(lists: readonly (readonly Job[])[]): Promise<void>;
}

/** Largest model that lanes compute side by side, each with a gradient of its own; of a larger one, threads share each product. */
const LANE_MODEL_BYTES_MAX = 128 * 2 ** 20;

/** Lanes for a model of these parameters. */
export function lanesFor({ lanes }: Engine, ...parameters: readonly Float32Array[]): number {
  const bytes = parameters.reduce((sum, { byteLength }) => sum + byteLength, 0);
  return bytes > LANE_MODEL_BYTES_MAX ? 1 : lanes;
}

/**
 * The memory of an array on a CPU: what was given, or fresh zeros.
 *
 * @throws {RangeError} if what was given has another length than the shape.
 */
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

/**
 * A tfjs backend that records instead of computing: kernel calls become nodes of a `Graph`. Gradients work too, because
 * tfjs' autodiff calls kernels.
 */
import * as tf from "@tensorflow/tfjs-core";
import type { Device, Spec, TensorFunction } from "./engine.ts";
import {
  type Attribute,
  type Constant,
  type DType,
  type Graph,
  type Node,
  type Port,
  prune,
  type TypedArray,
} from "./graph.ts";
import type { Instructions } from "./native/machine.ts";
import type { MachineCodeOperator } from "./native/operator.ts";
import { once } from "./once.ts";

class Recorder {
  readonly #nodes: Node[] = [];
  readonly #constants = new Map<string, Constant>();
  /** Outputs of each node, by its operator, inputs and attributes. */
  readonly #emitted = new Map<string, string[]>();
  #count = 0;

  /** Adds a node, unless there is an equal one. @returns the names of its outputs */
  emit(
    op: string,
    inputs: readonly string[],
    outputCount = 1,
    attributes: Readonly<Record<string, Attribute>> = {},
    domain: Node["domain"] = "",
  ): string[] {
    const key = JSON.stringify([domain, op, inputs, attributes, outputCount]);
    return this.#emitted.getOrInsertComputed(key, () => {
      const outputs = Array.from({ length: outputCount }, () => `t${this.#count++}`);
      this.#nodes.push({ op, domain, inputs, outputs, attributes });
      return outputs;
    });
  }

  /** Adds a node of machine code. @param sizes  the sizes in which this kernel differs from other kernels of the same name */
  emitMachineCode(name: string, sizes: object, inputs: readonly string[], machineCode: MachineCodeOperator): string[] {
    const op = [name, ...Object.values(sizes)].join("_");
    const outputs = machineCode.outputs.map(() => `t${this.#count++}`);
    this.#nodes.push({ op, domain: "bunraku", inputs, outputs, attributes: {}, machineCode });
    return outputs;
  }

  constant(shape: readonly number[], dtype: DType, values: Constant["values"]): string {
    // Equal constants have one name, so that `emit` finds equal nodes. The name of a long constant contains a hash of its values.
    const text = (value: number | bigint) => (Object.is(value, -0) ? "-0" : `${value}`);
    const content = values.length <= 256 ? Array.from(values, text).join("_") : `hash_${Bun.hash(values)}`;
    const name = `c_${dtype}_${shape.join("x")}_${content}`;
    if (!this.#constants.has(name)) this.#constants.set(name, { shape, dtype, values: values.slice() as TypedArray });
    return name;
  }

  ints(values: readonly number[]): string {
    return this.constant([values.length], "int64", BigInt64Array.from(values.map(BigInt)));
  }

  float(value: number): string {
    return this.constant([], "float32", Float32Array.of(value));
  }

  /** @param results  each output port with its value. A value takes the name of its first port; further ports are copies. */
  finish(inputs: readonly Port[], results: readonly { readonly port: Port; readonly value: string }[]): Graph {
    const produced = new Set(this.#nodes.flatMap((node) => node.outputs));
    const renamed = new Map<string, string>();
    const copies: Node[] = [];
    for (const { port, value } of results) {
      if (produced.has(value) && !renamed.has(value)) renamed.set(value, port.name);
      else copies.push({ op: "Identity", domain: "", inputs: [value], outputs: [port.name], attributes: {} });
    }
    const rename = (name: string) => renamed.get(name) ?? name;
    const nodes = [...this.#nodes, ...copies].map((node) => ({
      ...node,
      inputs: node.inputs.map(rename),
      outputs: node.outputs.map(rename),
    }));
    return prune({ inputs, outputs: results.map(({ port }) => port), nodes, constants: this.#constants });
  }
}

/** A backend for graphs of one target. A lowering adds its nodes through this backend. */
class TraceBackend extends tf.KernelBackend {
  readonly target: Target;
  recorder = new Recorder();
  bfloat16Products: Bfloat16Products = "none";
  /** A function for each tensor, which returns the tensor's name in the graph. */
  readonly data = new tf.DataStorage<() => string>(this, tf.engine());

  constructor(target: Target) {
    super();
    this.target = target;
  }

  /** The graph's name of a tensor. */
  readonly name = ({ dataId }: tf.TensorInfo): string => this.data.get(dataId)();

  /** A tensor for the graph's value `name`. */
  tensor(name: string, shape: readonly number[], dtype: tf.DataType = "float32"): tf.TensorInfo {
    return { dataId: this.#put(() => name), shape: [...shape], dtype };
  }

  /** A tensor whose node is added when another node uses the tensor. @param emit  adds the node, and returns the tensor's name */
  later(shape: readonly number[], emit: () => string): tf.TensorInfo {
    return { dataId: this.#put(once(emit)), shape: [...shape], dtype: "float32" };
  }

  #put(name: () => string): tf.DataId {
    const id = {};
    this.data.set(id, name);
    return id;
  }

  override write(values: tf.backend_util.BackendValues, shape: number[], dtype: tf.DataType): tf.DataId {
    const id = {};
    this.move(id, values, shape, dtype);
    return id;
  }

  /** A literal of the program becomes a constant when a node uses it. tfjs' bool is int32 here, because tfjs' kernels do arithmetic on bools. */
  override move(id: tf.DataId, values: tf.backend_util.BackendValues, shape: number[], dtype: tf.DataType): void {
    const numbers = values as ArrayLike<number>;
    const constant = () =>
      dtype === "float32"
        ? this.recorder.constant(shape, "float32", Float32Array.from(numbers))
        : this.recorder.constant(shape, "int32", Int32Array.from(numbers));
    this.data.set(id, once(constant));
  }

  override readSync(): never {
    throw new Error("a traced function read a tensor's value; use operations on tensors instead");
  }
  override async read(): Promise<never> {
    return this.readSync();
  }
  override disposeData(): boolean {
    return true;
  }
  override incRef(): void {}
  override numDataIds(): number {
    return this.data.numDataIds();
  }
  override floatPrecision(): 32 {
    return 32;
  }
}

/**
 * The matrix products whose factors a graph rounds to bfloat16. gradients: each `gradientProduct` (policy/ops.ts). all: each `linear` too.
 * Only graphs for AVX-512 and AMX read this.
 */
export type Bfloat16Products = "none" | "gradients" | "all";

/** What a graph is for: a device, or a CPU that runs our machine code. */
export type Target = Device | Instructions;

/** The targets whose graphs have machine code. */
export const MACHINE_CODE = ["AVX2", "AVX-512", "AMX"] as const satisfies Target[];

/** A backend for each target, because targets differ in their operators. */
const TARGETS = ["cpu", "webgpu", "cuda", ...MACHINE_CODE] as const satisfies Target[];
const backendName = (target: Target) => `trace for ${target}`;
for (const target of TARGETS) tf.registerBackend(backendName(target), () => new TraceBackend(target));
const backend = () => tf.engine().backend as TraceBackend;

/** What a lowering can use. */
export type LoweringContext = Omit<TraceBackend, keyof tf.KernelBackend>;

type Lowered = tf.TensorInfo | tf.TensorInfo[];

/** Turns a call of a tfjs kernel into ONNX nodes. `A` is the kernel's attributes, as tfjs declares them (`tf.SliceAttrs` and so on). */
export type Lowering<A, Result extends Lowered | null = Lowered> = (
  inputs: Readonly<Record<string, tf.TensorInfo>>,
  attributes: A,
  to: LoweringContext,
) => Result;

/** The kernel function that tfjs calls for a lowering. */
const kernelFunction =
  <A, Result extends Lowered | null>(lowering: Lowering<A, Result>) =>
  ({ inputs, attrs }: Parameters<tf.KernelFunc>[0]): Result =>
    lowering(inputs as Record<string, tf.TensorInfo>, attrs as A, backend());

/**
 * Registers the lowering of a tfjs kernel.
 *
 * @param targets  the targets that have this kernel. On other targets `fused` (policy/ops.ts) runs the kernel's definition.
 */
export function lower<A = object>(
  kernelName: string,
  lowering: Lowering<A>,
  targets: readonly Target[] = TARGETS,
): void {
  const kernelFunc = kernelFunction(lowering);
  for (const target of targets) tf.registerKernel({ kernelName, backendName: backendName(target), kernelFunc });
}

/** Registers a lowering that runs before the kernel's present lowering. If the new one returns null, the present one runs. */
export function lowerFirst<A = object>(
  kernelName: string,
  lowering: Lowering<A, Lowered | null>,
  targets: readonly Target[],
): void {
  const first = kernelFunction(lowering);
  for (const target of targets) {
    const name = backendName(target);
    const general = tf.getKernel(kernelName, name);
    tf.unregisterKernel(kernelName, name);
    tf.registerKernel({ ...general, kernelFunc: (call) => first(call) ?? general.kernelFunc(call) });
  }
}

/**
 * Records the graph of `build`.
 *
 * @returns the graph; its inputs are named as in `inputs`, its outputs `out.NAME` for each key of the result.
 */
export function trace(
  build: TensorFunction,
  inputs: Readonly<Record<string, Spec>>,
  target: Target = "cpu",
  bfloat16Products: Bfloat16Products = "none",
): { graph: Graph; outputs: Record<string, Spec> } {
  const before = tf.engine().backendName;
  void tf.engine().setBackend(backendName(target)); // All backends are synchronous.
  const traced = backend();
  traced.recorder = new Recorder();
  traced.bfloat16Products = bfloat16Products;
  const ports = Object.entries(inputs).map(([name, spec]) => ({ name, ...spec }));
  const outputs: Record<string, Spec> = {};
  const results: { port: Port; value: string }[] = [];
  try {
    tf.tidy(() => {
      const tensors = ports.map(({ name, shape, dtype }) => {
        const info = traced.tensor(name, shape, dtype);
        return [name, tf.engine().makeTensorFromTensorInfo(info)] as const;
      });
      for (const [name, tensor] of Object.entries(build(Object.fromEntries(tensors)))) {
        const dtype = tensor.dtype === "float32" ? "float32" : "int32";
        outputs[name] = { shape: tensor.shape, dtype };
        results.push({ port: { name: `out.${name}`, shape: tensor.shape, dtype }, value: traced.name(tensor) });
      }
    });
    return { graph: traced.recorder.finish(ports, results), outputs };
  } finally {
    if (before) void tf.engine().setBackend(before);
  }
}

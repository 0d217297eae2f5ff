/**
 * TensorFlow's C API through bun:ffi, with the interface that the kernels of @tensorflow/tfjs-node-gpu call. This file replaces that
 * package's native addon, works with any libtensorflow and needs no compiler.
 *
 * - A tensor is an id; the caller frees it with `deleteTensor`.
 * - A failed call throws TensorFlow's message. For a failed allocation TensorFlow has no message, so this file has its own message.
 * Sources: tensorflow/c/c_api.h, tensorflow/c/eager/c_api.h; tfjs-node-gpu, binding/tfjs_backend.cc.
 */
import { dlopen, type Pointer, ptr, toArrayBuffer } from "bun:ffi";
import { setNativeVariable, zeroEnded } from "../native-environment.ts";
import { ProtobufMessage } from "../protobuf.ts";

const FUNCTIONS = {
  TF_Version: { args: [], returns: "cstring" },
  TF_NewStatus: { args: [], returns: "ptr" },
  TF_GetCode: { args: ["ptr"], returns: "i32" },
  TF_Message: { args: ["ptr"], returns: "cstring" },
  TF_AllocateTensor: { args: ["i32", "ptr", "i32", "u64"], returns: "ptr" },
  TF_DeleteTensor: { args: ["ptr"], returns: "void" },
  TF_TensorByteSize: { args: ["ptr"], returns: "u64" },
  TF_TensorData: { args: ["ptr"], returns: "ptr" },
  TF_DeviceListCount: { args: ["ptr"], returns: "i32" },
  TF_DeviceListName: { args: ["ptr", "i32", "ptr"], returns: "cstring" },
  TF_DeviceListType: { args: ["ptr", "i32", "ptr"], returns: "cstring" },
  TF_DeleteDeviceList: { args: ["ptr"], returns: "void" },
  TFE_NewContextOptions: { args: [], returns: "ptr" },
  TFE_ContextOptionsSetConfig: { args: ["ptr", "ptr", "u64", "ptr"], returns: "void" },
  TFE_DeleteContextOptions: { args: ["ptr"], returns: "void" },
  TFE_NewContext: { args: ["ptr", "ptr"], returns: "ptr" },
  TFE_ContextListDevices: { args: ["ptr", "ptr"], returns: "ptr" },
  TFE_NewTensorHandle: { args: ["ptr", "ptr"], returns: "ptr" },
  TFE_DeleteTensorHandle: { args: ["ptr"], returns: "void" },
  TFE_TensorHandleDataType: { args: ["ptr"], returns: "i32" },
  TFE_TensorHandleNumDims: { args: ["ptr", "ptr"], returns: "i32" },
  TFE_TensorHandleDim: { args: ["ptr", "i32", "ptr"], returns: "i64" },
  TFE_TensorHandleResolve: { args: ["ptr", "ptr"], returns: "ptr" },
  TFE_TensorHandleCopyToDevice: { args: ["ptr", "ptr", "ptr", "ptr"], returns: "ptr" },
  TFE_NewOp: { args: ["ptr", "ptr", "ptr"], returns: "ptr" },
  TFE_DeleteOp: { args: ["ptr"], returns: "void" },
  TFE_OpSetDevice: { args: ["ptr", "ptr", "ptr"], returns: "void" },
  TFE_OpAddInput: { args: ["ptr", "ptr", "ptr"], returns: "void" },
  TFE_OpSetAttrType: { args: ["ptr", "ptr", "i32"], returns: "void" },
  TFE_OpSetAttrBool: { args: ["ptr", "ptr", "u8"], returns: "void" },
  TFE_OpSetAttrInt: { args: ["ptr", "ptr", "i64"], returns: "void" },
  TFE_OpSetAttrIntList: { args: ["ptr", "ptr", "ptr", "i32"], returns: "void" },
  TFE_OpSetAttrFloat: { args: ["ptr", "ptr", "f32"], returns: "void" },
  TFE_OpSetAttrString: { args: ["ptr", "ptr", "ptr", "u64"], returns: "void" },
  TFE_OpSetAttrShape: { args: ["ptr", "ptr", "ptr", "i32", "ptr"], returns: "void" },
  TFE_Execute: { args: ["ptr", "ptr", "ptr", "ptr"], returns: "void" },
} as const;

type Argument = number | bigint | Pointer | null;
/** A returned pointer is null only with an error status, or if TF_AllocateTensor finds no memory. */
type Symbols = { readonly [Name in keyof typeof FUNCTIONS]: (...args: Argument[]) => Pointer };

/** TF_DataType and TF_AttrType, under the names in the package's kernels. */
const CODES = {
  TF_FLOAT: 1,
  TF_INT32: 3,
  TF_UINT8: 4,
  TF_STRING: 7,
  TF_COMPLEX64: 8,
  TF_INT64: 9,
  TF_BOOL: 10,
  TF_RESOURCE: 20,
  TF_ATTR_STRING: 0,
  TF_ATTR_INT: 1,
  TF_ATTR_FLOAT: 2,
  TF_ATTR_BOOL: 3,
  TF_ATTR_TYPE: 4,
  TF_ATTR_SHAPE: 5,
} as const;

/** A library that does not load, or is no TensorFlow. */
class LibraryError extends Error {
  override readonly name = "LibraryError";
}

/** A result of an operation. */
interface Metadata {
  readonly id: number;
  readonly shape: number[];
  readonly dtype: number;
}

interface OpAttribute {
  readonly name: string;
  readonly type: number;
  readonly value: unknown;
}

type Values = Float32Array | Int32Array | Uint8Array;

export interface LibraryOptions {
  /** Threads of one operation on a CPU. */
  readonly threads: number;
  /** cpu: ignore GPUs; cuda: require one; auto: use the first GPU if there is one. */
  readonly device: "auto" | "cpu" | "cuda";
}

/**
 * ConfigProto of tensorflow/core/protobuf/config.proto. Field 2 is intra_op_parallelism_threads. Field 1 is device_count, here {GPU: 0}.
 * Field 6 is gpu_options, whose field 4 is allow_growth: TensorFlow allocates memory as needed.
 */
export function configProto({ threads, device }: LibraryOptions): Uint8Array {
  const proto = new ProtobufMessage().int(2, threads);
  if (device === "cpu") proto.message(1, new ProtobufMessage().text(1, "GPU").int(2, 0));
  return proto.message(6, new ProtobufMessage().int(4, 1)).finish();
}

export class Library {
  readonly TF_Version: string;
  readonly #gpu: boolean;
  readonly #c: Symbols;
  readonly #status: Pointer;
  readonly #context: Pointer;
  /** TensorFlow's name of the device: ".../device:GPU:0". */
  readonly #device: Uint8Array;
  readonly #tensors = new Map<number, Pointer>();
  #nextId = 0;
  /** C strings by text; never freed, because operations and attributes have few names. */
  readonly #names = new Map<string, Uint8Array>();
  readonly #dims = new BigInt64Array(16);
  #results = new BigUint64Array(16);
  readonly #resultCount = new Int32Array(1);

  /** @throws {LibraryError} if `path` is no TensorFlow, or lacks the device. */
  constructor(path: string, options: LibraryOptions) {
    // Otherwise TensorFlow prints notes at every start.
    if (process.env["TF_CPP_MIN_LOG_LEVEL"] === undefined) setNativeVariable("TF_CPP_MIN_LOG_LEVEL", "2");
    try {
      this.#c = dlopen(path, FUNCTIONS).symbols as unknown as Symbols;
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      throw new LibraryError(`${path} cannot be used as libtensorflow: ${reason}`);
    }
    Object.assign(this, CODES);
    this.TF_Version = String(this.#c.TF_Version());
    this.#status = this.#c.TF_NewStatus()!;
    const settings = this.#c.TFE_NewContextOptions()!;
    const proto = configProto(options);
    this.#c.TFE_ContextOptionsSetConfig(settings, ptr(proto), proto.length, this.#status);
    this.#check("the configuration");
    this.#context = this.#c.TFE_NewContext(settings, this.#status)!;
    this.#c.TFE_DeleteContextOptions(settings);
    this.#check("a context");
    const devices = this.#devices();
    const gpu = options.device === "cpu" ? undefined : devices.find(({ type }) => type === "GPU");
    if (options.device === "cuda" && gpu === undefined) {
      const found = devices.map(({ name }) => name).join(", ");
      throw new LibraryError(`--device cuda: TensorFlow ${this.TF_Version} in ${path} finds no GPU, only ${found}`);
    }
    const chosen = gpu ?? devices.find(({ type }) => type === "CPU");
    if (chosen === undefined) throw new LibraryError(`TensorFlow ${this.TF_Version} in ${path} lists no device`);
    this.#gpu = gpu !== undefined;
    this.#device = this.#text(chosen.name);
  }

  isUsingGpuDevice(): boolean {
    return this.#gpu;
  }

  /** Number of live tensors. */
  getNumOfTensors(): number {
    return this.#tensors.size;
  }

  /** @param given  the values, copied before this returns. @returns the tensor's id */
  createTensor(shape: readonly number[], dtype: number, given: Values | number[]): number {
    const values = Array.isArray(given) ? typed(given, dtype) : given;
    shape.forEach((size, i) => {
      this.#dims[i] = BigInt(size);
    });
    const c = this.#c;
    const tensor = c.TF_AllocateTensor(dtype, ptr(this.#dims), shape.length, values.byteLength);
    if (tensor === null) throw new Error(`tensorflow: no memory for a tensor of ${values.byteLength} bytes`);
    if (values.byteLength > 0) {
      const target = new Uint8Array(toArrayBuffer(c.TF_TensorData(tensor)!, 0, values.byteLength));
      target.set(new Uint8Array(values.buffer, values.byteOffset, values.byteLength));
    }
    let handle = c.TFE_NewTensorHandle(tensor, this.#status)!;
    c.TF_DeleteTensor(tensor);
    this.#check("a tensor");
    // GPU kernels expect int32 tensors in host memory.
    if (this.#gpu && dtype === CODES.TF_FLOAT) {
      const moved = c.TFE_TensorHandleCopyToDevice(handle, this.#context, ptr(this.#device), this.#status)!;
      c.TFE_DeleteTensorHandle(handle);
      this.#check("a tensor on the GPU");
      handle = moved;
    }
    return this.#keep(handle);
  }

  deleteTensor(id: number): void {
    this.#c.TFE_DeleteTensorHandle(this.#handle(id));
    this.#tensors.delete(id);
  }

  /** @returns a copy. */
  tensorDataSync(id: number): Values {
    const c = this.#c;
    const handle = this.#handle(id);
    const tensor = c.TFE_TensorHandleResolve(handle, this.#status)!;
    this.#check("reading a tensor");
    const bytes = Number(c.TF_TensorByteSize(tensor));
    const copy = bytes === 0 ? new ArrayBuffer(0) : toArrayBuffer(c.TF_TensorData(tensor)!, 0, bytes).slice(0);
    c.TF_DeleteTensor(tensor);
    const dtype = c.TFE_TensorHandleDataType(handle);
    if (dtype === CODES.TF_FLOAT) return new Float32Array(copy);
    if (dtype === CODES.TF_INT32) return new Int32Array(copy);
    if (dtype === CODES.TF_BOOL || dtype === CODES.TF_UINT8) return new Uint8Array(copy);
    throw new Error(`tensorflow: a tensor of type ${dtype} cannot be read; float32, int32, bool and uint8 can`);
  }

  executeOp(name: string, attributes: readonly OpAttribute[], inputs: readonly number[], count: number): Metadata[] {
    const c = this.#c;
    const op = c.TFE_NewOp(this.#context, ptr(this.#text(name)), this.#status);
    this.#check(name);
    try {
      c.TFE_OpSetDevice(op, ptr(this.#device), this.#status);
      this.#check(name);
      for (const id of inputs) {
        c.TFE_OpAddInput(op, this.#handle(id), this.#status);
        this.#check(name);
      }
      for (const attribute of attributes) this.#setAttribute(op!, attribute);
      if (this.#results.length < count) this.#results = new BigUint64Array(count);
      this.#resultCount[0] = count;
      c.TFE_Execute(op, ptr(this.#results), ptr(this.#resultCount), this.#status);
      this.#check(name);
    } finally {
      c.TFE_DeleteOp(op);
    }
    return Array.from({ length: count }, (_, i) => this.#metadata(Number(this.#results[i]) as Pointer));
  }

  #metadata(handle: Pointer): Metadata {
    const c = this.#c;
    const rank = c.TFE_TensorHandleNumDims(handle, this.#status);
    const shape = Array.from({ length: rank }, (_, i) => Number(c.TFE_TensorHandleDim(handle, i, this.#status)));
    this.#check("a result");
    return { id: this.#keep(handle), shape, dtype: c.TFE_TensorHandleDataType(handle) };
  }

  #setAttribute(op: Pointer, { name, type, value }: OpAttribute): void {
    const c = this.#c;
    const at = ptr(this.#text(name));
    switch (type) {
      case CODES.TF_ATTR_TYPE:
        c.TFE_OpSetAttrType(op, at, value as number);
        break;
      case CODES.TF_ATTR_BOOL:
        c.TFE_OpSetAttrBool(op, at, value ? 1 : 0);
        break;
      case CODES.TF_ATTR_FLOAT:
        c.TFE_OpSetAttrFloat(op, at, value as number);
        break;
      case CODES.TF_ATTR_INT:
        if (Array.isArray(value))
          c.TFE_OpSetAttrIntList(op, at, addressOf(BigInt64Array.from(value, BigInt)), value.length);
        else c.TFE_OpSetAttrInt(op, at, value as number);
        break;
      case CODES.TF_ATTR_STRING: {
        const bytes = new TextEncoder().encode(value as string);
        c.TFE_OpSetAttrString(op, at, addressOf(bytes), bytes.length);
        break;
      }
      case CODES.TF_ATTR_SHAPE: {
        const sizes = BigInt64Array.from(value as number[], BigInt);
        c.TFE_OpSetAttrShape(op, at, addressOf(sizes), sizes.length, this.#status);
        this.#check(name);
        break;
      }
      default:
        throw new Error(`tensorflow: attribute ${name} has the unknown type ${type}`);
    }
  }

  #devices(): { name: string; type: string }[] {
    const c = this.#c;
    const list = c.TFE_ContextListDevices(this.#context, this.#status);
    this.#check("the list of devices");
    const devices = Array.from({ length: c.TF_DeviceListCount(list) }, (_, i) => ({
      name: String(c.TF_DeviceListName(list, i, this.#status)),
      type: String(c.TF_DeviceListType(list, i, this.#status)),
    }));
    c.TF_DeleteDeviceList(list);
    return devices;
  }

  #keep(handle: Pointer): number {
    const id = this.#nextId++;
    this.#tensors.set(id, handle);
    return id;
  }

  #handle(id: number): Pointer {
    const handle = this.#tensors.get(id);
    if (handle === undefined) throw new Error(`tensorflow: tensor ${id} does not exist, or was deleted`);
    return handle;
  }

  #text(text: string): Uint8Array {
    return this.#names.getOrInsertComputed(text, zeroEnded);
  }

  #check(doing: string): void {
    if (this.#c.TF_GetCode(this.#status) === 0) return;
    throw new Error(`tensorflow: ${doing}: ${this.#c.TF_Message(this.#status)}`);
  }
}

const addressOf = (memory: NodeJS.TypedArray) => (memory.length === 0 ? null : ptr(memory));

/** Plain numbers as a typed array of the dtype. The package's kernels pass an int64 as a typed array already. */
function typed(values: number[], dtype: number): Values {
  if (dtype === CODES.TF_FLOAT) return Float32Array.from(values);
  return dtype === CODES.TF_BOOL ? Uint8Array.from(values) : Int32Array.from(values);
}

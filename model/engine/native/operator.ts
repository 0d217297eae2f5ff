/**
 * Operators of onnxruntime whose kernels are our machine code. onnxruntime takes a table of functions for each operator. Here every
 * function of the table is machine code, so a run calls no JavaScript.
 *
 * - An operator is for one set of shapes, so its kernel contains them as constants.
 * - A kernel runs on one thread.
 *
 * Source: OrtCustomOp in onnxruntime/core/session/onnxruntime_c_api.h; System V ABI for x64. Arguments are in rdi, rsi, rdx, rcx and r8, the
 * result is in rax, and a function restores rbx, rbp, rsp and r12 to r15.
 */
import { type Pointer, ptr, read } from "bun:ffi";
import { zeroEnded } from "../native-environment.ts";
import { type Address, Assembler, at, atIndex, type Label, type VectorWidth } from "./assembler.ts";
import { CACHE_LINE_BYTES, Kernel, WORD_BYTES, wholeCacheLines } from "./kernel.ts";
import { executable } from "./machine.ts";
import { R8, R12, R13, R14, R15, RAX, RBP, RBX, RCX, RDI, RDX, RSI, RSP } from "./registers.ts";

export interface MachineCodeOperator {
  readonly inputs: readonly (keyof typeof ELEMENT_TYPES)[];
  /** Shapes of the results, all of them float32. */
  readonly outputs: readonly (readonly number[])[];
  /** Writes the kernel. It may use every register except rsp. */
  write(kernel: Kernel): void;
}

/** Version of the OrtApi table and of OrtCustomOp. Later libraries support it too. */
export const API_VERSION = 24;
/** Numbers of ONNXTensorElementDataType. */
export const ELEMENT_TYPES = { float32: 1, int32: 6 } as const;

/** Indexes in the OrtApi table of KernelContext_GetInput, KernelContext_GetOutput and GetTensorMutableData. */
const API = { getInput: 90, getOutput: 91, dataOf: 51 } as const;

/** Indexes of the words of OrtCustomOp that this file sets. The first word is the version, the others are functions. */
const TABLE = {
  name: 2,
  provider: 3,
  inputType: 4,
  inputCount: 5,
  outputType: 6,
  outputCount: 7,
  destroy: 9,
  inputCharacteristic: 10,
  outputCharacteristic: 11,
  inputMemory: 12,
  create: 17,
  compute: 18,
  startVersion: 20,
  endVersion: 21,
} as const;
const TABLE_WORDS = 26;
/** Lowest and highest version of an operator that nodes may ask for. */
const [START_VERSION, END_VERSION] = [1, 2 ** 31 - 1];

/** INPUT_OUTPUT_REQUIRED of OrtCustomOpInputOutputCharacteristic. */
const REQUIRED = 0;
/** The value of OrtMemTypeDefault. */
const DEFAULT_MEMORY = 0;

/** An operator for onnxruntime. */
export interface CustomOp {
  /** Address of the OrtCustomOp. */
  readonly address: Pointer;
  /** What must stay in memory while onnxruntime knows the operator. */
  readonly alive: readonly unknown[];
}

/**
 * @param name  the operator's name in nodes
 * @param api   address of the OrtApi table
 * @throws {Error} if the system allows no memory for code
 */
export function makeOperator(
  name: string,
  operator: MachineCodeOperator,
  vectorWidth: VectorWidth,
  api: Pointer,
): CustomOp {
  const text = zeroEnded(name);
  const types = Int32Array.from(operator.inputs, (type) => ELEMENT_TYPES[type]);
  const dims = operator.outputs.map((shape) => BigInt64Array.from(shape, BigInt));
  const functions: Record<keyof typeof TABLE, Uint8Array> = {
    name: constantFunction(address(text)),
    provider: constantFunction(0),
    inputType: lookUpFunction(address(types)),
    inputCount: constantFunction(operator.inputs.length),
    outputType: constantFunction(ELEMENT_TYPES.float32),
    outputCount: constantFunction(operator.outputs.length),
    destroy: constantFunction(0),
    inputCharacteristic: constantFunction(REQUIRED),
    outputCharacteristic: constantFunction(REQUIRED),
    inputMemory: constantFunction(DEFAULT_MEMORY),
    create: createFunction(),
    compute: computeFunction(operator, vectorWidth, dims, api),
    startVersion: constantFunction(START_VERSION),
    endVersion: constantFunction(END_VERSION),
  };
  let place: number = executable(Bun.concatArrayBuffers(Object.values(functions), Number.POSITIVE_INFINITY, true));
  const table = new BigUint64Array(TABLE_WORDS);
  table[0] = BigInt(API_VERSION);
  for (const [word, code] of Object.entries(functions)) {
    table[TABLE[word as keyof typeof TABLE]] = BigInt(place);
    place += code.length;
  }
  return { address: Number(address(table)) as Pointer, alive: [table, text, types, dims] };
}

/** The address of values. Reading `buffer` moves a small array to its final memory, so the address stays valid. */
const address = ({ buffer, byteOffset }: NodeJS.TypedArray): bigint => BigInt(ptr(buffer, byteOffset));

/** A function that returns a constant. */
function constantFunction(value: number | bigint): Uint8Array {
  return functionOf((code) => code.constant(RAX, value));
}

/** A function of an operator and an index, which returns the index's entry in a table of 32-bit integers. */
function lookUpFunction(table: bigint): Uint8Array {
  return functionOf((code) => {
    code.constant(RAX, table);
    code.loadInt32(RAX, atIndex(RAX, RSI, 4));
  });
}

/** CreateKernelV2 writes the address of a kernel's state to the memory at rcx. Our kernels have no state, so any address except 0 is right. */
function createFunction(): Uint8Array {
  return functionOf((code) => {
    code.constant(RAX, 1);
    code.store(at(RCX), RAX);
    code.constant(RAX, 0);
  });
}

/** A function without a frame, whose result is in rax. */
function functionOf(write: (code: Assembler) => void): Uint8Array {
  const code = new Assembler(8);
  write(code);
  code.return();
  return code.finish();
}

/** The registers that a function restores, besides rsp. */
const SAVED = [RBP, RBX, R12, R13, R14, R15];

/**
 * KernelComputeV2, which takes the operator and a context, and returns a status. It asks for the addresses of all tensors, then runs the
 * kernel.
 *
 * The words from rsp on: the tensors' addresses, inputs first; the cell; the kernel's own memory. rbp is the value of rsp after the pushes.
 */
function computeFunction(
  operator: MachineCodeOperator,
  vectorWidth: VectorWidth,
  dims: readonly BigInt64Array[],
  api: Pointer,
): Uint8Array {
  const code = new Assembler(vectorWidth);
  const { inputs, outputs } = operator;
  const tensors = inputs.length + outputs.length;
  const word = (index: number) => at(RSP, WORD_BYTES * index);
  const cell = word(tensors);
  const kernel = new Kernel(
    code,
    inputs.map((_, i) => word(i)),
    outputs.map((_, i) => word(inputs.length + i)),
    WORD_BYTES * (tensors + 1),
  );
  const end = code.label();

  for (const register of SAVED) code.push(register);
  code.move(RBP, RSP);
  const setFrame = code.addConstantLater(RSP);
  code.andConstant(RSP, -CACHE_LINE_BYTES);
  askForTensors(kernel, dims, cell, api, end);
  // The kernel may use rbp, so the cell keeps rbp's value.
  code.store(cell, RBP);
  operator.write(kernel);
  code.clearUpper();
  code.move(RBP, cell);
  code.constant(RAX, 0);
  code.place(end);
  code.move(RSP, RBP);
  for (const register of SAVED.toReversed()) code.pop(register);
  code.return();
  setFrame(-wholeCacheLines(kernel.frame));
  return code.finish();
}

/**
 * Stores the addresses of all tensors in the kernel's words. rsi is the context, which rbx keeps over the calls.
 *
 * @param cell   the word that a function of the API writes an OrtValue to
 * @param error  the code jumps to this label if a status, in rax, is not null
 */
function askForTensors(
  { code, inputs, outputs }: Kernel,
  dims: readonly BigInt64Array[],
  cell: Address,
  api: Pointer,
  error: Label,
): void {
  const call = (index: number) => {
    code.constant(RAX, read.ptr(api, index * WORD_BYTES));
    code.call(RAX);
    code.compareConstant(RAX, 0);
    code.jumpIf("notEqual", error);
  };
  /** Stores the address of the cell's tensor. */
  const storeAddress = (variable: Address) => {
    code.move(RDI, cell);
    code.addressOf(RSI, variable);
    call(API.dataOf);
  };
  code.move(RBX, RSI);
  for (const [i, variable] of inputs.entries()) {
    code.move(RDI, RBX);
    code.constant(RSI, i);
    code.addressOf(RDX, cell);
    call(API.getInput);
    storeAddress(variable);
  }
  for (const [i, variable] of outputs.entries()) {
    const shape = dims[i]!;
    code.move(RDI, RBX);
    code.constant(RSI, i);
    code.constant(RDX, address(shape));
    code.constant(RCX, shape.length);
    code.addressOf(R8, cell);
    call(API.getOutput);
    storeAddress(variable);
  }
}

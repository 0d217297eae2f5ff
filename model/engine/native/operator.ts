/**
 * Operators of onnxruntime whose kernels are machine code of ours. onnxruntime takes a table of functions for each operator; here every
 * function of the table is machine code, so a run calls no JavaScript.
 *
 * - An operator is made for one set of shapes, so its kernel contains them as constants.
 * - A kernel runs on one thread.
 *
 * Source: OrtCustomOp in onnxruntime/core/session/onnxruntime_c_api.h; System V ABI for x64 (rdi, rsi, rdx, rcx; rax is the result).
 */
import { type Pointer, ptr, read } from "bun:ffi";
import {
  Assembler,
  at,
  R8,
  R12,
  R13,
  R14,
  R15,
  RAX,
  RBP,
  RBX,
  RCX,
  RDI,
  RDX,
  RSI,
  RSP,
  type VectorWidth,
} from "./assembler.ts";
import { Kernel } from "./kernel.ts";
import { executable } from "./machine.ts";

type InputType = "float32" | "int32";

export interface MachineOperator {
  readonly inputs: readonly InputType[];
  /** Shapes of the results, all of them float32. */
  readonly outputs: readonly (readonly number[])[];
  /** Writes the kernel. It may use every register except rsp. */
  write(kernel: Kernel): void;
}

const API_VERSION = 24;
const POINTER_BYTES = 8;
const LINE_BYTES = 64;
const ELEMENT_TYPES = { float32: 1, int32: 6 } as const satisfies Record<InputType, number>;

/** Places of functions in the OrtApi table. */
const API = { getInput: 90, getOutput: 91, dataOf: 51 } as const;

/** Words of OrtCustomOp; the first is its version, the others are functions. */
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

/** OrtCustomOpInputOutputCharacteristic: required. OrtMemTypeDefault. */
const [REQUIRED, DEFAULT_MEMORY] = [0, 0];

/** What must stay in memory while onnxruntime knows an operator. */
export interface Registered {
  /** Address of the OrtCustomOp. */
  readonly address: Pointer;
  readonly alive: readonly unknown[];
}

/**
 * @param name  under which nodes name the operator
 * @param api   address of the OrtApi table
 * @throws {Error} if the system allows no memory for code
 */
export function makeOperator(
  name: string,
  operator: MachineOperator,
  vectorWidth: VectorWidth,
  api: Pointer,
): Registered {
  const text = new TextEncoder().encode(`${name}\0`);
  const table = new BigUint64Array(TABLE_WORDS);
  const types = Int32Array.from(operator.inputs, (type) => ELEMENT_TYPES[type]);
  const functions: [word: number, code: Uint8Array][] = [];
  const returns = (word: number, value: number | bigint) => functions.push([word, returning(value)]);
  returns(TABLE.name, address(text));
  returns(TABLE.provider, 0);
  functions.push([TABLE.inputType, lookingUp(address(types))]);
  returns(TABLE.inputCount, operator.inputs.length);
  returns(TABLE.outputType, ELEMENT_TYPES.float32);
  returns(TABLE.outputCount, operator.outputs.length);
  returns(TABLE.destroy, 0);
  returns(TABLE.inputCharacteristic, REQUIRED);
  returns(TABLE.outputCharacteristic, REQUIRED);
  returns(TABLE.inputMemory, DEFAULT_MEMORY);
  functions.push([TABLE.create, creating()]);
  const dims = operator.outputs.map((shape) => BigInt64Array.from(shape, BigInt));
  functions.push([TABLE.compute, computing(operator, vectorWidth, dims, api)]);
  returns(TABLE.startVersion, 1);
  returns(TABLE.endVersion, 2 ** 31 - 1);

  const parts = functions.map(([, code]) => code);
  const start = executable(Bun.concatArrayBuffers(parts, Number.POSITIVE_INFINITY, true));
  table[0] = BigInt(API_VERSION);
  let offset = 0;
  for (const [word, code] of functions) {
    table[word] = BigInt(start + offset);
    offset += code.length;
  }
  return { address: Number(address(table)) as Pointer, alive: [table, text, types, dims] };
}

/** The address of values that stay where they are: JavaScript moves a small array when its buffer is first asked for. */
const address = ({ buffer, byteOffset }: NodeJS.TypedArray): bigint => BigInt(ptr(buffer, byteOffset));

/** A function that returns a constant. */
function returning(value: number | bigint): Uint8Array {
  const code = new Assembler(8);
  code.constant(RAX, value);
  code.return();
  return code.finish();
}

/** A function of an operator and an index that returns the index's entry in a table of 32-bit integers. */
function lookingUp(table: bigint): Uint8Array {
  const code = new Assembler(8);
  code.constant(RAX, table);
  code.loadInt32(RAX, { base: RAX, index: RSI, scale: 4, offset: 0 });
  code.return();
  return code.finish();
}

/** CreateKernelV2: a kernel has no state, so any address but 0 names it. */
function creating(): Uint8Array {
  const code = new Assembler(8);
  code.constant(RAX, 1);
  code.store(at(RCX), RAX);
  code.constant(RAX, 0);
  code.return();
  return code.finish();
}

const SAVED = [RBP, RBX, R12, R13, R14, R15];

/** KernelComputeV2: asks for the addresses of all tensors, then runs the kernel. */
function computing(
  operator: MachineOperator,
  vectorWidth: VectorWidth,
  dims: readonly BigInt64Array[],
  api: Pointer,
): Uint8Array {
  const code = new Assembler(vectorWidth);
  const { inputs, outputs } = operator;
  const tensors = inputs.length + outputs.length;
  const place = (word: number) => at(RSP, POINTER_BYTES * word);
  /** The value that a function of the API writes. */
  const cell = place(tensors);
  const kernel = new Kernel(
    code,
    inputs.map((_, i) => place(i)),
    outputs.map((_, i) => place(inputs.length + i)),
    POINTER_BYTES * (tensors + 1),
  );
  const end = code.label();

  for (const register of SAVED) code.push(register);
  code.move(RBP, RSP);
  const setFrame = code.addConstantLater(RSP);
  code.andConstant(RSP, -LINE_BYTES);
  // The context.
  code.move(RBX, RSI);
  const call = (index: number) => {
    code.constant(RAX, read.ptr(api, index * POINTER_BYTES));
    code.call(RAX);
    code.compareConstant(RAX, 0);
    code.jumpIf("notEqual", end);
  };
  for (let tensor = 0; tensor < tensors; tensor++) {
    const output = tensor - inputs.length;
    code.move(RDI, RBX);
    code.constant(RSI, output < 0 ? tensor : output);
    if (output < 0) {
      code.addressOf(RDX, cell);
      call(API.getInput);
    } else {
      const shape = dims[output]!;
      code.constant(RDX, address(shape));
      code.constant(RCX, shape.length);
      code.addressOf(R8, cell);
      call(API.getOutput);
    }
    code.move(RDI, cell);
    code.addressOf(RSI, place(tensor));
    call(API.dataOf);
  }
  // The kernel may use rbp, so its value waits in the cell.
  code.store(cell, RBP);
  operator.write(kernel);
  code.clearUpper();
  code.move(RBP, cell);
  code.constant(RAX, 0);
  code.place(end);
  code.move(RSP, RBP);
  for (const register of SAVED.toReversed()) code.pop(register);
  code.return();
  setFrame(-Math.ceil(kernel.frame / LINE_BYTES) * LINE_BYTES);
  return code.finish();
}

/**
 * Runs machine code without onnxruntime: small functions, and kernels whose tensors end where memory ends. A tensor lies between guards.
 * NaNs before it must stay. The page behind it allows no access, so a kernel that reads or writes there ends the process.
 */

import { CFunction, dlopen, type Pointer, ptr, toArrayBuffer } from "bun:ffi";
import { expect } from "bun:test";
import { sizeOf } from "../../../../model/engine/graph.ts";
import { type Address, Assembler, at, atIndex, type VectorWidth } from "../../../../model/engine/native/assembler.ts";
import { floatBits, Kernel } from "../../../../model/engine/native/kernel.ts";
import { executable, machineInstructions, vectorWidthOf } from "../../../../model/engine/native/machine.ts";
import type { MachineCodeOperator } from "../../../../model/engine/native/operator.ts";
import {
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
} from "../../../../model/engine/native/registers.ts";
import { describeWhere } from "../../../needs.ts";

type Floats = Float32Array<ArrayBuffer>;
type Words = Int32Array<ArrayBuffer>;

/** What this machine lacks for machine code with vectors of this width; null if it has everything. */
export function lackOf(vectorWidth: VectorWidth): string | null {
  const most = machineInstructions();
  if (most === null) return "no Linux on x64 with AVX2";
  return vectorWidth > vectorWidthOf(most) ? "no AVX-512" : null;
}

/** Describes the tests of `body` for vectors of 8 floats, and for vectors of 16. */
export function describeWidths(name: string, body: (vectorWidth: VectorWidth) => void): void {
  for (const vectorWidth of [8, 16] as const)
    describeWhere(lackOf(vectorWidth), `${name}, ${vectorWidth} floats at once,`, () => body(vectorWidth));
}

/** Describes tests that need tiles. */
export function describeTiles(name: string, body: () => void): void {
  describeWhere(machineInstructions() === "AMX" ? null : "no AMX", `${name}, with tiles,`, body);
}

/** The registers that a function must keep. */
export const SAVED = [RBX, RBP, R12, R13, R14, R15] as const;

/** Where `machineFunction` keeps an argument while the body runs. */
export const argument = (index: number): Address => at(RSP, 8 * index);

/** A function of up to four addresses. The body may use every register except rsp; its rax is the result. */
export function machineFunction(
  vectorWidth: VectorWidth,
  write: (code: Assembler) => void,
): (...addresses: readonly number[]) => bigint {
  const code = new Assembler(vectorWidth);
  for (const register of SAVED) code.push(register);
  for (const register of [RCX, RDX, RSI, RDI]) code.push(register);
  write(code);
  code.clearUpper();
  for (let i = 0; i < 4; i++) code.pop(RCX);
  for (const register of SAVED.toReversed()) code.pop(register);
  code.return();
  return callable(code.finish());
}

export function callable(code: Uint8Array): (...addresses: readonly number[]) => bigint {
  const call = CFunction({ ptr: executable(code), args: ["ptr", "ptr", "ptr", "ptr"], returns: "i64" });
  return (...addresses) => BigInt(call(...Array.from({ length: 4 }, (_, i) => (addresses[i] ?? 0) as Pointer)));
}

/** Memory that stays where it is. */
export const floats = (length: number, value: (i: number) => number = () => 0): Floats => {
  const made = new Float32Array(new ArrayBuffer(4 * length));
  for (let i = 0; i < length; i++) made[i] = value(i);
  return made;
};
export const longs = (length: number): BigInt64Array<ArrayBuffer> => new BigInt64Array(new ArrayBuffer(8 * length));

/** The address of memory that stays where it is. */
export const addressOf = ({ buffer, byteOffset }: NodeJS.TypedArray): number => ptr(buffer, byteOffset);

type Spare = readonly [number, number, number];

/** A function of each number that `write` computes in vectors: in register `x`, with the numbers of `table` and spare registers. */
export const mappedFloats =
  (table: () => number, write: (code: Assembler, x: number, table: number, spare: Spare) => void) =>
  (vectorWidth: VectorWidth, numbers: ArrayLike<number>, x = 0, spare: Spare = [12, 13, 14]): Float32Array => {
    const values = floats(Math.ceil(numbers.length / 16) * 16, (i) => numbers[i] ?? 1);
    const results = floats(values.length);
    machineFunction(vectorWidth, (code) => {
      code.move(RSI, argument(0));
      code.move(RDI, argument(1));
      code.constant(RCX, values.length / vectorWidth);
      code.constant(RBX, table());
      const again = code.label();
      code.place(again);
      code.loadVector(x, at(RSI));
      write(code, x, RBX, spare);
      code.storeVector(at(RDI), x);
      code.addConstant(RSI, 4 * vectorWidth);
      code.addConstant(RDI, 4 * vectorWidth);
      code.addConstant(RCX, -1);
      code.jumpIf("more", again);
      code.constant(RAX, 0);
    })(addressOf(values), addressOf(results));
    return results.slice(0, numbers.length);
  };

const PAGE = 4096;
const [PROT_NONE, PROT_READ, PROT_WRITE] = [0, 1, 2];
const MAP_PRIVATE_ANONYMOUS = 0x22;
/** Bits of the NaNs before a tensor. */
const GUARD = 0x7fc0_dead;

let mapped: ReturnType<typeof memoryFunctions> | undefined;
const memoryFunctions = () =>
  dlopen("libc.so.6", {
    mmap: { args: ["ptr", "u64", "i32", "i32", "i32", "i64"], returns: "ptr" },
    mprotect: { args: ["ptr", "u64", "i32"], returns: "i32" },
    munmap: { args: ["ptr", "u64"], returns: "i32" },
  }).symbols;

/** Memory for a tensor, between guards. */
class Guarded {
  readonly floats: Floats;
  readonly ints: Words;
  readonly address: number;
  readonly #before: Words;
  readonly #start: number;
  readonly #bytes: number;

  constructor(length: number) {
    mapped ??= memoryFunctions();
    const inner = PAGE * Math.ceil((4 * length + 64) / PAGE);
    this.#bytes = inner + 2 * PAGE;
    this.#start = Number(mapped.mmap(null, this.#bytes, PROT_NONE, MAP_PRIVATE_ANONYMOUS, -1, 0));
    const first = (this.#start + PAGE) as Pointer;
    if (mapped.mprotect(first, inner, PROT_READ | PROT_WRITE) !== 0) throw new Error("no memory for a test");
    const memory = toArrayBuffer(first, 0, inner);
    const before = inner - 4 * length;
    this.#before = new Int32Array(memory, 0, before / 4).fill(GUARD);
    this.floats = new Float32Array(memory, before, length);
    this.ints = new Int32Array(memory, before, length);
    this.address = first + before;
  }

  /** @throws {Error} if something before the tensor changed */
  check(what: string): void {
    if (this.#before.some((word) => word !== GUARD)) throw new Error(`the kernel wrote before its ${what}`);
  }

  free(): void {
    mapped!.munmap(this.#start as Pointer, this.#bytes);
  }
}

interface KernelOptions {
  /** What the results, the scratch and the stack hold before the first run. Default: NaN. */
  readonly garbage?: number;
  /** Output, input: pairs that share their memory. */
  readonly same?: readonly (readonly [output: number, input: number])[];
}

/** A kernel with tensors of its own. */
export class TestKernel {
  readonly #inputs: readonly Guarded[];
  readonly #outputs: readonly Guarded[];
  readonly #table: BigInt64Array<ArrayBuffer>;
  readonly #call: (...addresses: readonly number[]) => bigint;
  readonly #sharedInputs: ReadonlySet<number>;

  /** @param inputs  initial values, which also say how long the tensors are */
  constructor(
    operator: MachineCodeOperator,
    vectorWidth: VectorWidth,
    inputs: readonly (Float32Array | Int32Array)[],
    { garbage = Number.NaN, same = [] }: KernelOptions = {},
  ) {
    this.#inputs = inputs.map((values, i) => {
      const made = new Guarded(values.length);
      (operator.inputs[i] === "int32" ? made.ints : made.floats).set(values);
      return made;
    });
    const inputOf = new Map(same);
    this.#sharedInputs = new Set(inputOf.values());
    this.#outputs = operator.outputs.map((shape, i) => {
      const shared = inputOf.get(i);
      if (shared !== undefined) return this.#inputs[shared]!;
      const made = new Guarded(sizeOf(shape));
      made.floats.fill(garbage);
      return made;
    });
    const tensors = [...this.#inputs, ...this.#outputs];
    this.#table = longs(tensors.length);
    for (const [i, { address }] of tensors.entries()) this.#table[i] = BigInt(address);
    this.#call = compileKernel(operator, vectorWidth, garbage);
  }

  setInput(index: number, values: Float32Array | Int32Array): void {
    const input = this.#inputs[index]!;
    (values instanceof Int32Array ? input.ints : input.floats).set(values);
  }

  /** @returns the results, which the next run overwrites */
  run(): readonly Floats[] {
    const before = this.#inputs.map(({ ints }) => Bun.hash(ints));
    this.#call(addressOf(this.#table));
    for (const [i, input] of this.#inputs.entries()) {
      input.check(`input ${i}`);
      if (!this.#sharedInputs.has(i) && Bun.hash(input.ints) !== before[i])
        throw new Error(`the kernel changed its input ${i}`);
    }
    for (const [i, output] of this.#outputs.entries()) output.check(`output ${i}`);
    return this.#outputs.map((output) => output.floats);
  }

  /** Unmaps the tensors' memory. Do not read the results afterwards. */
  free(): void {
    for (const tensor of new Set([...this.#inputs, ...this.#outputs])) tensor.free();
  }
}

/** A function of the address of a table of tensors, inputs first. */
function compileKernel({ inputs, outputs, write }: MachineCodeOperator, vectorWidth: VectorWidth, garbage: number) {
  const tensors = inputs.length + outputs.length;
  return machineFunction(vectorWidth, (code) => {
    const cell = at(RSP, 8 * tensors);
    code.move(RAX, RSP);
    const setFrame = code.addConstantLater(RSP);
    code.andConstant(RSP, -64);
    code.constant(RDX, floatBits(garbage));
    code.constant(RCX, 0);
    const setFloats = code.addConstantLater(RCX);
    const again = code.label();
    code.place(again);
    code.store32(atIndex(RSP, RCX, 4, -4), RDX);
    code.addConstant(RCX, -1);
    code.jumpIf("more", again);
    code.store(cell, RAX);
    for (let i = 0; i < tensors; i++) {
      code.move(RAX, at(RDI, 8 * i));
      code.store(at(RSP, 8 * i), RAX);
    }
    const place = (_: unknown, i: number) => at(RSP, 8 * i);
    const results = outputs.map((_, i) => at(RSP, 8 * (inputs.length + i)));
    const kernel = new Kernel(code, inputs.map(place), results, 8 * (tensors + 1));
    write(kernel);
    code.move(RSP, cell);
    const frame = Math.ceil(kernel.frame / 64) * 64;
    setFrame(-frame);
    setFloats(frame / 4);
  });
}

/** Runs a kernel once. @returns copies of its results */
export function runKernel(
  operator: MachineCodeOperator,
  vectorWidth: VectorWidth,
  inputs: readonly (Float32Array | Int32Array)[],
  options: KernelOptions = {},
): Float32Array[] {
  const kernel = new TestKernel(operator, vectorWidth, inputs, options);
  const results = kernel.run().map((values) => values.slice());
  kernel.free();
  return results;
}

/** Expects equal bits: NaN equals itself, and 0 differs from -0. A failure shows the first difference only: long arrays are slow to print. */
export function expectSameBits(found: Float32Array, expected: Float32Array): void {
  const [a, b] = [bitsOf(found), bitsOf(expected)];
  const first = a.length === b.length ? a.findIndex((bits, i) => bits !== b[i]) : Math.min(a.length, b.length);
  const at = (values: Float32Array) => ({ length: values.length, first, value: values[first] });
  if (first >= 0) expect(at(found)).toEqual({ ...at(expected), first: -1 });
}

/** Expects the same bits, whatever the memory of the results held before. */
export function expectOwnBits(
  operator: MachineCodeOperator,
  vectorWidth: VectorWidth,
  inputs: readonly (Float32Array | Int32Array)[],
): void {
  const [clean, dirty] = [0, Number.NaN].map((garbage) => runKernel(operator, vectorWidth, inputs, { garbage }));
  expect(dirty!.map(bitsOf)).toEqual(clean!.map(bitsOf));
}

/** The bits of floats. */
export const bitsOf = (values: Float32Array): Int32Array => new Int32Array(values.slice().buffer);

/** The table of functions that onnxruntime gets for an operator, called as onnxruntime calls them: with an API of the test's own. */
import { CFunction, CString, type Pointer, read } from "bun:ffi";
import { beforeAll, expect, test } from "bun:test";
import { Assembler, at, atIndex } from "../../../../model/engine/native/assembler.ts";
import { shifted } from "../../../../model/engine/native/kernel.ts";
import { executable } from "../../../../model/engine/native/machine.ts";
import { type CustomOp, type MachineCodeOperator, makeOperator } from "../../../../model/engine/native/operator.ts";
import { R8, R9, RAX, RCX, RDI, RDX, RSI, RSP } from "../../../../model/engine/native/registers.ts";
import { addressOf, argument, describeWidths, floats, longs, machineFunction, SAVED } from "./machine-code.ts";

/** Indexes in the OrtApi table of KernelContext_GetInput, KernelContext_GetOutput and GetTensorMutableData. */
const API = { getInput: 90, getOutput: 91, dataOf: 51 };

/**
 * Words of the test's context, whose address stands for onnxruntime's: tensors, then what the functions shall return, then what they saw.
 * A tensor's address stands for an OrtValue: two words, the address of its data and what GetTensorMutableData shall return.
 */
const WORD = { inputs: 0, outputs: 8, inputStatus: 16, outputStatus: 17, stack: 18, dims: 24, calls: 40 };

const code = (write: (code: Assembler) => void): number => {
  const made = new Assembler(8);
  write(made);
  made.return();
  return executable(made.finish());
};

/** Counts the calls, and keeps all bits of rsp that a call must leave 0. */
function note(code: Assembler): void {
  code.move(RAX, at(RDI, 8 * WORD.calls));
  code.addConstant(RAX, 1);
  code.store(at(RDI, 8 * WORD.calls), RAX);
  // A call pushes 8 bytes.
  code.addressOf(RAX, at(RSP, 8));
  code.andConstant(RAX, 15);
  code.add(RAX, at(RDI, 8 * WORD.stack));
  code.store(at(RDI, 8 * WORD.stack), RAX);
}

function apiTable(): BigInt64Array<ArrayBuffer> {
  const table = longs(100);
  table[API.getInput] = BigInt(
    code((code) => {
      note(code);
      code.move(RAX, atIndex(RDI, RSI, 8));
      code.store(at(RDX), RAX);
      code.move(RAX, at(RDI, 8 * WORD.inputStatus));
      overwrite(code);
    }),
  );
  table[API.getOutput] = BigInt(
    code((code) => {
      note(code);
      code.move(RAX, atIndex(RDI, RSI, 8, 8 * WORD.outputs));
      code.store(at(R8), RAX);
      code.add(RSI, RSI);
      code.store(atIndex(RDI, RSI, 8, 8 * WORD.dims), RDX);
      code.store(atIndex(RDI, RSI, 8, 8 * WORD.dims + 8), RCX);
      code.move(RAX, at(RDI, 8 * WORD.outputStatus));
      overwrite(code);
    }),
  );
  table[API.dataOf] = BigInt(
    code((code) => {
      code.move(RAX, at(RDI));
      code.store(at(RSI), RAX);
      code.move(RAX, at(RDI, 8));
      overwrite(code);
    }),
  );
  return table;
}

/** What a C function may do to the registers that its caller does not expect back. */
function overwrite(code: Assembler): void {
  for (const register of [RCX, RDX, RSI, RDI, R8, R9, 10, 11]) code.constant(register, 0xdead);
}

/** Two inputs and two results; the kernel overwrites every register but rsp, and uses more than a page of stack. */
const operator: MachineCodeOperator = {
  inputs: ["float32", "int32"],
  outputs: [
    [2, 8],
    [3, 1, 1],
  ],
  write(kernel) {
    const { code } = kernel;
    const words = [kernel.word(), kernel.word(), kernel.word()];
    const memory = kernel.memory(5000);
    const word = kernel.word();
    for (const each of words) kernel.set(each, 99);
    kernel.broadcastNumber(2, 3);
    for (let offset = 0; offset < 5000; offset += 4) code.storeFloat(shifted(memory, offset), 2);
    // The memory begins at a cache line: its address is the result's second number.
    code.addressOf(RCX, memory);
    kernel.set(word, 5);
    kernel.advance(word, 2);
    code.move(RAX, kernel.inputs[0]!);
    code.move(RDX, kernel.outputs[0]!);
    code.loadVector(0, at(RAX), 8);
    for (const offset of [0, 4960]) code.storeVector(shifted(memory, offset), 0, 8);
    for (const offset of [0, 4960]) {
      code.loadVector(1, shifted(memory, offset), 8);
      code.storeVector(at(RDX, offset === 0 ? 0 : 32), 1, 8);
    }
    code.move(RAX, kernel.inputs[1]!);
    code.move(RDX, kernel.outputs[1]!);
    code.load32(RSI, at(RAX));
    code.store32(at(RDX), RSI);
    code.store32(at(RDX, 4), RCX);
    code.load32(RSI, word);
    code.store32(at(RDX, 8), RSI);
    for (let register = 0; register < 16; register++) if (register !== RSP) code.constant(register, 0xbad);
  },
};

describeWidths("an operator", (vectorWidth) => {
  /** Held whole, as onnxruntime.ts does: the functions read memory that it keeps. */
  let made: CustomOp;
  beforeAll(() => {
    made = makeOperator("Test_1_2", operator, vectorWidth, addressOf(apiTable()) as Pointer);
  });
  const functionAt = (word: number, ...args: ("ptr" | "u64")[]) =>
    CFunction({ ptr: read.ptr(made.address, 8 * word) as Pointer, args, returns: "i64" });

  /**
   * Runs the operator.
   *
   * @param statuses  of GetInput, GetOutput, and of each tensor's GetTensorMutableData
   * @param shift     bytes by which the caller's stack is lower
   */
  function computed(statuses: { input?: bigint; output?: bigint; data?: readonly bigint[] } = {}, shift = 0) {
    const tensors = [floats(8, (i) => i + 0.5), floats(1), floats(16, () => -1), floats(3, () => -1)];
    new Int32Array(tensors[1]!.buffer)[0] = 1234;
    const values = tensors.map((tensor, i) => {
      const value = longs(2);
      value.set([BigInt(addressOf(tensor)), statuses.data?.[i] ?? 0n]);
      return value;
    });
    const context = longs(48);
    for (const [i, value] of values.entries())
      context[i < 2 ? WORD.inputs + i : WORD.outputs + i - 2] = BigInt(addressOf(value));
    context[WORD.inputStatus] = statuses.input ?? 0n;
    context[WORD.outputStatus] = statuses.output ?? 0n;
    const kept = longs(SAVED.length);
    const vector = floats(8, () => -1);
    const compute = read.ptr(made.address, 8 * 18);
    const status = machineFunction(8, (code) => {
      for (const [i, register] of SAVED.entries()) code.constant(register, 1000 + i);
      code.constant(RDI, 1);
      code.move(RSI, argument(0));
      code.constant(RAX, compute);
      code.addConstant(RSP, -shift);
      code.call(RAX);
      code.addConstant(RSP, shift);
      code.move(RCX, argument(1));
      for (const [i, register] of SAVED.entries()) code.store(at(RCX, 8 * i), register);
      code.move(RCX, argument(2));
      code.storeVector(at(RCX), 1);
    })(addressOf(context), addressOf(kept), addressOf(vector));
    expect([...kept]).toEqual(SAVED.map((_, i) => BigInt(1000 + i)));
    // The values stay in memory until here, and the operator does not write them.
    expect(values.map(([data]) => data)).toEqual(tensors.map((tensor) => BigInt(addressOf(tensor))));
    return { status, results: tensors.slice(2), context, vector };
  }

  test("gives its name, its types and its counts, and requires every tensor of a node", () => {
    expect(read.i32(made.address, 0)).toBe(24);
    expect(new CString(Number(functionAt(2, "ptr")(made.address)) as Pointer).toString()).toBe("Test_1_2");
    // No provider's name: the CPU.
    expect(Number(functionAt(3, "ptr")(made.address))).toBe(0);
    const typeOf = functionAt(4, "ptr", "u64");
    expect([0, 1].map((index) => Number(typeOf(made.address, index)))).toEqual([1, 6]);
    expect(Number(functionAt(5, "ptr")(made.address))).toBe(2);
    expect(Number(functionAt(6, "ptr", "u64")(made.address, 1))).toBe(1);
    expect(Number(functionAt(7, "ptr")(made.address))).toBe(2);
    for (const word of [9, 10, 11, 12]) expect(Number(functionAt(word, "ptr", "u64")(made.address, 1))).toBe(0);
    expect([20, 21].map((word) => Number(functionAt(word, "ptr")(made.address)))).toEqual([1, 2 ** 31 - 1]);
  });

  test("makes a kernel that is not null", () => {
    const kernel = longs(1);
    const create = functionAt(17, "ptr", "ptr", "ptr", "ptr");
    expect(Number(create(made.address, null, null, addressOf(kernel) as Pointer))).toBe(0);
    expect(kernel[0]).not.toBe(0n);
  });

  test("gives its kernel the tensors, and keeps the caller's registers and stack", () => {
    for (const shift of [0, 8, 16, 24, 32, 40, 48, 56]) {
      const { status, results, context } = computed({}, shift);
      expect(status).toBe(0n);
      const row = Array.from({ length: 8 }, (_, i) => i + 0.5);
      expect([...results[0]!]).toEqual([...row, ...row]);
      const [number, place, word] = new Int32Array(results[1]!.buffer);
      expect([number, place! & 63, word]).toEqual([1234, 0, 7]);
      expect([context[WORD.calls], context[WORD.stack]]).toEqual([4n, 0n]);
    }
  });

  test("leaves no number in the upper halves of vectors, which would slow down its caller", () => {
    const { vector } = computed();
    expect([...vector]).toEqual([0.5, 1.5, 2.5, 3.5, 0, 0, 0, 0]);
  });

  test("asks for results of its shapes", () => {
    const { context } = computed();
    const shapes = [0, 1].map((i) => {
      const [place, count] = [Number(context[WORD.dims + 2 * i]), Number(context[WORD.dims + 2 * i + 1])];
      return Array.from({ length: count }, (_, dim) => Number(read.i64(place as Pointer, 8 * dim)));
    });
    expect(shapes).toEqual([
      [2, 8],
      [3, 1, 1],
    ]);
  });

  test.each([
    ["an input", { input: 555n }, 555n, 1n],
    ["a result", { output: 556n }, 556n, 3n],
    ["the data of the first tensor", { data: [557n] }, 557n, 1n],
    ["the data of the last tensor", { data: [0n, 0n, 0n, 558n] }, 558n, 4n],
  ] as const)("returns the status of a failed request for %s, and runs nothing", (_, statuses, expected, calls) => {
    const { status, results, context } = computed(statuses);
    expect([status, context[WORD.calls]]).toEqual([expected, calls]);
    for (const values of results) expect([...values]).toEqual([...values].fill(-1));
  });
});

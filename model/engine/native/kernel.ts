/**
 * The methods that write kernels: memory on the stack, loops, and the pieces of code that several kernels share.
 *
 * - rsp never moves while a kernel runs. So each variable, and each address of a tensor, is 64 bits at a fixed offset from rsp.
 * - A kernel may use every other register. The methods here overwrite rax, rcx and what their comments name.
 */
import { type Address, type Assembler, at } from "./assembler.ts";
import { R14, R15, RAX, RCX, RDI, RSI, RSP } from "./registers.ts";

export const FLOAT_BYTES = 4;
export const WORD_BYTES = 8;
export const CACHE_LINE_BYTES = 64;

/** Bytes, rounded up to whole cache lines. */
export const wholeCacheLines = (bytes: number): number => Math.ceil(bytes / CACHE_LINE_BYTES) * CACHE_LINE_BYTES;

/** The code of one kernel, while it is written. */
export class Kernel {
  readonly code: Assembler;
  /** The variables that hold the addresses of the tensors. */
  readonly inputs: readonly Address[];
  readonly outputs: readonly Address[];
  #frame: number;
  /** Memory of the number that `broadcastNumber` broadcasts. */
  readonly #scalar: Address;

  /** @param frame  bytes above rsp that are in use */
  constructor(code: Assembler, inputs: readonly Address[], outputs: readonly Address[], frame: number) {
    this.code = code;
    this.inputs = inputs;
    this.outputs = outputs;
    this.#frame = frame;
    this.#scalar = this.word();
  }

  /** Bytes above rsp that the kernel uses. */
  get frame(): number {
    return this.#frame;
  }

  /** A new variable of 64 bits. */
  word(): Address {
    this.#frame += WORD_BYTES;
    return at(RSP, this.#frame - WORD_BYTES);
  }

  /** New memory that begins at a cache line. */
  memory(bytes: number): Address {
    const start = wholeCacheLines(this.#frame);
    this.#frame = start + bytes;
    return at(RSP, start);
  }

  /** Sets `variable` to the value of another variable, or to a number. Overwrites rax. */
  set(variable: Address, value: Address | number): void {
    if (typeof value === "number") this.code.constant(RAX, value);
    else this.code.move(RAX, value);
    this.code.store(variable, RAX);
  }

  /** Moves the addresses of the tensors to registers. Inputs and outputs without a register stay in their variables. */
  loadAddresses(inputs: readonly number[], outputs: readonly number[]): void {
    for (const [i, register] of inputs.entries()) this.code.move(register, this.inputs[i]!);
    for (const [i, register] of outputs.entries()) this.code.move(register, this.outputs[i]!);
  }

  /** Adds a number to a variable, and leaves the sum in rax. Adds no code for 0. */
  advance(variable: Address, step: number): void {
    if (step === 0) return;
    this.code.move(RAX, variable);
    this.code.addConstant(RAX, step);
    this.code.store(variable, RAX);
  }

  /** Exchanges the values of two variables. Overwrites rax and rcx. */
  swap(one: Address, other: Address): void {
    this.code.move(RAX, one);
    this.code.move(RCX, other);
    this.code.store(other, RAX);
    this.code.store(one, RCX);
  }

  /**
   * Copies, unless the addresses in both variables are equal: an in-place update has one memory for input and output. Overwrites rcx, rsi and
   * rdi.
   */
  copyUnlessSame(from: Address, to: Address, bytes: number): void {
    const { code } = this;
    const same = code.label();
    code.move(RSI, from);
    code.move(RDI, to);
    code.compare(RSI, RDI);
    code.jumpIf("equal", same);
    code.constant(RCX, bytes);
    code.copyBytes();
    code.place(same);
  }

  /** Sets three variables to the first query, key and value of a tensor (…, (H + 2K) · D). Overwrites rax. */
  setToParts(
    tensor: Address,
    { heads, kvHeads, headWidth }: { readonly heads: number; readonly kvHeads: number; readonly headWidth: number },
    [query, key, value]: readonly [Address, Address, Address],
  ): void {
    for (const [variable, headsBefore] of [
      [query, 0],
      [key, heads],
      [value, heads + kvHeads],
    ] as const) {
      this.set(variable, tensor);
      this.advance(variable, FLOAT_BYTES * headWidth * headsBefore);
    }
  }

  /**
   * Writes the code of another kernel, which may use every register.
   *
   * @param inputs   the variables with the addresses of the other kernel's inputs; the other kernel changes copies of them
   * @param outputs  the same for its outputs
   */
  include(write: (kernel: Kernel) => void, inputs: readonly Address[], outputs: readonly Address[]): void {
    const copyOf = (variable: Address) => {
      const copy = this.word();
      this.set(copy, variable);
      return copy;
    };
    const inner = new Kernel(this.code, inputs.map(copyOf), outputs.map(copyOf), this.#frame);
    write(inner);
    this.#frame = inner.frame;
  }

  /** Runs `body` for each value 0, step, … below `end` of a new variable, at least once. `body` may use every register. Overwrites rax. */
  loop(end: number, step: number, body: (variable: Address) => void): void {
    const variable = this.word();
    const again = this.code.label();
    this.set(variable, 0);
    this.code.place(again);
    body(variable);
    this.advance(variable, step);
    this.code.compareConstant(RAX, end);
    this.code.jumpIf("less", again);
  }

  /** Runs `body` for each value `from`, `from` + step, … below `end` of a variable. `from` may be a variable too. Overwrites rax. */
  loopFrom(variable: Address, from: Address | number, end: Address, step: number, body: () => void): void {
    const [again, done] = [this.code.label(), this.code.label()];
    this.set(variable, from);
    this.code.place(again);
    this.code.compare(RAX, end);
    this.code.jumpIf("atLeast", done);
    body();
    this.advance(variable, step);
    this.code.jump(again);
    this.code.place(done);
  }

  /** Writes `body` for each item. Equal neighbors share one loop. */
  each<T>(items: readonly T[], body: (item: T) => void): void {
    for (let start = 0; start < items.length; ) {
      const item = items[start]!;
      const other = items.findIndex((next, i) => i > start && !Bun.deepEquals(next, item));
      const count = (other < 0 ? items.length : other) - start;
      if (count === 1) body(item);
      else this.loop(count, 1, () => body(item));
      start += count;
    }
  }

  /** Runs `body` while the register counts down from `count` by `step` to 0. */
  countDown(register: number, count: number, step: number, body: () => void): void {
    const { code } = this;
    const again = code.label();
    code.constant(register, count);
    code.place(again);
    body();
    code.addConstant(register, -step);
    code.jumpIf("more", again);
  }

  /** Repeats `body` while the register is at least `step`. `body` subtracts `step` from the register. */
  whileAtLeast(register: number, step: number, body: () => void): void {
    const { code } = this;
    const [again, done] = [code.label(), code.label()];
    code.place(again);
    code.compareConstant(register, step);
    code.jumpIf("less", done);
    body();
    code.jump(again);
    code.place(done);
  }

  /** Each float of a vector = a number. Overwrites rcx. */
  broadcastNumber(to: number, value: number, vectorWidth = this.code.vectorWidth): void {
    this.code.constant(RCX, floatBits(value));
    this.code.store32(this.#scalar, RCX);
    this.code.broadcast(to, this.#scalar, vectorWidth);
  }

  /** Stores the low 32 bits of `value` at the indexes `from` to `end` - 1 of an array of floats. All three are registers; `from` counts up. */
  fill(array: Address, from: number, end: number, value: number): void {
    const { code } = this;
    const [again, done] = [code.label(), code.label()];
    code.place(again);
    code.compare(from, end);
    code.jumpIf("atLeast", done);
    code.store32({ ...array, index: from, scale: FLOAT_BYTES }, value);
    code.addConstant(from, 1);
    code.jump(again);
    code.place(done);
  }

  /**
   * Rotates the head at rax, and writes it, times `scale`, to `to`. r14 and r15 are the addresses of cosines and sines. `sign` -1 rotates back.
   * Overwrites rcx and the vectors 0 to 5. Half a head is a multiple of 8 floats, so vectors have 8 floats on every CPU.
   */
  rotate(to: Address, headWidth: number, { scale = 1, sign = 1 }: { scale?: number; sign?: 1 | -1 } = {}): void {
    const { code } = this;
    const half = headWidth / 2;
    const [a, b, low, high, sin, factor] = [0, 1, 2, 3, 4, 5];
    if (scale !== 1) this.broadcastNumber(factor, scale, 8);
    for (let i = 0; i < half; i += 8) {
      code.loadVector(a, at(RAX, FLOAT_BYTES * i), 8);
      code.loadVector(b, at(RAX, FLOAT_BYTES * (half + i)), 8);
      code.loadVector(sin, at(R15, FLOAT_BYTES * i), 8);
      const cos = at(R14, FLOAT_BYTES * i);
      code.vector("multiply", low, a, cos, 8);
      code.vector("multiply", high, b, cos, 8);
      if (sign === 1) {
        code.negativeMultiplyAdd(low, b, sin, 8);
        code.multiplyAdd(high, a, sin, 8);
      } else {
        code.multiplyAdd(low, b, sin, 8);
        code.negativeMultiplyAdd(high, a, sin, 8);
      }
      if (scale !== 1) for (const part of [low, high]) code.vector("multiply", part, part, factor, 8);
      code.storeVector(shifted(to, FLOAT_BYTES * i), low, 8);
      code.storeVector(shifted(to, FLOAT_BYTES * (half + i)), high, 8);
    }
  }
}

/** The base of classes that write a large kernel. Their fields reserve the kernel's memory. */
export class KernelWriter<Shape> {
  protected readonly kernel: Kernel;
  protected readonly code: Assembler;
  protected readonly shape: Shape;

  constructor(kernel: Kernel, shape: Shape) {
    this.kernel = kernel;
    this.code = kernel.code;
    this.shape = shape;
  }
}

/** The address `bytes` after another address. */
export const shifted = (address: Address, bytes: number): Address => ({ ...address, offset: address.offset + bytes });

/** Splits `total` into blocks of `size`. The last block may be smaller. @returns the sizes */
export const blocksOf = (total: number, size: number): number[] =>
  Array.from({ length: Math.ceil(total / size) }, (_, i) => Math.min(size, total - i * size));

/** @throws {RangeError} if a kernel does not take this size, because it would read and write other memory */
export function checkMultiple(what: string, size: number, of: number): void {
  if (!Number.isInteger(size) || size < of || size % of !== 0)
    throw new RangeError(`this kernel needs a ${what} that is a multiple of ${of}, got ${size}`);
}

/** The bits of a 32-bit float. */
export const floatBits = (value: number): number => new Int32Array(Float32Array.of(value).buffer)[0]!;

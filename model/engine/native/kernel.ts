/** What kernels are written with: places for their tensors and variables, loops, and the pieces of code that several kernels share. */
import { type Address, type Assembler, at, R14, R15, RAX, RCX, RSP } from "./assembler.ts";

export const FLOAT = 4;
const WORD = 8;
const LINE = 64;

/** The code of one kernel. rsp never moves while it runs, so a variable is an address relative to rsp. */
export class Kernel {
  readonly code: Assembler;
  /** Addresses of the tensors. */
  readonly inputs: readonly Address[];
  readonly outputs: readonly Address[];
  #frame: number;
  readonly #number: Address;

  /** @param frame  bytes above rsp that are in use */
  constructor(code: Assembler, inputs: readonly Address[], outputs: readonly Address[], frame: number) {
    this.code = code;
    this.inputs = inputs;
    this.outputs = outputs;
    this.#frame = frame;
    this.#number = this.word();
  }

  /** Bytes above rsp that the kernel uses. */
  get frame(): number {
    return this.#frame;
  }

  /** A variable of 64 bits. */
  word(): Address {
    this.#frame += WORD;
    return at(RSP, this.#frame - WORD);
  }

  /** Memory that begins at a cache line. @returns its offset from rsp */
  memory(bytes: number): number {
    const start = Math.ceil(this.#frame / LINE) * LINE;
    this.#frame = start + bytes;
    return start;
  }

  /** Overwrites rax. */
  set(variable: Address, value: Address | number): void {
    if (typeof value === "number") this.code.constant(RAX, value);
    else this.code.move(RAX, value);
    this.code.store(variable, RAX);
  }

  /** Adds a number of bytes to a variable. Overwrites rax. */
  advance(variable: Address, bytes: number): void {
    if (bytes === 0) return;
    this.code.move(RAX, variable);
    this.code.addConstant(RAX, bytes);
    this.code.store(variable, RAX);
  }

  /** Runs `body` for the values 0, step, … below `end` of a variable. `body` may use every register. */
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

  /** Repeats `body` while the register is at least `step`, which `body` subtracts from it. */
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
  number(to: number, value: number, vectorWidth = this.code.vectorWidth): void {
    this.code.constant(RCX, floatBits(value));
    this.code.store32(this.#number, RCX);
    this.code.broadcast(to, this.#number, vectorWidth);
  }

  /**
   * Rotates a head: (D) at rax to (D) at `to`, times `scale`, by the angles at r14 (cosines) and r15 (sines); `sign` -1 rotates back.
   * Overwrites rcx and the vectors 0 to 5. Half a head is a multiple of 8 floats.
   */
  rotate(to: Address, headWidth: number, { scale = 1, sign = 1 }: { scale?: number; sign?: 1 | -1 } = {}): void {
    const { code } = this;
    const half = headWidth / 2;
    const [a, b, low, high, sin, factor] = [0, 1, 2, 3, 4, 5];
    if (scale !== 1) this.number(factor, scale, 8);
    const shifted = (floats: number): Address => ({ ...to, offset: to.offset + FLOAT * floats });
    for (let i = 0; i < half; i += 8) {
      code.loadVector(a, at(RAX, FLOAT * i), 8);
      code.loadVector(b, at(RAX, FLOAT * (half + i)), 8);
      code.loadVector(sin, at(R15, FLOAT * i), 8);
      const cos = at(R14, FLOAT * i);
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
      code.storeVector(shifted(i), low, 8);
      code.storeVector(shifted(half + i), high, 8);
    }
  }
}

/** @throws {RangeError} if a kernel does not take this size: it would read and write other memory */
export function checkMultiple(what: string, size: number, of: number): void {
  if (!Number.isInteger(size) || size < of || size % of !== 0)
    throw new RangeError(`this kernel needs a ${what} that is a multiple of ${of}, got ${size}`);
}

/** The bits of a 32-bit float. */
export const floatBits = (value: number): number => new Int32Array(Float32Array.of(value).buffer)[0]!;

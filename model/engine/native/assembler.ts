/**
 * An assembler for x64: it appends instructions to a buffer of bytes. Vectors have 8 floats (AVX2) or 16 (AVX-512); both widths have the
 * same methods, so a kernel is written once. It knows no operators and no onnxruntime.
 *
 * - A vector register is its number: 0 to 15, or 0 to 31 with AVX-512. registers.ts has the general registers.
 * - `add`, `subtract` and `compare` take a register or 64 bits of memory. `…Constant` methods take a number of at most 32 bits.
 * - Every address has an offset of 32 bits, and every jump a distance of 32 bits, even where 8 bits would do. This is simpler; the code is longer.
 *
 * Source: Intel 64 manual, volume 2, chapter 2 (VEX: 2.3, EVEX: 2.7) and the opcode of each instruction.
 */

import { RSP } from "./registers.ts";

/** Floats in a vector register. */
export type VectorWidth = 8 | 16;

/** A place in memory: `[base + index · scale + offset]`, in bytes. */
export interface Address {
  readonly base: number;
  readonly offset: number;
  readonly index?: number;
  readonly scale?: 1 | 2 | 4 | 8;
}

export const at = (base: number, offset = 0): Address => ({ base, offset });
export const atIndex = (base: number, index: number, scale: NonNullable<Address["scale"]>, offset = 0): Address => {
  return { base, index, scale, offset };
};

/** A point in the code that jumps go to. */
export interface Label {
  /** Bytes of code before the label; null until `Assembler.place`. */
  place: number | null;
  /** Bytes of code before the distance field of each jump to the label. */
  readonly jumps: number[];
}

/**
 * Jump if the last comparison found its first operand equal to the second, less, and so on. After an addition, `addConstant` or `add`, the
 * first operand is the sum and the second is 0. The numbers are the condition codes of jcc.
 */
const CONDITIONS = { equal: 0x4, notEqual: 0x5, less: 0xc, atLeast: 0xd, atMost: 0xe, more: 0xf } as const;
export type Condition = keyof typeof CONDITIONS;

/** The first byte of an instruction of general registers, by the size of its operands. */
const [BITS_32, BITS_64] = [0x40, 0x48];

/** Added to a prefix, this sets the bit W of an EVEX instruction. */
const WIDE = 0x80;

/** Opcode, map (1: 0F, 2: 0F38, 3: 0F3A) and prefix (0: none, 1: 66, 2: F3, 3: F2) of a vector instruction. */
type Encoding = readonly [opcode: number, map: number, prefix: number];

/** The operations of two sources that `vector` takes. Comments here have Intel's names where ours differ much. */
const OPERATIONS = {
  add: [0x58, 1, 0],
  multiply: [0x59, 1, 0],
  subtract: [0x5c, 1, 0],
  minimum: [0x5d, 1, 0],
  divide: [0x5e, 1, 0],
  maximum: [0x5f, 1, 0],
  and: [0xdb, 1, 1],
  or: [0xeb, 1, 1],
  addInts: [0xfe, 1, 1],
  interleaveLow: [0x14, 1, 0], // vunpcklps
  interleaveHigh: [0x15, 1, 0], // vunpckhps
} as const satisfies Record<string, Encoding>;

/** All vector instructions. */
const VECTOR = {
  ...OPERATIONS,
  load: [0x10, 1, 0],
  store: [0x11, 1, 0],
  storeFloat: [0x11, 1, 2], // vmovss
  squareRoot: [0x51, 1, 0],
  xor: [0xef, 1, 1],
  shiftInts: [0x72, 1, 1], // vpslld, vpsrld
  toInts: [0x5b, 1, 1], // vcvtps2dq
  fromInts: [0x5b, 1, 0], // vcvtdq2ps
  broadcast: [0x18, 2, 1],
  multiplyAdd: [0xb8, 2, 1], // vfmadd231ps
  timesPlus: [0xa8, 2, 1], // vfmadd213ps
  negativeMultiplyAdd: [0xbc, 2, 1], // vfnmadd231ps
  fromHalf: [0x13, 2, 1], // vcvtph2ps
  toHalf: [0x1d, 3, 1], // vcvtps2ph
  round: [0x08, 3, 1],
  permute: [0x04, 3, 1], // vpermilps
  upper128: [0x19, 3, 1], // vextractf128
  upper256: [0x1b, 3, 1], // vextractf32x8
  pickFloats: [0xc6, 1, 0], // vshufps
  pickLanes: [0x23, 3, 1], // vshuff32x4
  toBfloats: [0x72, 2, 3], // vcvtne2ps2bf16
  orderHalves: [0x8d, 2, WIDE + 1], // vpermw
  multiplyAddPairs: [0x52, 2, 2], // vdpbf16ps
  configureTiles: [0x49, 2, 0], // ldtilecfg, tilerelease
  zeroTile: [0x49, 2, 3],
  loadTile: [0x4b, 2, 3],
  storeTile: [0x4b, 2, 2],
  multiplyTiles: [0x5c, 2, 2], // tdpbf16ps
} as const satisfies Record<string, Encoding>;
type VectorInstruction = keyof typeof VECTOR;

/** The length field of a vector instruction, by the number of floats. */
const LENGTH = { 4: 0, 8: 1, 16: 2 } as const;

export class Assembler {
  readonly vectorWidth: VectorWidth;
  #bytes = new Uint8Array(4096);
  #size = 0;
  /** Labels that jumps go to and that are not placed yet. */
  readonly #open = new Set<Label>();

  constructor(vectorWidth: VectorWidth) {
    this.vectorWidth = vectorWidth;
  }

  /** The code so far. @throws {Error} if a jump has no target */
  finish(): Uint8Array {
    if (this.#open.size > 0) throw new Error(`machine code: ${this.#open.size} labels of jumps have no place`);
    return this.#bytes.slice(0, this.#size);
  }

  #emit(...bytes: readonly number[]): void {
    if (this.#size + bytes.length > this.#bytes.length) {
      const larger = new Uint8Array(2 * this.#bytes.length);
      larger.set(this.#bytes);
      this.#bytes = larger;
    }
    for (const byte of bytes) this.#bytes[this.#size++] = byte;
  }

  #emit32(value: number): void {
    this.#emit(value & 255, (value >> 8) & 255, (value >> 16) & 255, (value >> 24) & 255);
  }

  /** The ModRM byte and what follows it. They encode both operands of an instruction; one of the two is always a register. */
  #operand(register: number, operand: number | Address): void {
    const field = (register & 7) << 3;
    if (typeof operand === "number") {
      this.#emit(0xc0 | field | (operand & 7));
      return;
    }
    const { base, index, scale = 1, offset } = operand;
    if (index !== undefined) this.#emit(0x84 | field, (Math.log2(scale) << 6) | ((index & 7) << 3) | (base & 7));
    else if ((base & 7) === RSP) this.#emit(0x84 | field, 0x24);
    else this.#emit(0x80 | field | (base & 7));
    this.#emit32(offset);
  }

  /** An instruction of general registers. */
  #general(opcode: readonly number[], register: number, operand: number | Address, size = BITS_64): void {
    const [base, index] = typeof operand === "number" ? [operand, 0] : [operand.base, operand.index ?? 0];
    this.#emit(size | ((register >> 3) << 2) | ((index >> 3) << 1) | (base >> 3), ...opcode);
    this.#operand(register, operand);
  }
  /** A 64-bit instruction whose last operand is a number. */
  #withConstant(opcode: number, register: number, operand: number, value: number): void {
    this.#general([opcode], register, operand);
    this.#emit32(value);
  }

  /** `register` = an integer or an address. */
  constant(register: number, value: number | bigint): void {
    this.#emit(0x48 | (register >> 3), 0xb8 | (register & 7));
    const bits = BigInt.asUintN(64, BigInt(value));
    this.#emit32(Number(bits & 0xffffffffn) | 0);
    this.#emit32(Number(bits >> 32n) | 0);
  }

  move = (to: number, from: number | Address): void => this.#general([0x8b], to, from);
  store = (to: Address, from: number): void => this.#general([0x89], from, to);
  /** `to` = the signed 32-bit integer at `from`. */
  loadInt32 = (to: number, from: Address): void => this.#general([0x63], to, from);
  /** `to` = the unsigned 32-bit integer at `from`. */
  load32 = (to: number, from: Address): void => this.#general([0x8b], to, from, BITS_32);
  /** Stores the low 32 bits. */
  store32 = (to: Address, from: number): void => this.#general([0x89], from, to, BITS_32);
  /** `to` = the unsigned 16-bit integer at `from`. */
  load16 = (to: number, from: Address): void => this.#general([0x0f, 0xb7], to, from);
  /** Stores the low 16 bits. */
  store16(to: Address, from: number): void {
    this.#emit(0x66);
    this.store32(to, from);
  }
  /** `to` = the address itself, not the value in memory. */
  addressOf = (to: number, from: Address): void => this.#general([0x8d], to, from);
  add = (to: number, from: number | Address): void => this.#general([0x03], to, from);
  subtract = (to: number, from: number | Address): void => this.#general([0x2b], to, from);
  compare = (a: number, b: number | Address): void => this.#general([0x3b], a, b);

  addConstant = (to: number, value: number): void => this.#withConstant(0x81, 0, to, value);
  /** Like `addConstant`, but the caller sets the value later with the returned function. */
  addConstantLater(to: number): (value: number) => void {
    this.addConstant(to, 0);
    const place = this.#size - 4;
    return (value) => new DataView(this.#bytes.buffer).setInt32(place, value, true);
  }
  andConstant = (to: number, value: number): void => this.#withConstant(0x81, 4, to, value);
  /** `to` = `from` · `factor` */
  multiplyConstant = (to: number, from: number, factor: number): void => this.#withConstant(0x69, to, from, factor);
  compareConstant = (a: number, value: number): void => this.#withConstant(0x81, 7, a, value);
  shiftRight(to: number, bits: number): void {
    this.#general([0xc1], 5, to);
    this.#emit(bits);
  }

  label(): Label {
    return { place: null, jumps: [] };
  }
  /** Ties the label to this point of the code. */
  place(label: Label): void {
    label.place = this.#size;
    this.#open.delete(label);
    for (const jump of label.jumps) this.#setDistance(jump, this.#size);
  }
  jump(label: Label): void {
    this.#emit(0xe9);
    this.#distance(label);
  }
  jumpIf(condition: Condition, label: Label): void {
    this.#emit(0x0f, 0x80 | CONDITIONS[condition]);
    this.#distance(label);
  }
  #distance(label: Label): void {
    label.jumps.push(this.#size);
    this.#emit32(0);
    if (label.place === null) this.#open.add(label);
    else this.#setDistance(this.#size - 4, label.place);
  }
  #setDistance(jump: number, target: number): void {
    new DataView(this.#bytes.buffer).setInt32(jump, target - jump - 4, true);
  }
  call = (register: number): void => this.#emit(0x40 | (register >> 3), 0xff, 0xd0 | (register & 7));
  push = (register: number): void => this.#emit(0x40 | (register >> 3), 0x50 | (register & 7));
  pop = (register: number): void => this.#emit(0x40 | (register >> 3), 0x58 | (register & 7));
  return = (): void => this.#emit(0xc3);
  /** Starts to load a line of memory into the second-level cache (prefetcht1). Any address is allowed. */
  prefetch = (address: Address): void => this.#general([0x0f, 0x18], 2, address, BITS_32);
  /** Starts to load a line of memory into the first-level cache, for storing (prefetchw). Any address is allowed. */
  prefetchForWriting = (address: Address): void => this.#general([0x0f, 0x0d], 1, address, BITS_32);
  /** Copies rcx bytes from rsi to rdi. */
  copyBytes = (): void => this.#emit(0xf3, 0xa4);

  /**
   * `to` = an operation of `a` and `operand`. `a` is 0 if the instruction has one source. A store passes its source as `to`. Vectors of 16
   * floats are encoded with EVEX, all others with VEX, which reaches only the registers 0 to 15. If `isNumber`, `operand` is the address of
   * one float, which the instruction uses in every place. Only EVEX can do this.
   */
  #vector(
    name: VectorInstruction,
    to: number,
    a: number,
    operand: number | Address,
    vectorWidth: 4 | 8 | 16,
    isNumber = false,
  ): void {
    const [opcode, map, prefix] = VECTOR[name];
    const [base, index] = typeof operand === "number" ? [operand, operand >> 1] : [operand.base, operand.index ?? 0];
    const not = (value: number, bit: number) => (~value >> bit) & 1;
    if (vectorWidth === 16) {
      // EVEX.X holds bit 3 of an index register, or bit 4 of a vector register: `index` has either as its bit 3.
      const p0 = (not(to, 3) << 7) | (not(index, 3) << 6) | (not(base, 3) << 5) | (not(to, 4) << 4) | map;
      const p2 = (LENGTH[vectorWidth] << 5) | (isNumber ? 0x10 : 0) | (not(a, 4) << 3);
      this.#emit(0x62, p0, ((~a & 15) << 3) | 4 | prefix, p2, opcode);
    } else {
      const byIndex = typeof operand === "number" ? 1 : not(index, 3);
      const p1 = (not(to, 3) << 7) | (byIndex << 6) | (not(base, 3) << 5) | map;
      this.#emit(0xc4, p1, ((~a & 15) << 3) | (LENGTH[vectorWidth] << 2) | prefix, opcode);
    }
    this.#operand(to, operand);
  }
  /** A vector instruction of one or two sources whose last operand is a byte. */
  #withByte(
    byte: number,
    name: VectorInstruction,
    to: number,
    a: number,
    b: number | Address,
    width: 4 | 8 | 16,
  ): void {
    this.#vector(name, to, a, b, width);
    this.#emit(byte);
  }

  loadVector = (to: number, from: Address, width = this.vectorWidth): void => this.#vector("load", to, 0, from, width);
  storeVector = (to: Address, from: number, width = this.vectorWidth): void =>
    this.#vector("store", from, 0, to, width);
  /** Stores the first float of `from`. */
  storeFloat = (to: Address, from: number): void => this.#vector("storeFloat", from, 0, to, 4);
  /** Loads 16-bit floats as 32-bit floats. */
  loadHalf = (to: number, from: Address): void => this.#vector("fromHalf", to, 0, from, this.vectorWidth);
  /** Stores eight floats as 16-bit floats, rounded to the nearest. */
  storeHalf = (to: Address, from: number): void => this.#withByte(0, "toHalf", from, 0, to, 8);
  /** Each float of `to` = the float at the address `from`, or the first float of the register `from`. */
  broadcast = (to: number, from: number | Address, width = this.vectorWidth): void =>
    this.#vector("broadcast", to, 0, from, width);
  /** `to` += `a` · `b` */
  multiplyAdd = (to: number, a: number, b: number | Address, width = this.vectorWidth): void =>
    this.#vector("multiplyAdd", to, a, b, width);
  /** `to` = `to` · `a` + `b` */
  timesPlus = (to: number, a: number, b: number | Address): void =>
    this.#vector("timesPlus", to, a, b, this.vectorWidth);
  /** `to` -= `a` · `b` */
  negativeMultiplyAdd = (to: number, a: number, b: number | Address, width = this.vectorWidth): void =>
    this.#vector("negativeMultiplyAdd", to, a, b, width);
  /** `to` = `a` OPERATION `b` */
  vector = (
    operation: keyof typeof OPERATIONS,
    to: number,
    a: number,
    b: number | Address,
    vectorWidth: 4 | 8 | 16 = this.vectorWidth,
  ): void => this.#vector(operation, to, a, b, vectorWidth);
  /** `to` = an operation of `a` and the float at `number` in each place. AVX2 overwrites `spare`. */
  withNumber(
    operation: "add" | "multiply" | "timesPlus" | "negativeMultiplyAdd",
    to: number,
    a: number,
    number: Address,
    spare: number,
  ): void {
    if (this.vectorWidth === 16) {
      this.#vector(operation, to, a, number, 16, true);
    } else {
      this.broadcast(spare, number);
      this.#vector(operation, to, a, spare, 8);
    }
  }
  zero = (to: number): void => this.#vector("xor", to, to, to, this.vectorWidth);
  /** Rounds each float to the nearest integer. */
  roundVector = (to: number, from: number): void => this.#withByte(0, "round", to, 0, from, this.vectorWidth);
  /** Converts each float to a 32-bit integer. */
  toInts = (to: number, from: number): void => this.#vector("toInts", to, 0, from, this.vectorWidth);
  /** Converts each 32-bit integer to a float. */
  fromInts = (to: number, from: number): void => this.#vector("fromInts", to, 0, from, this.vectorWidth);
  squareRoot = (to: number, from: number): void => this.#vector("squareRoot", to, 0, from, this.vectorWidth);
  /** Multiplies each 32-bit integer by 2^bits. */
  shiftInts = (to: number, from: number, bits: number): void =>
    this.#withByte(bits, "shiftInts", 6, to, from, this.vectorWidth);
  /** Divides each unsigned 32-bit integer by 2^bits. */
  shiftIntsRight = (to: number, from: number, bits: number): void =>
    this.#withByte(bits, "shiftInts", 2, to, from, this.vectorWidth);
  /**
   * Fills `to` with two items of `a`, then two of `b`. `pickFloats`: items are floats, picked within each 128 bits; `pickLanes`: items are whole
   * 128 bits. `order` has two bits for each item: its place in `a` or `b`.
   */
  pick = (operation: "pickFloats" | "pickLanes", to: number, a: number, b: number, order: number): void =>
    this.#withByte(order, operation, to, a, b, this.vectorWidth);
  /** The low half of `to` = the floats of `low` as bfloat16, rounded to the nearest; the high half = the floats of `high`. AVX-512 only. */
  toBfloats = (to: number, low: number | Address, high: number): void => this.#vector("toBfloats", to, high, low, 16);
  /** `to[i]` = `from[places[i]]`, for items of 16 bits. AVX-512 only. */
  orderHalves = (to: number, places: number, from: number): void => this.#vector("orderHalves", to, places, from, 16);
  /** `to[i]` += `a[2i]` · `b[2i]` + `a[2i + 1]` · `b[2i + 1]`. `to` has floats; `a` and `b` have bfloat16. AVX-512 only. */
  multiplyAddPairs = (to: number, a: number, b: number | Address): void =>
    this.#vector("multiplyAddPairs", to, a, b, 16);
  /**
   * Each float of `to` = `operation` over all floats of `from`; `spare` is overwritten. Registers 0 to 15 only, because its steps are
   * encoded with VEX.
   */
  reduce(operation: "add" | "maximum", to: number, from: number, spare: number): void {
    let source = from;
    /** Combines the floats of `source` with the floats that `fillSpare` puts beside them. */
    const halve = (vectorWidth: 4 | 8, fillSpare: () => void) => {
      fillSpare();
      this.#vector(operation, to, source, spare, vectorWidth);
      source = to;
    };
    if (this.vectorWidth === 16) halve(8, () => this.#withByte(1, "upper256", from, 0, spare, 16));
    halve(4, () => this.#withByte(1, "upper128", source, 0, spare, 8));
    // Combines floats that are two places apart, then floats that are one place apart.
    for (const order of [0b01_00_11_10, 0b10_11_00_01])
      halve(4, () => this.#withByte(order, "permute", spare, 0, source, 4));
    this.broadcast(to, to);
  }
  /** Sets the number of rows and columns of each tile from the 64 bytes at `from`, and every tile to 0. */
  configureTiles = (from: Address): void => this.#vector("configureTiles", 0, 0, from, 4);
  /** Releases the tiles, so that Linux has less state to save for this thread. */
  releaseTiles = (): void => this.#vector("configureTiles", 0, 0, 0, 4);
  zeroTile = (tile: number): void => this.#vector("zeroTile", tile, 0, 0, 4);
  /** @param from  the first row. Its index register holds the bytes from one row to the next */
  loadTile = (tile: number, from: Address): void => this.#vector("loadTile", tile, 0, from, 4);
  storeTile = (to: Address, tile: number): void => this.#vector("storeTile", tile, 0, to, 4);
  /**
   * Tile `to` += tile `a` · tile `b`. Tile `to` has 32-bit floats; `a` and `b` have bfloat16:
   * `to[m][n] += Σ a[m][2k] · b[k][2n] + a[m][2k + 1] · b[k][2n + 1]`
   */
  multiplyTiles = (to: number, a: number, b: number): void => this.#vector("multiplyTiles", to, b, a, 4);
  /** Clears all but the first four floats of every register (vzeroupper): otherwise other code's SSE instructions would be slow. */
  clearUpper = (): void => this.#emit(0xc5, 0xf8, 0x77);
}

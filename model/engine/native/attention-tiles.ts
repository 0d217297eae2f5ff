/**
 * What the kernels of causal self-attention over whole sequences and of its gradient share: products of tiles, and which keys a tile of
 * queries sees.
 *
 * B rows, T tokens, H query heads, K key/value heads, G = H / K, D head width, P = T rounded up to whole vectors.
 *
 * - The kernels compute four queries at a time over the keys that these queries see, so they need no mask and no (T, T) memory.
 * - A product has one factor whose rows are vectors and one whose numbers are broadcast. So keys and values are also kept transposed,
 *   (D, P), where their tokens must be the vector.
 */
import { roundUp } from "../graph.ts";
import { type Address, type Assembler, at, R10, R11, R14, R15, RAX, RBX, RCX, RDX } from "./assembler.ts";
import { checkMultiple, FLOAT, floatBits, type Kernel } from "./kernel.ts";

export interface WholeShape {
  readonly rows: number;
  /** A multiple of 4. */
  readonly tokens: number;
  readonly heads: number;
  readonly kvHeads: number;
  /** A multiple of 16. */
  readonly headWidth: number;
  readonly scale: number;
}

/** Queries, or keys, of a tile. */
export const TILE = 4;
/** Keys are padded to a multiple of this. */
export const KEYS = 16;

export function checkShape({ tokens, headWidth }: WholeShape): void {
  checkMultiple("number of tokens", tokens, TILE);
  checkMultiple("headWidth", headWidth, 16);
}

/** A factor of a product: the register of its address, and the bytes from one row, or one step of the sum, to the next. */
interface Factor {
  readonly register: number;
  readonly row: number;
  readonly step: number;
}

/** What the kernels of attention and of its gradient share. */
export class AttentionKernel {
  protected readonly kernel: Kernel;
  protected readonly code: Assembler;
  protected readonly shape: WholeShape;
  /** Bytes of parts of the tensors; `group` is G. */
  protected readonly sizes: Readonly<Record<"vector" | "head" | "token" | "outToken" | "padded" | "group", number>>;
  /** Most vectors of keys in a tile. */
  protected readonly keyVectors: number;

  constructor(kernel: Kernel, shape: WholeShape) {
    this.kernel = kernel;
    this.code = kernel.code;
    this.shape = shape;
    const { tokens, heads, kvHeads, headWidth } = shape;
    const head = FLOAT * headWidth;
    this.sizes = {
      vector: FLOAT * this.code.vectorWidth,
      head,
      token: (heads + 2 * kvHeads) * head,
      outToken: heads * head,
      padded: FLOAT * roundUp(tokens, KEYS),
      group: heads / kvHeads,
    };
    this.keyVectors = this.code.vectorWidth === 16 ? 4 : 2;
  }

  /** `register` = `base` + `index` · `bytes` + `offset` */
  protected locate(register: number, base: Address, index: Address, bytes: number, offset = 0): void {
    this.code.move(register, index);
    this.code.multiplyConstant(register, register, bytes);
    this.code.add(register, base);
    if (offset !== 0) this.code.addConstant(register, offset);
  }

  /** Sets r14 and r15 to the angles of the token at `position` + `ahead`. */
  protected angles(position: Address, ahead = 0): void {
    const half = this.sizes.head / 2;
    this.locate(R14, this.kernel.inputs[1]!, position, half, ahead * half);
    this.locate(R15, this.kernel.inputs[2]!, position, half, ahead * half);
  }

  /** Writes (D) at `from` as a column of the (D, P) matrix, to the addresses rdx, rdx + P, … Overwrites rcx. */
  protected writeColumn(from: Address): void {
    for (let d = 0; d < this.shape.headWidth; d++) {
      this.code.load32(RCX, { ...from, offset: from.offset + FLOAT * d });
      this.code.store32(at(RDX, d * this.sizes.padded), RCX);
    }
  }

  /** Register of a sum. */
  protected sum(row: number, vector: number, vectors: number): number {
    return row * vectors + vector;
  }

  protected zeroSums(vectors: number): void {
    for (let i = 0; i < TILE * vectors; i++) this.code.zero(i);
  }

  /**
   * Adds a product to the sums of a tile, (4, vectors): `sum[row] += Σ a[row][step] · b[step]`. The number of steps is in rcx, a
   * multiple of 4. Moves the registers of both factors.
   */
  protected product(vectors: number, a: Factor, b: Factor): void {
    const code = this.code;
    const first = TILE * vectors;
    const broadcast = first + vectors;
    const again = code.label();
    code.place(again);
    for (let step = 0; step < 4; step++) {
      for (let j = 0; j < vectors; j++)
        code.loadVector(first + j, at(b.register, step * b.step + j * this.sizes.vector));
      for (let row = 0; row < TILE; row++) {
        code.broadcast(broadcast, at(a.register, row * a.row + step * a.step));
        for (let j = 0; j < vectors; j++) code.multiplyAdd(this.sum(row, j, vectors), broadcast, first + j);
      }
    }
    code.addConstant(a.register, 4 * a.step);
    code.addConstant(b.register, 4 * b.step);
    code.addConstant(RCX, -4);
    code.jumpIf("more", again);
  }

  /** Runs `body` for the vectors of the keys before r10, of which r11 is the first: with several vectors at once, then with one or two. */
  protected eachKeyTile(body: (vectors: number) => void): void {
    const { code, kernel } = this;
    const least = KEYS / code.vectorWidth;
    code.constant(R11, 0);
    code.move(RBX, R10);
    for (const vectors of new Set([this.keyVectors, least])) {
      const keys = vectors * code.vectorWidth;
      kernel.whileAtLeast(RBX, keys, () => {
        body(vectors);
        code.addConstant(R11, keys);
        code.addConstant(RBX, -keys);
      });
    }
  }

  /** Sets r10 to the end of the keys that the tile of queries at `position` sees, rounded up. */
  protected setKeyEnd(position: Address): void {
    this.code.move(R10, position);
    this.code.addConstant(R10, TILE - 1);
    this.code.andConstant(R10, -KEYS);
    this.code.addConstant(R10, KEYS);
  }

  /** Stores a number over those keys before r10 that a query of the tile at `position` does not see. @param rows  (4, P) */
  protected hide(position: Address, rows: Address, value: number): void {
    const code = this.code;
    code.constant(RDX, floatBits(value));
    for (let row = 0; row < TILE; row++) {
      code.move(RAX, position);
      code.addConstant(RAX, row + 1);
      const [again, done] = [code.label(), code.label()];
      code.place(again);
      code.compare(RAX, R10);
      code.jumpIf("atLeast", done);
      code.store32({ ...rows, index: RAX, scale: 4, offset: rows.offset + row * this.sizes.padded }, RDX);
      code.addConstant(RAX, 1);
      code.jump(again);
      code.place(done);
    }
  }

  /** The parts of a head that a tile sums at once: the first float of each, and the number of vectors. */
  protected headParts(): { from: number; vectors: number }[] {
    const { headWidth } = this.shape;
    const widest = this.keyVectors * this.code.vectorWidth;
    return Array.from({ length: Math.ceil(headWidth / widest) }, (_, i) => {
      const from = i * widest;
      return { from, vectors: Math.min(widest, headWidth - from) / this.code.vectorWidth };
    });
  }
}

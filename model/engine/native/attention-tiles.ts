/**
 * Code that two kernels share: causal self-attention over whole sequences, and its gradient. The code computes products of tiles, and the
 * range of keys that a tile of queries sees.
 *
 * B rows, T tokens, H query heads, K key/value heads, G = H / K, D head width, P = T rounded up to a multiple of 16.
 *
 * - The kernels compute four queries at a time over the keys that these queries see, so they need no mask and no (T, T) memory.
 * - In a product, the rows of one factor are vectors, and the numbers of the other factor are broadcast. Products whose vectors run over
 *   tokens read transposed keys and values, (D, P).
 *
 * Registers, between the methods that set and read them:
 *
 * - r10: the end of the keys that a tile of queries sees, a multiple of 16. In `eachKeyTile`, r11 is the first key of the tile of keys, and
 *   rbx the number of keys left.
 * - r14, r15: addresses of the cosines and sines of one token.
 * - vectors 0 to 4 · V - 1: the sums of a tile, V vectors for each of its four rows. The vectors after the sums hold factors.
 */
import { roundUp } from "../graph.ts";
import {
  type Address,
  type Assembler,
  at,
  atIndex,
  R8,
  R10,
  R11,
  R14,
  R15,
  RAX,
  RBX,
  RCX,
  RDI,
  RDX,
} from "./assembler.ts";
import { checkMultiple, FLOAT_BYTES, floatBits, type Kernel, shifted } from "./kernel.ts";
import { BLOCK, rowsOf, transpose } from "./transpose.ts";

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

/** Rows of a tile: queries, or keys whose gradients the kernel sums. */
export const TILE = 4;
/** Keys are padded to a multiple of this, the widest vector. */
export const KEY_PADDING = 16;

export function checkShape({ tokens, headWidth }: WholeShape): void {
  checkMultiple("number of tokens", tokens, TILE);
  checkMultiple("headWidth", headWidth, 16);
}

/** The left factor of a product: the register of its address, the bytes from row to row, and the bytes from step to step of the sum. */
interface LeftFactor {
  readonly register: number;
  readonly row: number;
  readonly step: number;
}
/** The right factor of a product. Each step reads neighboring vectors. */
type RightFactor = Omit<LeftFactor, "row">;

/** Writes the code that the kernels of attention and of its gradient share. */
export class TileWriter {
  protected readonly kernel: Kernel;
  protected readonly code: Assembler;
  protected readonly shape: WholeShape;
  /** Bytes of a vector, of a head (D), of a token in qkv and in `out`, and of a row of padded keys (P). */
  protected readonly sizes: Readonly<Record<"vector" | "head" | "token" | "outToken" | "padded", number>>;
  /** Maximum number of vectors in a row of a tile. With four rows the sums and factors fit the registers: 21 of 32, or 11 of 16. */
  protected readonly vectorsMax: number;

  constructor(kernel: Kernel, shape: WholeShape) {
    this.kernel = kernel;
    this.code = kernel.code;
    this.shape = shape;
    const { tokens, heads, kvHeads, headWidth } = shape;
    const head = FLOAT_BYTES * headWidth;
    this.sizes = {
      vector: FLOAT_BYTES * this.code.vectorWidth,
      head,
      token: (heads + 2 * kvHeads) * head,
      outToken: heads * head,
      padded: FLOAT_BYTES * roundUp(tokens, KEY_PADDING),
    };
    this.vectorsMax = this.code.vectorWidth === 16 ? 4 : 2;
  }

  /** `register` = `base` + `index` · `bytes` + `offset`; `base` and `index` are variables. */
  protected locate(register: number, base: Address, index: Address, bytes: number, offset = 0): void {
    this.code.move(register, index);
    this.code.multiplyConstant(register, register, bytes);
    this.code.add(register, base);
    if (offset !== 0) this.code.addConstant(register, offset);
  }

  /** Sets r14 and r15 to the angles of the token at `position` + `ahead`. */
  protected setAngles(position: Address, ahead = 0): void {
    const half = this.sizes.head / 2;
    this.locate(R14, this.kernel.inputs[1]!, position, half, ahead * half);
    this.locate(R15, this.kernel.inputs[2]!, position, half, ahead * half);
  }

  /**
   * Writes the rows (T, D) of a head as a matrix (D, P). Overwrites rax, rcx, rdx and the vectors 0 to 16.
   *
   * @param rows, columns  variables with the addresses of the rows and of the matrix
   */
  protected transpose(rows: Address, rowBytes: number, columns: Address): void {
    const { code, kernel } = this;
    const { tokens, headWidth } = this.shape;
    const { padded } = this.sizes;
    const inBlocks = code.vectorWidth === 16 ? tokens - (tokens % BLOCK) : 0;
    if (inBlocks > 0) {
      code.move(RAX, rows);
      code.move(RDX, columns);
      kernel.countDown(RCX, inBlocks, BLOCK, () => {
        for (let d = 0; d < headWidth; d += BLOCK) {
          const from = rowsOf(code, { start: at(RAX, FLOAT_BYTES * d), row: rowBytes });
          const to = { start: at(RDX, d * padded), row: padded };
          transpose(code, from, to);
        }
        code.addConstant(RAX, BLOCK * rowBytes);
        code.addConstant(RDX, BLOCK * FLOAT_BYTES);
      });
    }
    if (inBlocks === tokens) return;
    kernel.loop(tokens - inBlocks, 1, (token) => {
      this.locate(RDX, columns, token, FLOAT_BYTES, FLOAT_BYTES * inBlocks);
      this.locate(RAX, rows, token, rowBytes, rowBytes * inBlocks);
      for (let d = 0; d < headWidth; d++) {
        code.load32(RCX, at(RAX, FLOAT_BYTES * d));
        code.store32(at(RDX, d * padded), RCX);
      }
    });
  }

  /** Runs `body` for each sum of a tile: its row, its vector in the row, and its register. */
  protected eachSum(vectors: number, body: (row: number, vector: number, sum: number) => void): void {
    for (let row = 0; row < TILE; row++)
      for (let vector = 0; vector < vectors; vector++) body(row, vector, row * vectors + vector);
  }

  protected zeroSums(vectors: number): void {
    for (let i = 0; i < TILE * vectors; i++) this.code.zero(i);
  }

  /**
   * Adds a product to the sums of a tile, (4, vectors): `sum[row] += Σ a[row][step] · b[step]`. rcx is the number of steps, a multiple
   * of 4. Overwrites rcx and the vectors after the sums, and moves the registers of both factors.
   */
  protected addProduct(vectors: number, a: LeftFactor, b: RightFactor): void {
    const code = this.code;
    const first = TILE * vectors;
    const left = first + vectors;
    const again = code.label();
    code.place(again);
    for (let step = 0; step < 4; step++) {
      for (let j = 0; j < vectors; j++)
        code.loadVector(first + j, at(b.register, step * b.step + j * this.sizes.vector));
      for (let row = 0; row < TILE; row++) {
        code.broadcast(left, at(a.register, row * a.row + step * a.step));
        for (let j = 0; j < vectors; j++) code.multiplyAdd(row * vectors + j, left, first + j);
      }
    }
    code.addConstant(a.register, 4 * a.step);
    code.addConstant(b.register, 4 * b.step);
    code.addConstant(RCX, -4);
    code.jumpIf("more", again);
  }

  /**
   * Adds a product to the sums: a tile of queries (or of gradients) times a tile of keys (or of values). r11 is the tile's first key.
   * Overwrites rcx and r8.
   *
   * @param queries     (4, D)
   * @param transposed  the variable with the address of the keys, (D, P)
   */
  protected addKeyScores(vectors: number, queries: LeftFactor, transposed: Address): void {
    const { code } = this;
    code.move(R8, transposed);
    code.addressOf(R8, atIndex(R8, R11, FLOAT_BYTES));
    code.constant(RCX, this.shape.headWidth);
    this.addProduct(vectors, queries, { register: R8, step: this.sizes.padded });
  }

  /**
   * Adds a product to the sums: the numbers (4, P) at rdi, one for each query and key, times the rows of the keys before the tile's end.
   * Overwrites rcx and r8, and moves rdi.
   *
   * @param rows  the variable with the address of the first key's row
   * @param from  the first float of a row to sum
   */
  protected addKeyRows(vectors: number, position: Address, rows: Address, from: number, rowBytes: number): void {
    const { code } = this;
    code.move(R8, rows);
    if (from > 0) code.addConstant(R8, FLOAT_BYTES * from);
    code.move(RCX, position);
    code.addConstant(RCX, TILE);
    const left = { register: RDI, row: this.sizes.padded, step: FLOAT_BYTES };
    this.addProduct(vectors, left, { register: R8, step: rowBytes });
  }

  /**
   * Runs `body` for each tile of the keys before r10: tiles of `vectorsMax` vectors, then tiles of 16 keys. r11 is the tile's first key.
   * `body` keeps r10, r11 and rbx.
   */
  protected eachKeyTile(body: (vectors: number) => void): void {
    const { code, kernel } = this;
    const least = KEY_PADDING / code.vectorWidth;
    code.constant(R11, 0);
    code.move(RBX, R10);
    for (const vectors of new Set([this.vectorsMax, least])) {
      const keys = vectors * code.vectorWidth;
      kernel.whileAtLeast(RBX, keys, () => {
        body(vectors);
        code.addConstant(R11, keys);
        code.addConstant(RBX, -keys);
      });
    }
  }

  /** Sets r10 to the end of the keys that the tile of queries at `position` sees, rounded up to a multiple of 16. */
  protected setKeyEnd(position: Address): void {
    this.code.move(R10, position);
    this.code.addConstant(R10, TILE - 1);
    this.code.andConstant(R10, -KEY_PADDING);
    this.code.addConstant(R10, KEY_PADDING);
  }

  /**
   * Stores a number for each key before r10 that a query of the tile at `position` does not see. Overwrites rax and rdx.
   *
   * @param rows  (4, P): a number for each query and key
   */
  protected hide(position: Address, rows: Address, value: number): void {
    const { code, kernel } = this;
    code.constant(RDX, floatBits(value));
    for (let row = 0; row < TILE; row++) {
      code.move(RAX, position);
      code.addConstant(RAX, row + 1);
      kernel.fill(shifted(rows, row * this.sizes.padded), RAX, R10, RDX);
    }
  }

  /** The parts of a head that a tile sums at once: the first float of each part, and its vectors. */
  protected headParts(): { from: number; vectors: number }[] {
    const { headWidth } = this.shape;
    const widest = this.vectorsMax * this.code.vectorWidth;
    return Array.from({ length: Math.ceil(headWidth / widest) }, (_, i) => {
      const from = i * widest;
      return { from, vectors: Math.min(widest, headWidth - from) / this.code.vectorWidth };
    });
  }
}

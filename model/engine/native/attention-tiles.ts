/**
 * Code that two kernels share: causal self-attention over a prefix tree, and its gradient. The code loops over branches, computes products
 * of tiles, and finds the keys that a tile of queries sees.
 *
 * Letters: N tokens, T tokens of the longest path, H query heads, K key/value heads, G = H / K, D head width.
 *
 * - Heads of keys and values are the outer loop, branches the inner loop. The scratch holds keys and values by their position in the path.
 *   A branch shares its first positions with the path before it, so their keys and values are there already.
 * - The kernels compute four queries at a time over the keys that these queries see, so they need no mask and no (T, T) memory.
 * - In a product, the rows of one factor are vectors, and the numbers of the other factor are broadcast. Products whose vectors run over
 *   tokens read transposed keys and values, (D, T).
 *
 * Registers, between the methods that set and read them:
 *
 * - r10: the end of the keys that a tile of queries sees, a multiple of 16. In `eachKeyTile`, r11 is the first key of the tile of keys, and
 *   rbx the number of keys left.
 * - r14, r15: addresses of the cosines and sines of one token.
 * - vectors 0 to 4 · V - 1: the sums of a tile, V vectors for each of its four rows. The vectors after the sums hold factors.
 */
import { type Address, at, atIndex, type Label } from "./assembler.ts";
import { checkMultiple, FLOAT_BYTES, floatBits, KernelWriter, shifted } from "./kernel.ts";
import { R8, R10, R11, R14, R15, RAX, RBX, RCX, RDI, RDX, RSI } from "./registers.ts";
import { BLOCK, rowsOf, transpose } from "./transpose.ts";

export interface TreeShape {
  /** Rows of the table of branches; the last row is zeros. */
  readonly branches: number;
  /** N, a multiple of 4. */
  readonly tokens: number;
  /** T, a multiple of 16. */
  readonly length: number;
  readonly heads: number;
  readonly kvHeads: number;
  /** A multiple of 16. */
  readonly headWidth: number;
  readonly scale: number;
}

const INT_BYTES = 4;
/** Bytes of a flag of `isRead`. */
const FLAG_BYTES = INT_BYTES;

/** Rows of a tile: queries, or keys whose gradients the kernel sums. */
export const TILE = 4;
/** Bytes of a query's statistics: the largest score, and 1 / the sum of exponentials. */
export const STATISTICS_BYTES = 2 * FLOAT_BYTES;
/** T is a multiple of this, the widest vector. */
export const KEY_PADDING = 16;

export function checkShape({ branches, tokens, length, headWidth }: TreeShape): void {
  checkMultiple("number of branches", branches, 1);
  checkMultiple("number of tokens", tokens, TILE);
  checkMultiple("length of a path", length, KEY_PADDING);
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

/** A tensor with numbers of each of the N tokens. */
interface TokenTensor {
  /** Variable: address of the current head's numbers in the first token. */
  readonly first: Address;
  /** Variable: the same address plus `offset` tokens. So `position` tokens later is a token of the current branch. */
  readonly inBranch: Address;
  /** Of a token. */
  readonly bytes: number;
}

function sizesOf({ length, heads, kvHeads, headWidth }: TreeShape, vectorWidth: number) {
  const head = FLOAT_BYTES * headWidth;
  const token = (heads + 2 * kvHeads) * head;
  return { vector: FLOAT_BYTES * vectorWidth, head, token, outToken: heads * head, path: FLOAT_BYTES * length };
}

/** Writes the code that the kernels of attention and of its gradient share. */
export class TileWriter extends KernelWriter<TreeShape> {
  /** Bytes of a vector, of a head (D), of a token in qkv and in `out`, and of a number for each token of a path (T). */
  protected readonly sizes = sizesOf(this.shape, this.code.vectorWidth);
  /** Maximum number of vectors in a row of a tile. With four rows the sums and factors fit the registers: 21 of 32, or 11 of 16. */
  protected readonly vectorsMax = this.code.vectorWidth === 16 ? 4 : 2;

  /** Variables: address of the branch's row in the table; the branch's first position in its path; the end of the path. */
  readonly #branch = this.kernel.word();
  protected readonly shared = this.kernel.word();
  protected readonly end = this.kernel.word();
  /** Variable: the index of the branch's first token among the N tokens, minus its position. So position + offset is the index of a token. */
  protected readonly offset = this.kernel.word();
  /** Variable: position of a token. */
  protected readonly position = this.kernel.word();
  /** Variable: position of the first block that `transpose` writes. */
  readonly #firstBlock = this.kernel.word();

  /** `register` = `base` + `index` · `bytes` + `offset`; `base` and `index` are variables. */
  protected locate(register: number, base: Address, index: Address, bytes: number, offset = 0): void {
    this.code.move(register, index);
    this.code.multiplyConstant(register, register, bytes);
    this.code.add(register, base);
    if (offset !== 0) this.code.addConstant(register, offset);
  }

  /** Sets r14 and r15 to the angles of the token at `position` + `ahead`. */
  protected setAngles(ahead = 0): void {
    const half = this.sizes.head / 2;
    this.locate(R14, this.kernel.inputs[2]!, this.position, half, ahead * half);
    this.locate(R15, this.kernel.inputs[3]!, this.position, half, ahead * half);
  }

  /** Runs `body` for each branch, and sets `shared`, `end` and `offset` for it. `body` may use every register. */
  protected eachBranch(body: () => void): void {
    const { code, kernel } = this;
    const [again, done] = [code.label(), code.label()];
    kernel.set(this.#branch, kernel.inputs[1]!);
    kernel.set(this.offset, 0);
    code.place(again);
    code.move(RDX, this.#branch);
    code.loadInt32(RCX, at(RDX, INT_BYTES));
    code.compareConstant(RCX, 0);
    code.jumpIf("equal", done);
    code.store(this.end, RCX);
    code.loadInt32(RAX, at(RDX));
    code.store(this.shared, RAX);
    // `offset` now holds the index of the next token: `end` + `offset` of the branch before.
    code.move(RCX, this.offset);
    code.subtract(RCX, RAX);
    code.store(this.offset, RCX);
    body();
    code.move(RAX, this.offset);
    code.add(RAX, this.end);
    code.store(this.offset, RAX);
    kernel.advance(this.#branch, 2 * INT_BYTES);
    code.jump(again);
    code.place(done);
  }

  protected tokenTensor(bytes: number): TokenTensor {
    return { first: this.kernel.word(), inBranch: this.kernel.word(), bytes };
  }

  /** Moves tensors to the current branch. Overwrites rdx. */
  protected setToBranch(tensors: readonly TokenTensor[]): void {
    for (const { first, inBranch, bytes } of tensors) {
      this.locate(RDX, first, this.offset, bytes);
      this.code.store(inBranch, RDX);
    }
  }

  /** `register` = the address of a tensor's numbers in the token at `position` + `ahead`. */
  protected locateToken(register: number, { inBranch, bytes }: TokenTensor, ahead = 0): void {
    this.locate(register, inBranch, this.position, bytes, ahead * bytes);
  }

  /** Runs `body` if a later operator reads the results of the four queries at `position`, else `instead`. Overwrites rax. */
  protected ifRead(body: () => void, instead: () => void = () => {}): void {
    const { code } = this;
    const [unread, done] = [code.label(), code.label()];
    this.setToFlag(RAX, this.position);
    this.#jumpIfUnread(RAX, unread);
    body();
    code.jump(done);
    code.place(unread);
    instead();
    code.place(done);
  }

  /** Jumps if the flag at the address in `register` is 0. Overwrites rax. */
  #jumpIfUnread(register: number, label: Label): void {
    this.code.load32(RAX, at(register));
    this.code.compareConstant(RAX, 0);
    this.code.jumpIf("equal", label);
  }

  /** Sets a register to the address of the flag of `isRead` for the four tokens from a position on. The position is a variable. */
  protected setToFlag(register: number, position: Address): void {
    this.code.move(register, position);
    this.code.add(register, this.offset);
    // Four tokens have one flag of four bytes, so the index of a token is the offset of its flag in bytes.
    this.code.add(register, this.kernel.inputs[4]!);
  }

  /** Runs `body` with `position` set to each `step`-th position of the branch. */
  protected eachPosition(step: number, body: () => void): void {
    this.kernel.loopFrom(this.position, this.shared, this.end, step, body);
  }

  /**
   * Adds the key and the value at `position` to those of the path. The key is rotated. Overwrites `setAngles`' registers, rax, rcx, rsi, rdi
   * and the vectors 0 to 5.
   *
   * @param keys, values          the tokens'
   * @param pathKeys, pathValues  variables: addresses of those of the path, (T, D)
   */
  protected addToPath(keys: TokenTensor, values: TokenTensor, pathKeys: Address, pathValues: Address): void {
    const { head } = this.sizes;
    this.locateToken(RAX, keys);
    this.setAngles();
    this.locate(RDI, pathKeys, this.position, head);
    this.kernel.rotate(at(RDI), this.shape.headWidth);
    this.locateToken(RSI, values);
    this.locate(RDI, pathValues, this.position, head);
    this.copyHead(RDI, RSI);
  }

  /** Copies the head at `from` to `to`, both registers. Overwrites the vector 0. */
  protected copyHead(to: number, from: number): void {
    const { code } = this;
    for (let i = 0; i < this.sizes.head; i += this.sizes.vector) {
      code.loadVector(0, at(from, i));
      code.storeVector(at(to, i), 0);
    }
  }

  /**
   * Writes the branch's rows of (T, D) as columns of (D, T). Overwrites `position`, rax, rcx, rdx and the vectors 0 to 16.
   *
   * @param rows, columns  variables with the addresses of both matrices
   */
  protected transpose(rows: Address, columns: Address): void {
    const { code, kernel } = this;
    const { headWidth } = this.shape;
    const { path, head } = this.sizes;
    const place = () => {
      this.locate(RDX, columns, this.position, FLOAT_BYTES);
      this.locate(RAX, rows, this.position, head);
    };
    if (code.vectorWidth === 16) {
      // Copies whole blocks. Columns before the branch get the same numbers again. The last block may end after the branch.
      code.move(RAX, this.shared);
      code.andConstant(RAX, -BLOCK);
      code.store(this.#firstBlock, RAX);
      kernel.loopFrom(this.position, this.#firstBlock, this.end, BLOCK, () => {
        place();
        for (let d = 0; d < headWidth; d += BLOCK) {
          const from = rowsOf(code, { start: at(RAX, FLOAT_BYTES * d), row: head });
          transpose(code, from, { start: at(RDX, d * path), row: path });
        }
      });
      return;
    }
    this.eachPosition(1, () => {
      place();
      for (let d = 0; d < headWidth; d++) {
        code.load32(RCX, at(RAX, FLOAT_BYTES * d));
        code.store32(at(RDX, d * path), RCX);
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
   *
   * @param flags  a register with an address in `isRead`: the sum leaves out four steps if their flag is 0. Overwrites rax.
   */
  protected addProduct(vectors: number, a: LeftFactor, b: RightFactor, flags: number | null = null): void {
    const { code } = this;
    const first = TILE * vectors;
    const left = first + vectors;
    const [again, skip] = [code.label(), code.label()];
    code.place(again);
    if (flags !== null) this.#jumpIfUnread(flags, skip);
    for (let step = 0; step < 4; step++) {
      for (let j = 0; j < vectors; j++)
        code.loadVector(first + j, at(b.register, step * b.step + j * this.sizes.vector));
      for (let row = 0; row < TILE; row++) {
        code.broadcast(left, at(a.register, row * a.row + step * a.step));
        for (let j = 0; j < vectors; j++) code.multiplyAdd(row * vectors + j, left, first + j);
      }
    }
    code.place(skip);
    if (flags !== null) code.addConstant(flags, FLAG_BYTES);
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
   * @param transposed  the variable with the address of the keys, (D, T)
   */
  protected addKeyScores(vectors: number, queries: LeftFactor, transposed: Address): void {
    const { code } = this;
    code.move(R8, transposed);
    code.addressOf(R8, atIndex(R8, R11, FLOAT_BYTES));
    code.constant(RCX, this.shape.headWidth);
    this.addProduct(vectors, queries, { register: R8, step: this.sizes.path });
  }

  /**
   * Adds a product to the sums: the numbers (4, T) at rdi, one for each query and key, times the rows of the keys before the tile's end.
   * Overwrites rcx and r8, and moves rdi.
   *
   * @param rows  the variable with the address of the rows, (T, D)
   * @param from  the first float of a row to sum
   */
  protected addKeyRows(vectors: number, rows: Address, from: number): void {
    const { code } = this;
    code.move(R8, rows);
    if (from > 0) code.addConstant(R8, FLOAT_BYTES * from);
    code.move(RCX, this.position);
    code.addConstant(RCX, TILE);
    const left = { register: RDI, row: this.sizes.path, step: FLOAT_BYTES };
    this.addProduct(vectors, left, { register: R8, step: this.sizes.head });
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
  protected setKeyEnd(): void {
    this.code.move(R10, this.position);
    this.code.addConstant(R10, TILE - 1);
    this.code.andConstant(R10, -KEY_PADDING);
    this.code.addConstant(R10, KEY_PADDING);
  }

  /**
   * Stores a number for each key before r10 that a query of the tile at `position` does not see. Overwrites rax and rdx.
   *
   * @param rows  (4, T): a number for each query and key
   */
  protected hide(rows: Address, value: number): void {
    const { code, kernel } = this;
    code.constant(RDX, floatBits(value));
    for (let row = 0; row < TILE; row++) {
      code.move(RAX, this.position);
      code.addConstant(RAX, row + 1);
      kernel.fill(shifted(rows, row * this.sizes.path), RAX, R10, RDX);
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

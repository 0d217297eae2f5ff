/**
 * Products of matrices in full precision on a CPU whose tiles multiply bfloat16 (Intel's AMX).
 *
 * tile-panels.ts splits each float into three bfloat16, the float's parts. Two floats have nine products of parts. The kernel adds six of
 * them: the other three are smaller than the last bit of a float. A CPU multiplies tiles of bfloat16 16 times as fast as vectors of floats.
 *
 * The kernel computes C (M, N) = A (M, K) · B (K, N) + an addend, 32 rows by 32 columns at a time. Either factor may lie transposed in memory.
 * A step is one index k of the sums over K.
 *
 * Source: Henry, Tang and Heinecke, https://arxiv.org/abs/1904.06376; Intel 64 manual, volume 1, chapter 18.
 */
import { ptr } from "bun:ffi";
import { type Address, at, atIndex } from "./assembler.ts";
import { blocksOf, FLOAT_BYTES, KernelWriter } from "./kernel.ts";
import type { MachineCodeOperator } from "./operator.ts";
import { eachBlock, operatorOfProduct, type ProductBlock, type ProductShape, startOf } from "./product.ts";
import { R8, R9, R10, R11, R12, R13, R14, RAX, RBX, RDI, RDX, RSI } from "./registers.ts";
import {
  HIGH,
  LOW,
  layoutOf,
  MIDDLE,
  PANEL,
  PanelPacker,
  panelBytes,
  ROUND_BYTES,
  ROW_BYTES,
  roundsOf,
  TILE_ROWS,
  tilePlace,
} from "./tile-panels.ts";
import type { Emit } from "./transpose.ts";

/** Maximum number of steps, and of columns, of a packed block of B. The block has up to 0.8 MB, which the CPU's second-level cache holds. */
const DEPTH_MAX = 256;
const COLUMNS_MAX = 512;

/** The six products of parts, the largest last. Each differs from the product before in one part, so the kernel loads only this part. */
const PART_PAIRS = [
  [HIGH, LOW],
  [HIGH, MIDDLE],
  [MIDDLE, MIDDLE],
  [MIDDLE, HIGH],
  [LOW, HIGH],
  [HIGH, HIGH],
] as const;

/** The first of the tile registers that hold sums (four), tiles of A (two) and tiles of B (two). */
const [SUMS, LEFT, RIGHT] = [0, 4, 6];

export const tileProductOperator = (shape: ProductShape): MachineCodeOperator =>
  operatorOfProduct(shape, shape.transposeA ? TILE_ROWS : 1, (kernel) => new TileProduct(kernel, shape).write());

/** The product of a panel of A and a panel of B. */
interface PanelProduct extends Pick<ProductBlock, "depth" | "first"> {
  readonly rowTiles: number;
  readonly columnTiles: number;
  /** Number of rows of the next panel of A that the kernel packs during this product. */
  readonly packedRows: number;
}

/**
 * Writes the kernel. The kernel packs a panel of B just before the panel's first product. It packs a panel of A while it multiplies the panel
 * before: packing takes about as long as multiplying, and uses other parts of the CPU.
 *
 * Registers: r14 holds the bytes of a packed row, r13 the bytes of a row of C.
 */
class TileProduct extends KernelWriter<ProductShape> {
  readonly #packer = new PanelPacker(this.kernel);
  readonly #a = this.shape.transposeA
    ? layoutOf(this.shape.rows, false, true)
    : layoutOf(this.shape.depth, true, false);
  readonly #b = this.shape.transposeB
    ? layoutOf(this.shape.depth, true, true)
    : layoutOf(this.shape.columns, false, false);
  readonly #panelBytes = panelBytes(Math.min(this.shape.depth, DEPTH_MAX));
  /** Two panels: the kernel multiplies one while it packs the other. */
  readonly #panelsOfA = this.kernel.memory(2 * this.#panelBytes);
  readonly #panelsOfB = this.kernel.memory(
    this.#panelBytes * Math.ceil(Math.min(this.shape.columns, COLUMNS_MAX) / PANEL),
  );

  write(): void {
    const { kernel, code } = this;
    this.#packer.setConstants();
    code.constant(R14, ROW_BYTES);
    code.constant(R13, FLOAT_BYTES * this.shape.columns);
    eachBlock(kernel, this.shape, { depth: DEPTH_MAX, columns: COLUMNS_MAX }, (block, a, b) => {
      this.#addBlock(a, b, block);
    });
    code.releaseTiles();
  }

  /** Adds a block's product to all rows of C. @param a, b  variables with the addresses of the block's steps in A, and of the block in B */
  #addBlock(a: Address, b: Address, block: ProductBlock): void {
    const { depth, width, first } = block;
    const { rows, columns } = this.shape;
    const { kernel, code } = this;
    const [currentPanel, nextPanel] = [kernel.word(), kernel.word()];
    const [aRows, bColumns, cRows] = [kernel.word(), kernel.word(), kernel.word()];
    const [source, target] = [kernel.word(), kernel.word()];
    // The sums start from these rows.
    const startRows = kernel.word();
    const start = startOf(kernel, this.shape, block);
    const heights = blocksOf(rows, PANEL);
    const tilesOf = (height: number) => blocksOf(height, TILE_ROWS);

    code.addressOf(RDX, this.#panelsOfA);
    code.store(currentPanel, RDX);
    code.move(R8, a);
    this.#packer.pack(this.#a, depth, tilesOf(heights[0]!));
    code.store(nextPanel, RDX);
    kernel.set(aRows, a);
    kernel.set(cRows, kernel.outputs[0]!);
    kernel.set(startRows, start.rows);

    const passes = heights.map((height, i) => ({ height, next: heights[i + 1] ?? 0, packsB: i === 0 }));
    kernel.each(passes, ({ height, next, packsB }) => {
      code.constant(RAX, configurationOf(tilesOf(height)));
      code.configureTiles(at(RAX));
      kernel.advance(aRows, 2 * this.#a.tile);
      kernel.set(source, aRows);
      kernel.set(target, nextPanel);
      if (packsB) kernel.set(bColumns, b);
      code.addressOf(R9, this.#panelsOfB);
      code.move(R12, cRows);
      code.move(R11, startRows);
      kernel.each(this.#panelsOfBlock(width, next), ({ columnTiles, packedRows }) => {
        if (packsB) {
          code.move(R8, bColumns);
          code.move(RDX, R9);
          this.#packer.pack(this.#b, depth, new Array(columnTiles).fill(TILE_ROWS));
          kernel.advance(bColumns, 2 * this.#b.tile);
        }
        code.move(RBX, currentPanel);
        code.move(RSI, source);
        code.move(RDI, target);
        this.#multiply({ depth, first, rowTiles: tilesOf(height).length, columnTiles, packedRows });
        kernel.advance(source, packedRows * (this.#a.isTransposed ? this.#a.tile / TILE_ROWS : this.#a.row));
        kernel.advance(target, packedRows * ROW_BYTES);
      });
      kernel.swap(currentPanel, nextPanel);
      kernel.advance(cRows, PANEL * FLOAT_BYTES * columns);
      kernel.advance(startRows, PANEL * (start.rowBytes ?? 0));
    });
  }

  /** For each panel of B in a block: its number of tiles, and the number of rows of A's next panel that the kernel packs meanwhile. */
  #panelsOfBlock(width: number, rows: number): Pick<PanelProduct, "columnTiles" | "packedRows">[] {
    const widths = blocksOf(width, PANEL);
    const even = Math.ceil(rows / widths.length);
    const share = this.#a.isTransposed ? TILE_ROWS * Math.ceil(even / TILE_ROWS) : even;
    return widths.map((columns, i) => {
      return { columnTiles: columns / TILE_ROWS, packedRows: Math.min(share, Math.max(0, rows - i * share)) };
    });
  }

  /**
   * Multiplies two panels, and stores their tiles of C. Moves r9, r11 and r12 to the next columns.
   *
   * Registers: rbx: the panel of A; r9: the panel of B; r12: C; r11: the addend, or the sums so far; rsi: the rows to pack; rdi: their place.
   */
  #multiply({ depth, first, rowTiles, columnTiles, packedRows }: PanelProduct): void {
    const { columns, addend } = this.shape;
    const { code } = this;
    const sums = Array.from({ length: rowTiles * columnTiles }, (_, i) => {
      const [row, column] = [Math.floor(i / columnTiles), i % columnTiles];
      return { tile: SUMS + 2 * row + column, row, column };
    });
    const rowBytes = FLOAT_BYTES * columns;
    const place = (row: number, column: number) => row * TILE_ROWS * rowBytes + column * ROW_BYTES;
    if (first && addend === "bias") code.constant(RAX, 0);
    for (const { tile, row, column } of sums) {
      if (first && addend === "none") code.zeroTile(tile);
      else if (first && addend === "bias") code.loadTile(tile, atIndex(R11, RAX, 1, column * ROW_BYTES));
      else code.loadTile(tile, atIndex(R11, R13, 1, place(row, column)));
    }
    const multiplications = this.#multiplications(rowTiles, sums);
    const prefetchedRows = Math.ceil(PANEL / roundsOf(depth));
    code.move(R10, R12);
    this.#packer.eachRound(depth, (halves) => {
      const packing = this.#packer.packingRows(this.#a, halves, packedRows);
      interleave(multiplications, [...this.#prefetches(prefetchedRows, columnTiles), ...packing]);
      code.addConstant(RBX, ROUND_BYTES);
      code.addConstant(R9, ROUND_BYTES);
    });
    for (const { tile, row, column } of sums) code.storeTile(atIndex(R12, R13, 1, place(row, column)), tile);
    code.addConstant(R11, columnTiles * ROW_BYTES);
    code.addConstant(R12, columnTiles * ROW_BYTES);
  }

  /** Instructions that add one round of two panels' products to the sums. */
  #multiplications(rowTiles: number, sums: readonly { tile: number; row: number; column: number }[]): Emit[] {
    const { code } = this;
    const emits: Emit[] = [];
    const load = (tile: number, panel: number, part: number, count: number) => {
      for (let i = 0; i < count; i++)
        emits.push(() => code.loadTile(tile + i, atIndex(panel, R14, 1, tilePlace(part, i))));
    };
    let loaded: readonly [left: number, right: number] = [-1, -1];
    for (const [left, right] of PART_PAIRS) {
      if (left !== loaded[0]) load(LEFT, RBX, left, rowTiles);
      if (right !== loaded[1]) load(RIGHT, R9, right, sums.length / rowTiles);
      for (const { tile, row, column } of sums) emits.push(() => code.multiplyTiles(tile, LEFT + row, RIGHT + column));
      loaded = [left, right];
    }
    return emits;
  }

  /** Instructions that load some rows of C, from r10 on, into the first-level cache, so that stores do not wait. They move r10 to the next rows. */
  #prefetches(rows: number, columnTiles: number): Emit[] {
    const { code } = this;
    const rowBytes = FLOAT_BYTES * this.shape.columns;
    const places = Array.from({ length: rows * columnTiles }, (_, i) => {
      return Math.floor(i / columnTiles) * rowBytes + (i % columnTiles) * ROW_BYTES;
    });
    return [
      ...places.map((place) => () => code.prefetchForWriting(at(R10, place))),
      () => code.addConstant(R10, rows * rowBytes),
    ];
  }
}

/** Writes the instructions of `main`, and spreads those of `side` evenly between them. */
function interleave(main: readonly Emit[], side: readonly Emit[]): void {
  let written = 0;
  for (const [i, emit] of main.entries()) {
    emit();
    for (const end = Math.ceil((side.length * (i + 1)) / main.length); written < end; written++) side[written]!();
  }
}

/** Configurations by the arguments of `configurationOf`. They are never removed, because kernels contain their addresses. */
const configurations = new Map<string, Uint8Array<ArrayBuffer>>();

/**
 * Address of the configuration of the tile registers.
 *
 * @param tiles  rows of one or two tiles of A. The tiles of sums have these numbers of rows; tiles of B have 16 rows
 */
function configurationOf(tiles: readonly number[]): number {
  const bytes = configurations.getOrInsertComputed(tiles.join(), () => {
    const made = new Uint8Array(new ArrayBuffer(64));
    // Palette 1, the only one that Intel defines: 8 tiles of at most 16 rows of 64 bytes.
    made[0] = 1;
    const [first, second = TILE_ROWS] = tiles;
    for (const [tile, rows] of [first, first, second, second, first, second, TILE_ROWS, TILE_ROWS].entries()) {
      made[16 + 2 * tile] = ROW_BYTES;
      made[48 + tile] = rows!;
    }
    return made;
  });
  return ptr(bytes.buffer);
}

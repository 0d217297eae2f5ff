/** Transposes blocks of 16 × 16 floats in vectors of AVX-512. */
import type { Address, Assembler } from "./assembler.ts";
import { shifted } from "./kernel.ts";

/** Rows and columns of a block. */
export const BLOCK = 16;

/** Writes one instruction or a few. */
export type Emit = () => void;

/** Where a block lies in memory. */
interface Place {
  readonly start: Address;
  /** Bytes from row to row. */
  readonly row: number;
}

/** Writes instructions that put row `i` of a block into vector `i`. */
type LoadRow = (row: number) => void;

/** Loads the rows of a block in memory. */
export const rowsOf = (code: Assembler, { start, row }: Place): LoadRow => {
  return (i) => code.loadVector(i, shifted(start, i * row));
};

/** Stores the rows of a block as the columns of another. Overwrites the vectors 0 to 16. */
export function transpose(code: Assembler, load: LoadRow, to: Place): void {
  for (const emit of transposing(code, load, to)) emit();
}

/** Instructions that store the rows of a block as the columns of another. They overwrite the vectors 0 to 16. */
export function transposing(code: Assembler, load: LoadRow, to: Place): Emit[] {
  const vectors = Array.from({ length: BLOCK }, (_, i) => i);
  let spare = BLOCK;
  const emits = vectors.map((row) => () => load(row));
  type Combine = (to: number, a: number, b: number) => void;
  /** Replaces vector i by first(i, j), and vector j by second(i, j). */
  const pair = (i: number, j: number, first: Combine, second: Combine) => {
    const [to, a, b] = [spare, vectors[i]!, vectors[j]!];
    emits.push(
      () => first(to, a, b),
      () => second(b, a, b),
    );
    [vectors[i], spare] = [to, a];
  };
  const interleave =
    (operation: "interleaveLow" | "interleaveHigh"): Combine =>
    (to, a, b) =>
      code.vector(operation, to, a, b);
  const pick =
    (operation: "pickFloats" | "pickLanes", order: number): Combine =>
    (to, a, b) =>
      code.pick(operation, to, a, b, order);
  // Afterwards each 128 bits hold four rows of one column.
  for (let i = 0; i < BLOCK; i += 2) pair(i, i + 1, interleave("interleaveLow"), interleave("interleaveHigh"));
  const [lower, upper] = [pick("pickFloats", 0b01_00_01_00), pick("pickFloats", 0b11_10_11_10)];
  for (let i = 0; i < BLOCK; i += 4) for (const j of [i, i + 1]) pair(j, j + 2, lower, upper);
  // Puts the four 128 bits of a column into one vector.
  const [even, odd] = [pick("pickLanes", 0b10_00_10_00), pick("pickLanes", 0b11_01_11_01)];
  for (let i = 0; i < 4; i++) {
    pair(i, i + 4, even, odd);
    pair(i + 8, i + 12, even, odd);
    pair(i, i + 8, even, odd);
    pair(i + 4, i + 12, even, odd);
  }
  const columnOf = [0, 2, 1, 3];
  for (const [i, vector] of vectors.entries()) {
    const column = columnOf[i % 4]! + 4 * Math.floor(i / 4);
    emits.push(() => code.storeVector(shifted(to.start, column * to.row), vector));
  }
  return emits;
}

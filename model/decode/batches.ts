/** How the decoder divides steps and appends into calls of compiled functions, so that few shapes are compiled. */
import { roundUp } from "../engine/graph.ts";

/** Minimum number of rows of a product in a step or an append. */
export const ROWS_MIN = 4;
/**
 * Maximum number of sequences (rows) and tokens that an append computes at once. With a cache for each row, more rows make the graph
 * longer and its products faster. The memory of the attention scores is proportional to tokens times capacity.
 */
export const APPEND_LIMITS = { rows: 16, tokens: 512 };
/** The same maximum on a GPU, where one large kernel is faster than several small kernels. */
export const APPEND_ON_GPU_LIMITS = { rows: 64, tokens: 2048 };
/** Maximum number of tokens of a sequence that an append computes at once. */
const PIECE_TOKENS_MAX = 512;

/** Tokens to append to a slot. */
export interface Piece {
  /** Index among the arguments of `append`. */
  readonly index: number;
  readonly slot: number;
  readonly added: readonly number[];
}

/** Splits the rows of a step among lanes, in multiples of 16: a lane with few rows would mostly wait for the other lanes. */
export function partsOf(rows: number, lanes: number): { from: number; rows: number }[] {
  const rowsMax = roundUp(Math.ceil(rows / lanes), 16);
  const parts: { from: number; rows: number }[] = [];
  for (let from = 0; from < rows; from += rowsMax) parts.push({ from, rows: Math.min(rowsMax, rows - from) });
  return parts;
}

/** Splits long pieces into parts. Round i has the i-th part of each piece that has at least i parts. */
export function roundsOf(pieces: readonly Piece[]): Piece[][] {
  const rounds = Math.ceil(Math.max(0, ...pieces.map(({ added }) => added.length)) / PIECE_TOKENS_MAX);
  return Array.from({ length: rounds }, (_, round) => {
    const begin = round * PIECE_TOKENS_MAX;
    return pieces
      .filter(({ added }) => added.length > begin)
      .map((piece) => ({ ...piece, added: piece.added.slice(begin, begin + PIECE_TOKENS_MAX) }));
  });
}

/** Splits pieces of `length` tokens into batches whose sizes are powers of two, so no row is padding. */
export function batchesOf(group: readonly Piece[], length: number, { rows, tokens }: typeof APPEND_LIMITS): Piece[][] {
  const rowsMax = Math.min(rows, 2 ** Math.floor(Math.log2(tokens / length)));
  const batches: Piece[][] = [];
  for (let rows = rowsMax, from = 0; from < group.length; rows /= 2) {
    for (; from + rows <= group.length; from += rows) batches.push(group.slice(from, from + rows));
  }
  return batches;
}

export const firstSlots = (rows: number): Int32Array => Int32Array.from({ length: rows }, (_, slot) => slot);

/**
 * The slots that a step computes: the slots with a token in ascending order, then other slots as padding. Empty slots come first in the
 * padding, because attention in an empty slot reads only one token.
 *
 * @param isFed    by slot: 1 if the slot gets a token
 * @param lengths  by slot: tokens in the slot's cache
 */
export function slotsOfStep(isFed: Uint8Array, lengths: Int32Array): Int32Array {
  const slots: number[] = [];
  for (let slot = 0; slot < isFed.length; slot++) if (isFed[slot] === 1) slots.push(slot);
  const rows = stepRows(slots.length);
  for (const isEmpty of [true, false]) {
    for (let slot = 0; slot < isFed.length && slots.length < rows; slot++) {
      if (isFed[slot] === 0 && (lengths[slot] === 0) === isEmpty) slots.push(slot);
    }
  }
  return new Int32Array(slots);
}

const powerOfTwo = (value: number) => 2 ** Math.ceil(Math.log2(value));

export const stepRows = (rows: number) => (rows <= 16 ? Math.max(powerOfTwo(rows), ROWS_MIN) : roundUp(rows, 16));
export const appendStep = (tokens: number) => (tokens <= 32 ? 8 : tokens <= 128 ? 16 : 64);
export const appendLength = (tokens: number) => roundUp(tokens, appendStep(tokens));

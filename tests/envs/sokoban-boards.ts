/** Boards of Sokoban from cell codes. */
import { BOX, BOX_ON_TARGET, type Board, PLAYER, TARGET, WALL } from "../../envs/sokoban/rules.ts";

/**
 * A board from two matrices of cell codes.
 *
 * @throws {RangeError} naming the violated invariant.
 */
export function boardOf(fixed: readonly (readonly number[])[], state: readonly (readonly number[])[]): Board {
  const rows = state.length;
  const cols = state[0]?.length ?? 0;
  const board = { rows, cols, fixed: Uint8Array.from(fixed.flat()), state: Uint8Array.from(state.flat()) };
  const count = (code: number, cells: Uint8Array) => cells.filter((cell) => cell === code).length;
  const boxes = count(BOX, board.state) + count(BOX_ON_TARGET, board.state);
  if (board.fixed.length !== rows * cols || board.state.length !== rows * cols) {
    throw new RangeError(`a ${rows} by ${cols} board needs ${rows * cols} cells in each layer`);
  }
  if (count(PLAYER, board.state) !== 1) throw new RangeError(`a board has 1 player, got ${count(PLAYER, board.state)}`);
  if (boxes !== count(TARGET, board.fixed)) {
    throw new RangeError(`a board has as many boxes as targets, got ${boxes} and ${count(TARGET, board.fixed)}`);
  }
  for (let cell = 0; cell < rows * cols; cell++) {
    const row = Math.floor(cell / cols);
    const onRing = row === 0 || row === rows - 1 || cell % cols === 0 || cell % cols === cols - 1;
    if (onRing && board.fixed[cell] !== WALL) throw new RangeError(`cell (${row}, ${cell % cols}) must be a wall`);
  }
  return board;
}

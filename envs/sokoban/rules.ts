/**
 * The rules of Sokoban. Knows neither the generation nor the rendering of boards.
 *
 * - A board has a ring of walls, one player, and as many boxes as targets.
 * - Cells are row-major. `fixed` holds the constant part (wall, floor, target), `state` the visible cells.
 *
 * Source: gym_sokoban and RAGEN ragen/env/sokoban/env.py.
 */
import type { Effect } from "../env.ts";

export const WALL = 0;
export const FLOOR = 1;
export const TARGET = 2;
export const BOX_ON_TARGET = 3;
export const BOX = 4;
export const PLAYER = 5;

export const SOKOBAN_ACTIONS = ["Up", "Down", "Left", "Right"] as const;

export interface Board {
  readonly rows: number;
  readonly cols: number;
  /** (rows * cols) WALL, FLOOR or TARGET. */
  readonly fixed: Uint8Array;
  /** (rows * cols) the codes above; PLAYER hides whether the cell is a target. */
  readonly state: Uint8Array;
}

/** Cells of the boxes, ascending. */
export const boxesOf = ({ state }: Board): number[] =>
  [...state.keys()].filter((cell) => state[cell] === BOX || state[cell] === BOX_ON_TARGET);

/** Index steps of Up, Down, Left, Right. */
export function deltas(cols: number): readonly [number, number, number, number] {
  return [-cols, cols, -1, 1];
}

const STEP = -0.1;
const effects = (effective: boolean, success: boolean, done: boolean, reward: number): Effect =>
  Object.freeze({ reward, done, effective, valid: true, success });
// Nearly all actions have one of these two effects. Shared objects save an allocation for each action.
const MOVED = effects(true, false, false, STEP);
const BLOCKED = effects(false, false, false, STEP);

/** True if a box stands in a corner of walls and not on a target. A box cannot leave a corner. */
export function cornered({ state, fixed, cols }: Board): boolean {
  const wall = (cell: number) => fixed[cell] === WALL;
  return state.some(
    (code, cell) => code === BOX && (wall(cell - cols) || wall(cell + cols)) && (wall(cell - 1) || wall(cell + 1)),
  );
}

/** A game in progress: the board, the number of steps, and the number of boxes on targets. */
export class SokobanState {
  readonly board: Board;
  readonly #deltas: readonly [number, number, number, number];
  readonly #boxCount: number;
  readonly #stepsMax: number;
  #player: number;
  /** The boxes' part of `position`. */
  #boxes: number;
  #steps = 0;
  #onTarget: number;
  /** Boxes on targets before the last action. The number starts at 0 as in RAGEN: generated boards start without boxes on targets. */
  #onTargetBefore = 0;
  #done = false;

  /** Takes ownership of the board; actions change `board.state`. */
  constructor(board: Board, stepsMax: number) {
    this.board = board;
    this.#stepsMax = stepsMax;
    this.#deltas = deltas(board.cols);
    this.#boxes = positionOfBoxes(board);
    let player = -1;
    let boxes = 0;
    let onTarget = 0;
    // This loop uses an index, because random plays open thousands of games a second. An iterator would take longer than the rest of this
    // constructor.
    for (let cell = 0; cell < board.state.length; cell++) {
      const code = board.state[cell];
      if (code === PLAYER) player = cell;
      if (code === BOX || code === BOX_ON_TARGET) boxes++;
      if (code === BOX_ON_TARGET) onTarget++;
    }
    this.#player = player;
    this.#boxCount = boxes;
    this.#onTarget = onTarget;
  }

  /** Cells of the boxes and the player as one number. The number is exact if the board has at most 256 cells and 5 boxes. */
  get position(): number {
    return this.#boxes + this.#player;
  }

  /** @throws {Error} if the game is over. */
  act(action: number): Effect {
    if (this.#done) throw new Error("this Sokoban game is over; open a new one");
    const delta = this.#deltas[action];
    if (delta === undefined) throw new RangeError(`Sokoban has actions 0 to 3, got ${action}`);
    const moved = this.#move(delta);
    this.#steps++;
    if (this.#onTarget === this.#onTargetBefore && this.#steps < this.#stepsMax) return moved ? MOVED : BLOCKED;
    let reward = STEP;
    if (this.#onTarget > this.#onTargetBefore) reward += 1;
    if (this.#onTarget < this.#onTargetBefore) reward -= 1;
    this.#onTargetBefore = this.#onTarget;
    const success = this.#onTarget === this.#boxCount;
    if (success) reward += 10;
    this.#done = success || this.#steps >= this.#stepsMax;
    return effects(moved, success, this.#done, reward);
  }

  /** True if the player moved, pushing a box or not. */
  #move(delta: number): boolean {
    const { fixed, state } = this.board;
    const next = this.#player + delta;
    const ahead = state[next]!;
    if (ahead === WALL) return false;
    if (ahead >= BOX_ON_TARGET) {
      const beyond = next + delta;
      if (state[beyond] !== FLOOR && state[beyond] !== TARGET) return false;
      const ontoTarget = fixed[beyond] === TARGET;
      state[beyond] = ontoTarget ? BOX_ON_TARGET : BOX;
      this.#onTarget += (ontoTarget ? 1 : 0) - (ahead === BOX_ON_TARGET ? 1 : 0);
    }
    state[this.#player] = fixed[this.#player]!;
    state[next] = PLAYER;
    this.#player = next;
    if (ahead >= BOX_ON_TARGET) this.#boxes = positionOfBoxes(this.board);
    return true;
  }
}

/** Ascending cells of the boxes, then 0 for the player, as the digits of a number in base rows * cols. */
function positionOfBoxes({ rows, cols, state }: Board): number {
  const cells = rows * cols;
  let position = 0;
  for (let cell = 0; cell < cells; cell++) {
    if (state[cell] === BOX || state[cell] === BOX_ON_TARGET) position = (position + cell) * cells;
  }
  return position;
}

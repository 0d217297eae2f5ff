/**
 * Finds shortest solutions of Sokoban boards by breadth-first search over positions. Plays no game.
 *
 * Source: RAGEN's get_shortest_action_path. The search tries moves in the order Up, Down, Left, Right. Of equally short solutions,
 * the search returns the first that it finds.
 */
import { type Board, boxesOf, deltas, PLAYER, TARGET, WALL } from "./rules.ts";

/** RAGEN's MAX_DEPTH. */
const DEPTH_MAX = 100;

/**
 * A shortest solution from the board's position.
 *
 * @returns action indices (0 Up, 1 Down, 2 Left, 3 Right), empty if the board is solved; null if no solution has at most 100 actions.
 */
export function shortestPath(board: Board): number[] | null {
  return new Search(board).run();
}

/** One search. A position is `width` cells in flat arrays: the player, then the boxes in ascending order. */
class Search {
  readonly #fixed: Uint8Array;
  readonly #deltas: readonly number[];
  readonly #width: number;
  readonly #start: number[];
  /** The cells of all found positions, in the order of discovery. */
  readonly #cells: number[] = [];
  readonly #parents: number[] = [];
  readonly #actions: number[] = [];
  readonly #found = new Set<number>();
  readonly #next: number[];

  constructor(board: Board) {
    this.#fixed = board.fixed;
    this.#deltas = deltas(board.cols);
    this.#start = [board.state.indexOf(PLAYER), ...boxesOf(board)];
    this.#width = this.#start.length;
    this.#next = [...this.#start];
  }

  run(): number[] | null {
    if (this.#solved(this.#start)) return [];
    this.#add(this.#start, -1, -1);
    let levelEnd = 1;
    let depth = 0;
    for (let at = 0; at < this.#parents.length; at++) {
      if (at === levelEnd) {
        levelEnd = this.#parents.length;
        if (++depth === DEPTH_MAX) return null;
      }
      for (let action = 0; action < 4; action++) {
        if (this.#step(at, this.#deltas[action]!) && this.#add(this.#next, at, action) && this.#solved(this.#next)) {
          return this.#path(this.#parents.length - 1);
        }
      }
    }
    return null;
  }

  /** Fills `#next` with the position after one move; false if the move changes nothing. */
  #step(at: number, delta: number): boolean {
    const base = at * this.#width;
    const player = this.#cells[base]! + delta;
    if (this.#fixed[player] === WALL) return false;
    this.#next[0] = player;
    let pushed = 0;
    for (let i = 1; i < this.#width; i++) {
      const box = this.#cells[base + i]!;
      this.#next[i] = box;
      if (box === player) pushed = i;
    }
    if (pushed === 0) return true;
    const beyond = player + delta;
    if (this.#fixed[beyond] === WALL) return false;
    for (let i = 1; i < this.#width; i++) if (this.#next[i] === beyond) return false;
    this.#next[pushed] = beyond;
    // Move the pushed box to its place in ascending order.
    for (let i = pushed; i > 1 && this.#next[i - 1]! > beyond; i--) this.#swap(i, i - 1);
    for (let i = pushed; i < this.#width - 1 && this.#next[i + 1]! < beyond; i++) this.#swap(i, i + 1);
    return true;
  }

  #swap(i: number, j: number): void {
    const kept = this.#next[i]!;
    this.#next[i] = this.#next[j]!;
    this.#next[j] = kept;
  }

  /** Adds a position; false if the position is already known. */
  #add(position: readonly number[], parent: number, action: number): boolean {
    let key = 0;
    for (let i = 0; i < this.#width; i++) key = key * this.#fixed.length + position[i]!;
    if (this.#found.has(key)) return false;
    this.#found.add(key);
    for (let i = 0; i < this.#width; i++) this.#cells.push(position[i]!);
    this.#parents.push(parent);
    this.#actions.push(action);
    return true;
  }

  #solved(position: readonly number[]): boolean {
    for (let i = 1; i < this.#width; i++) if (this.#fixed[position[i]!] !== TARGET) return false;
    return true;
  }

  #path(end: number): number[] {
    const path: number[] = [];
    for (let at = end; this.#parents[at]! >= 0; at = this.#parents[at]!) path.push(this.#actions[at]!);
    return path.reverse();
  }
}

/**
 * Finds shortest solutions of Sokoban boards by breadth-first search over positions. Does not change the board.
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
  const { fixed } = board;
  const steps = deltas(board.cols);
  /** The first position. A position is the player's cell, then the boxes' cells in ascending order. */
  const start = [board.state.indexOf(PLAYER), ...boxesOf(board)];
  const width = start.length;
  /** The cells of all found positions, `width` for each, in the order of discovery. */
  const cells: number[] = [];
  /** For each found position: the index of the position before it. `actions` has the action between these two positions. */
  const parents: number[] = [];
  const actions: number[] = [];
  const found = new Set<number>();
  const next = [...start];

  /** Fills `next` with the position after one move; false if the move changes nothing. */
  function step(at: number, delta: number): boolean {
    const base = at * width;
    const player = cells[base]! + delta;
    if (fixed[player] === WALL) return false;
    next[0] = player;
    let pushed = 0;
    for (let i = 1; i < width; i++) {
      const box = cells[base + i]!;
      next[i] = box;
      if (box === player) pushed = i;
    }
    if (pushed === 0) return true;
    const beyond = player + delta;
    if (fixed[beyond] === WALL) return false;
    for (let i = 1; i < width; i++) if (next[i] === beyond) return false;
    next[pushed] = beyond;
    // Move the pushed box to its place in ascending order.
    for (let i = pushed; i > 1 && next[i - 1]! > beyond; i--) swap(next, i, i - 1);
    for (let i = pushed; i < width - 1 && next[i + 1]! < beyond; i++) swap(next, i, i + 1);
    return true;
  }

  /** Adds a position; false if the position is already known. */
  function add(position: readonly number[], parent: number, action: number): boolean {
    let key = 0;
    for (let i = 0; i < width; i++) key = key * fixed.length + position[i]!;
    if (found.has(key)) return false;
    found.add(key);
    for (let i = 0; i < width; i++) cells.push(position[i]!);
    parents.push(parent);
    actions.push(action);
    return true;
  }

  function solved(position: readonly number[]): boolean {
    for (let i = 1; i < width; i++) if (fixed[position[i]!] !== TARGET) return false;
    return true;
  }

  function pathTo(end: number): number[] {
    const path: number[] = [];
    for (let at = end; parents[at]! >= 0; at = parents[at]!) path.push(actions[at]!);
    return path.reverse();
  }

  if (solved(start)) return [];
  add(start, -1, -1);
  let levelEnd = 1;
  let depth = 0;
  for (let at = 0; at < parents.length; at++) {
    if (at === levelEnd) {
      levelEnd = parents.length;
      if (++depth === DEPTH_MAX) return null;
    }
    for (let action = 0; action < 4; action++) {
      if (step(at, steps[action]!) && add(next, at, action) && solved(next)) return pathTo(parents.length - 1);
    }
  }
  return null;
}

function swap(cells: number[], i: number, j: number): void {
  const kept = cells[i]!;
  cells[i] = cells[j]!;
  cells[j] = kept;
}

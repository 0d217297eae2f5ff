/**
 * Generates frozen lakes: holes, start and goal. Plays no game.
 *
 * - Start and goal differ, and a path over frozen cells connects them.
 * - For equal settings and seeds the lake equals RAGEN's lake.
 *
 * Source: RAGEN ragen/env/frozen_lake/utils.py (random start and goal, unlike gymnasium's corners).
 */
import { Pcg64 } from "../rng/pcg64.ts";

export interface Lake {
  /** Cells per side; cells are row-major. */
  readonly size: number;
  /** (size * size) 1 for a hole. */
  readonly holes: Uint8Array;
  readonly start: number;
  readonly goal: number;
}

/** @param frozen probability that a cell is frozen. */
export function generateLake(size: number, frozen: number, seed: number): Lake {
  const random = new Pcg64(seed);
  for (;;) {
    const holes = Uint8Array.from({ length: size * size }, () => (random.random() < frozen ? 0 : 1));
    const start = random.integers(size) * size + random.integers(size);
    const goal = random.integers(size) * size + random.integers(size);
    if (start === goal) continue;
    holes[start] = 0;
    holes[goal] = 0;
    const lake = { size, holes, start, goal };
    if (reachable(lake)) return lake;
  }
}

function reachable({ size, holes, start, goal }: Lake): boolean {
  const seen = new Uint8Array(size * size);
  const open = [start];
  seen[start] = 1;
  for (let cell = open.pop(); cell !== undefined; cell = open.pop()) {
    if (cell === goal) return true;
    for (let action = 0; action < 4; action++) {
      const next = moved(size, cell, action);
      if (seen[next] === 1 || holes[next] === 1) continue;
      seen[next] = 1;
      open.push(next);
    }
  }
  return false;
}

/** The cell after a move without slipping: 0 Left, 1 Down, 2 Right, 3 Up. The edge of the lake stops a move. */
export function moved(size: number, cell: number, action: number): number {
  const col = cell % size;
  switch (action) {
    case 0:
      return col > 0 ? cell - 1 : cell;
    case 1:
      return cell + size < size * size ? cell + size : cell;
    case 2:
      return col < size - 1 ? cell + 1 : cell;
    case 3:
      return cell >= size ? cell - size : cell;
    default:
      throw new RangeError(`FrozenLake has actions 0 to 3, got ${action}`);
  }
}

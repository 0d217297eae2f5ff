/**
 * Plays Sokoban backwards from the solved position and keeps the most scrambled position. Deterministic. Knows no seeds.
 *
 * - The search visits each position once, at the depth where it first finds it. As in RAGEN (codes 3 and 4), two positions also differ if
 *   the player has pulled a box in one position and not in the other.
 */
import { deltas, WALL } from "./rules.ts";

/** The search ends after this many positions. */
const VISITED_MAX = 300_000;

interface Solved {
  /** (cells) WALL, FLOOR or TARGET. */
  readonly fixed: Uint8Array;
  readonly cols: number;
  readonly player: number;
  /** Cells of the targets. One box stands on each target. */
  readonly targets: readonly number[];
}

export interface Scrambled {
  readonly player: number;
  /** Cell of the box that started on target i. */
  readonly boxes: readonly number[];
  /** Sum of the boxes' Manhattan distances from the targets that they started on; 0 if a box or the player covers a target. */
  readonly displacement: number;
}

/**
 * @returns the first position with the highest score. The score is `displacement` times the number of pulls of a box other than the box pulled
 * before.
 */
export function scramble({ fixed, cols, player: start, targets }: Solved, depthMax: number): Scrambled {
  const steps = deltas(cols);
  const boxes = [...targets];
  /** Box index + 1 by cell; 0 where there is none. */
  const boxAt = new Uint8Array(fixed.length);
  targets.forEach((cell, i) => {
    boxAt[cell] = i + 1;
  });
  const pulled = targets.map(() => false);
  const visited = new Set<number>();
  const keys = targets.map(() => 0);
  let best: Scrambled = { player: start, boxes: [...targets], displacement: 0 };
  let bestScore = -1;

  function search(player: number, swaps: number, lastPulled: number, depthLeft: number): void {
    if (depthLeft - 1 <= 0 || visited.size >= VISITED_MAX) return;
    const visitedBefore = visited.size;
    visited.add(keyOf(player));
    if (visited.size === visitedBefore) return;
    // If a target is covered, the score is 0. With this score, only the first position can become the best.
    const displacement = targetsVisible(player) ? displacementOf() : 0;
    const score = swaps * displacement;
    if (score > bestScore) {
      bestScore = score;
      best = { player, boxes: [...boxes], displacement };
    }
    for (const delta of steps) move(player, delta, swaps, lastPulled, depthLeft - 1);
  }

  /** Moves the player and the box behind the player, if any, by one step, searches from the new position, and undoes the step. */
  function move(player: number, delta: number, swaps: number, lastPulled: number, depthLeft: number): void {
    const next = player + delta;
    // The player cannot step there.
    if (fixed[next] === WALL || boxAt[next] !== 0) return;
    const behind = player - delta;
    const box = boxAt[behind]! - 1;
    if (box < 0) {
      search(next, swaps, lastPulled, depthLeft);
      return;
    }
    const pulledBefore = pulled[box]!;
    place(box, behind, player, true);
    search(next, box === lastPulled ? swaps : swaps + 1, box, depthLeft);
    place(box, player, behind, pulledBefore);
  }

  function place(box: number, from: number, to: number, isPulled: boolean): void {
    boxAt[from] = 0;
    boxAt[to] = box + 1;
    boxes[box] = to;
    pulled[box] = isPulled;
  }

  /** Player and boxes as one exact number. Boxes are interchangeable, except for whether they were pulled. */
  function keyOf(player: number): number {
    for (let i = 0; i < boxes.length; i++) keys[i] = boxes[i]! * 2 + (pulled[i] ? 1 : 0);
    if (keys.length > 1) keys.sort((a, b) => a - b);
    let key = player;
    for (const box of keys) key = key * fixed.length * 2 + box;
    return key;
  }

  /** True if neither a box nor the player covers a target. */
  function targetsVisible(player: number): boolean {
    for (const target of targets) if (target === player || boxAt[target] !== 0) return false;
    return true;
  }

  function displacementOf(): number {
    let sum = 0;
    for (let i = 0; i < targets.length; i++) {
      const a = boxes[i]!;
      const b = targets[i]!;
      sum += Math.abs(Math.floor(a / cols) - Math.floor(b / cols)) + Math.abs((a % cols) - (b % cols));
    }
    return sum;
  }

  search(start, 0, -1, depthMax);
  return best;
}

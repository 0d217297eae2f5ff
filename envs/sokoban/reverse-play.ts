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
 * @returns the first position with the highest score. The score is `displacement` times the number of times that the search pulled another
 * box than before.
 */
export function scramble(solved: Solved, depthMax: number): Scrambled {
  return new ReversePlay(solved).run(depthMax);
}

class ReversePlay {
  readonly #solved: Solved;
  readonly #deltas: readonly number[];
  readonly #boxes: number[];
  /** Box index + 1 by cell; 0 where there is none. */
  readonly #boxAt: Uint8Array;
  readonly #pulled: boolean[];
  readonly #visited = new Set<number>();
  readonly #keys: number[];
  #best: Scrambled;
  #bestScore = -1;

  constructor(solved: Solved) {
    this.#solved = solved;
    this.#deltas = deltas(solved.cols);
    this.#boxes = [...solved.targets];
    this.#boxAt = new Uint8Array(solved.fixed.length);
    solved.targets.forEach((cell, i) => {
      this.#boxAt[cell] = i + 1;
    });
    this.#pulled = solved.targets.map(() => false);
    this.#keys = solved.targets.map(() => 0);
    this.#best = { player: solved.player, boxes: [...solved.targets], displacement: 0 };
  }

  run(depthMax: number): Scrambled {
    this.#search(this.#solved.player, 0, -1, depthMax);
    return this.#best;
  }

  #search(player: number, swaps: number, lastPulled: number, depthLeft: number): void {
    if (depthLeft - 1 <= 0 || this.#visited.size >= VISITED_MAX) return;
    const key = this.#key(player);
    if (this.#visited.has(key)) return;
    this.#visited.add(key);
    // If a target is covered, the score is 0. With this score, only the first position can become the best.
    const displacement = this.#targetsVisible(player) ? this.#displacement() : 0;
    const score = swaps * displacement;
    if (score > this.#bestScore) {
      this.#bestScore = score;
      this.#best = { player, boxes: [...this.#boxes], displacement };
    }
    for (const delta of this.#deltas) this.#move(player, delta, swaps, lastPulled, depthLeft - 1);
  }

  /** Moves the player and the box behind the player, if any, by one step, searches from the new position, and undoes the step. */
  #move(player: number, delta: number, swaps: number, lastPulled: number, depthLeft: number): void {
    const next = player + delta;
    if (this.#solved.fixed[next] === WALL || this.#boxAt[next] !== 0) {
      // The position is unchanged and thus visited already.
      return;
    }
    const behind = player - delta;
    const box = this.#boxAt[behind]! - 1;
    if (box < 0) {
      this.#search(next, swaps, lastPulled, depthLeft);
      return;
    }
    const pulledBefore = this.#pulled[box]!;
    this.#place(box, behind, player, true);
    this.#search(next, box === lastPulled ? swaps : swaps + 1, box, depthLeft);
    this.#place(box, player, behind, pulledBefore);
  }

  #place(box: number, from: number, to: number, pulled: boolean): void {
    this.#boxAt[from] = 0;
    this.#boxAt[to] = box + 1;
    this.#boxes[box] = to;
    this.#pulled[box] = pulled;
  }

  /** Player and boxes as one exact number. Boxes are interchangeable, except for whether they were pulled. */
  #key(player: number): number {
    const cells = this.#solved.fixed.length;
    for (let i = 0; i < this.#boxes.length; i++) this.#keys[i] = this.#boxes[i]! * 2 + (this.#pulled[i] ? 1 : 0);
    if (this.#keys.length > 1) this.#keys.sort((a, b) => a - b);
    let key = player;
    for (const box of this.#keys) key = key * cells * 2 + box;
    return key;
  }

  /** True if no target is hidden by a box or by the player. */
  #targetsVisible(player: number): boolean {
    for (const target of this.#solved.targets) if (target === player || this.#boxAt[target] !== 0) return false;
    return true;
  }

  #displacement(): number {
    const { cols, targets } = this.#solved;
    let sum = 0;
    for (let i = 0; i < targets.length; i++) {
      const a = this.#boxes[i]!;
      const b = targets[i]!;
      sum += Math.abs(Math.floor(a / cols) - Math.floor(b / cols)) + Math.abs((a % cols) - (b % cols));
    }
    return sum;
  }
}

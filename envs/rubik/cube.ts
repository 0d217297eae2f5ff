/**
 * The 2x2 cube: 24 stickers, and its 12 turns as permutations. Knows no game.
 *
 * - The faces are U, L, F, R, B, D with four stickers each, row by row as seen from outside.
 * - A turn is `next[i] = old[turn[i]]`; a primed turn equals three plain turns.
 *
 * Source: RAGEN-2 ragen/env/rubikscube. RAGEN-2's B turn swaps two stickers of D, which is impossible on a real cube. `shippedBack` reproduces
 * this turn.
 */

export const TURNS = ["U", "U'", "D", "D'", "L", "L'", "R", "R'", "F", "F'", "B", "B'"] as const;

type Pair = readonly [number, number];

interface Spin {
  readonly face: number;
  /**
   * Pairs of stickers around the face. Each pair takes the stickers of the next pair; the last pair takes the stickers of the first pair.
   */
  readonly ring: readonly [Pair, Pair, Pair, Pair];
}

// biome-ignore format: one turn a line
const SPINS: readonly Spin[] = [
  { face: 0, ring: [[4, 5], [8, 9], [12, 13], [16, 17]] },
  { face: 5, ring: [[6, 7], [18, 19], [14, 15], [10, 11]] },
  { face: 1, ring: [[0, 2], [19, 17], [20, 22], [8, 10]] },
  { face: 3, ring: [[1, 3], [9, 11], [21, 23], [18, 16]] },
  { face: 2, ring: [[2, 3], [7, 5], [21, 20], [12, 14]] },
];
// biome-ignore format: one turn a line
const BACK: Spin = { face: 4, ring: [[0, 1], [13, 15], [23, 22], [6, 4]] };
// biome-ignore format: one turn a line
const SHIPPED_BACK: Spin = { face: 4, ring: [[0, 1], [13, 15], [22, 23], [6, 4]] };

/** A permutation (24) for each of the 12 turns, in the order of TURNS. */
export function turns(shippedBack: boolean): readonly (readonly number[])[] {
  return [...SPINS, shippedBack ? SHIPPED_BACK : BACK].flatMap((spin) => {
    const once = permutation(spin);
    const thrice = turned(turned(once, once), once);
    return [once, thrice];
  });
}

function permutation({ face, ring }: Spin): number[] {
  const from = Array.from({ length: 24 }, (_, i) => i);
  const first = face * 4;
  // A face's stickers, clockwise: 0 1 / 2 3 becomes 2 0 / 3 1.
  [2, 0, 3, 1].forEach((old, i) => {
    from[first + i] = first + old;
  });
  ring.forEach((pair, i) => {
    const source = ring[(i + 1) % 4]!;
    from[pair[0]] = source[0];
    from[pair[1]] = source[1];
  });
  return from;
}

export function turned(state: readonly number[], turn: readonly number[]): number[] {
  return turn.map((from) => state[from]!);
}

/** The color of each sticker: 0 to 5, its face on the solved cube. */
export const SOLVED: readonly number[] = Array.from({ length: 24 }, (_, i) => Math.floor(i / 4));

export function isSolved(state: readonly number[]): boolean {
  return state.every((color, i) => color === state[i - (i % 4)]);
}

/**
 * Finds a shortest solution of the cube by iterative deepening.
 *
 * @returns indices into TURNS; null if the shortest solution has more than `depthMax` turns.
 */
export function solveCube(
  state: readonly number[],
  all: readonly (readonly number[])[],
  depthMax: number,
): number[] | null {
  for (let depth = 0; depth <= depthMax; depth++) {
    const path = search(state, all, depth, -1);
    if (path !== null) return path;
  }
  return null;
}

function search(
  state: readonly number[],
  all: readonly (readonly number[])[],
  depth: number,
  last: number,
): number[] | null {
  if (depth === 0) return isSolved(state) ? [] : null;
  for (let turn = 0; turn < all.length; turn++) {
    // This turn would undo the last turn.
    if ((turn ^ 1) === last) continue;
    const rest = search(turned(state, all[turn]!), all, depth - 1, turn);
    if (rest !== null) return [turn, ...rest];
  }
  return null;
}

/**
 * RAGEN's board generator: a random walk carves a room, boxes start on targets, and a depth-first search plays backwards
 * to the most scrambled position. `SokobanState` (rules.ts) plays the board.
 *
 * - Equal configs and seeds give RAGEN's boards. If a seed gives no board, the generator goes on with the seed that RAGEN tries next under
 *   PYTHONHASHSEED=0.
 * - CPython's generator draws the room and the player's last steps. numpy's generator draws the player's first cell and the targets. All
 *   tries of a seed continue the same two generators.
 *
 * Source: RAGEN ragen/env/sokoban/utils.py, after gym_sokoban room_utils (Schrader 2018; Racaniere et al. 2017).
 */
import { NumpyLegacyRandom, nextSeed, PythonRandom } from "../rng/mt19937.ts";
import type { SokobanConfig } from "./game.ts";
import { type Scrambled, scramble } from "./reverse-play.ts";
import { BOX, type Board, deltas, FLOOR, PLAYER, TARGET, WALL } from "./rules.ts";

const TRIES = 4;
const TURN_PROBABILITY = 0.35;
const DIRECTIONS = [
  [1, 0],
  [0, 1],
  [-1, 0],
  [0, -1],
] as const;
/** Shapes carved around a position, as (row, column) offsets. */
// biome-ignore format: one shape a line
const MASKS = [
  [[0, -1], [0, 0], [0, 1]],
  [[-1, 0], [0, 0], [1, 0]],
  [[0, -1], [0, 0], [1, 0]],
  [[0, -1], [0, 0], [1, -1], [1, 0]],
  [[0, 0], [0, 1], [1, 0]],
] as const;

type GeneratorConfig = Pick<SokobanConfig, "dimRoom" | "numBoxes" | "searchDepth">;

export interface GeneratedBoard {
  readonly board: Board;
  /** Number of seeds that gave no board and that the generator replaced. */
  readonly reseeds: number;
}

/** @throws {Error} if 100 seeds in a row give no board, for example because the room is too small for the boxes. */
export function generateBoard(config: GeneratorConfig, seed: number): GeneratedBoard {
  let current = seed;
  for (let reseeds = 0; reseeds < 100; reseeds++) {
    const board = tryBoard(config, current);
    if (board !== null) return { board, reseeds };
    current = nextSeed(current);
  }
  const [rows, cols] = config.dimRoom;
  throw new Error(
    `cannot make a ${rows} by ${cols} Sokoban board with ${config.numBoxes} boxes from seed ${seed} or 99 seeds made from it; use a larger room, fewer boxes or a deeper search`,
  );
}

/** The board of a seed; null if the room has fewer than numBoxes + 2 floor cells, or if no try gives a scrambled board. */
function tryBoard(config: GeneratorConfig, seed: number): Board | null {
  const random = new PythonRandom(seed);
  const placement = new NumpyLegacyRandom(seed);
  const [rows, cols] = config.dimRoom;
  for (let attempt = 0; attempt < TRIES; attempt++) {
    const fixed = carve(rows, cols, random);
    const floor = floorCells(fixed);
    if (floor.length <= config.numBoxes + 1) return null;
    const player = floor[placement.randint(floor.length)]!;
    const targets: number[] = [];
    for (let box = 0; box < config.numBoxes; box++) {
      const free = floor.filter((cell) => cell !== player && !targets.includes(cell));
      targets.push(free[placement.randint(free.length)]!);
    }
    for (const target of targets) fixed[target] = TARGET;
    const scrambled = scramble({ fixed, cols, player, targets }, config.searchDepth);
    if (scrambled.displacement === 0) continue;
    const playerCell = lastSteps(fixed, cols, scrambled, random);
    const state = fixed.slice();
    for (const box of scrambled.boxes) state[box] = BOX;
    state[playerCell] = PLAYER;
    return { rows, cols, fixed, state };
  }
  return null;
}

/** Number of steps of the walker in a room of this size. */
export function carvingSteps(rows: number, cols: number): number {
  return Math.floor(1.7 * (rows + cols));
}

/** Makes a room of walls and floor: at each step, a walker carves one of five shapes. */
function carve(rows: number, cols: number, random: PythonRandom): Uint8Array {
  const room = new Uint8Array(rows * cols);
  let direction = DIRECTIONS[random.below(4)]!;
  let row = random.randint(1, rows - 1);
  let col = random.randint(1, cols - 1);
  const steps = carvingSteps(rows, cols);
  for (let step = 0; step < steps; step++) {
    if (random.random() < TURN_PROBABILITY) direction = DIRECTIONS[random.below(4)]!;
    row = Math.max(Math.min(row + direction[0], rows - 2), 1);
    col = Math.max(Math.min(col + direction[1], cols - 2), 1);
    for (const [down, right] of MASKS[random.below(5)]!) room[(row + down) * cols + col + right] = FLOOR;
  }
  for (let c = 0; c < cols; c++) room[c] = room[(rows - 1) * cols + c] = WALL;
  for (let r = 0; r < rows; r++) room[r * cols] = room[r * cols + cols - 1] = WALL;
  return room;
}

function floorCells(room: Uint8Array): number[] {
  const cells: number[] = [];
  for (let cell = 0; cell < room.length; cell++) if (room[cell] === FLOOR) cells.push(cell);
  return cells;
}

/** The player's cell after zero to three random steps. */
function lastSteps(fixed: Uint8Array, cols: number, from: Scrambled, random: PythonRandom): number {
  if (random.random() > (from.displacement === 1 ? 0.8 : 0.5)) return from.player;
  const visited = [from.player];
  let player = from.player;
  for (let taken = 1; taken <= 3; taken++) {
    const open = deltas(cols)
      .map((delta) => player + delta)
      .filter((cell) => fixed[cell] !== WALL && !from.boxes.includes(cell) && !visited.includes(cell));
    if (open.length === 0) break;
    player = random.choice(open);
    visited.push(player);
    if (taken === 3 || random.random() > 0.5) break;
  }
  return player;
}

/**
 * FrozenLake: reach the goal over slippery ice without falling into a hole.
 *
 * - The layout seed decides the lake. The dynamics seed decides the slips.
 * - `sharedStream` is RAGEN's behavior: the layout seed decides the slips too, so all members of a group slip alike.
 *
 * Source: gymnasium toy_text FrozenLake; RAGEN ragen/env/frozen_lake/env.py.
 */
import { z } from "zod";
import type { DiscreteGame, Effect, Seeds } from "../env.ts";
import { Pcg64 } from "../rng/pcg64.ts";
import { type Lake, moved } from "./map.ts";

export const FROZEN_LAKE_ACTIONS = ["Left", "Down", "Right", "Up"] as const;

export const FrozenLakeConfig = z.strictObject({
  size: z.int().min(2).max(16).default(4),
  /** Probability of a frozen cell: 0.8 in RAGEN, 0.9 in RAGEN-2. */
  p: z.number().min(0.3).max(1).default(0.8),
  isSlippery: z.boolean().default(true),
  /** Probability of the intended move; the two sideways moves share the rest. RAGEN-2: 0.8. */
  successRate: z
    .number()
    .min(0)
    .max(1)
    .default(1 / 3),
  /** Symbols of player, frozen, hole, goal, player in hole, player on goal. */
  gridLookup: z.array(z.string().length(1)).length(6).default(["P", "_", "O", "G", "X", "√"]),
  observationFormat: z.enum(["grid", "coord", "grid_coord"]).default("grid"),
  sharedStream: z.boolean().default(false),
});
export type FrozenLakeConfig = z.infer<typeof FrozenLakeConfig>;

/** Meanings of the symbols, in the order of `gridLookup`. */
export const LAKE_MEANINGS = ["player", "empty", "hole", "goal", "player in hole", "player on goal"] as const;

/** Separates the dynamics stream, so that equal layout and dynamics seeds give unrelated numbers. */
const DYNAMICS_STREAM = 1;

const effects = (effective: boolean, done: boolean, success: boolean): Effect =>
  Object.freeze({ reward: success ? 1 : 0, done, effective, valid: true, success });
const MOVED = effects(true, false, false);
const STAYED = effects(false, false, false);
const DROWNED: Effect = Object.freeze({ ...effects(true, true, false), extra: Object.freeze({ dead_end: 1 }) });
const ARRIVED = effects(true, true, true);

export class FrozenLakeGame implements DiscreteGame {
  readonly kind = "discrete";
  readonly actions = FROZEN_LAKE_ACTIONS;
  readonly lake: Lake;
  readonly config: FrozenLakeConfig;
  readonly #slips: Pcg64;
  /** The rows without the player. */
  readonly #rows: readonly string[];
  /** The rendered grid for each cell of the player; undefined before the first rendering. */
  readonly #grids: (string | undefined)[];
  /**
   * For an action a, `#slipLeft` is the probability of the move (a - 1) mod 4. `#slipNone` is `#slipLeft` plus the probability of the move
   * a.
   */
  readonly #slipLeft: number;
  readonly #slipNone: number;
  #player: number;
  #done = false;

  constructor(lake: Lake, config: FrozenLakeConfig, seeds: Seeds) {
    this.lake = lake;
    this.config = config;
    this.#player = lake.start;
    this.#slipLeft = config.isSlippery ? (1 - config.successRate) / 2 : 0;
    this.#slipNone = config.isSlippery ? this.#slipLeft + config.successRate : 1;
    this.#slips = config.sharedStream ? new Pcg64(seeds.layout) : new Pcg64(seeds.dynamics, DYNAMICS_STREAM);
    // gymnasium's stream begins with one number that chooses the start.
    if (config.sharedStream) this.#slips.random();
    this.#rows = Array.from({ length: lake.size }, (_, row) => this.#emptyRow(row));
    this.#grids = new Array<string | undefined>(lake.size * lake.size).fill(undefined);
  }

  /** Cell index of the player. */
  get player(): number {
    return this.#player;
  }

  act(action: number): Effect {
    if (this.#done) throw new Error("this FrozenLake game is over; open a new one");
    if (!(action in FROZEN_LAKE_ACTIONS)) throw new RangeError(`FrozenLake has actions 0 to 3, got ${action}`);
    const drawn = this.#slips.random();
    const turned = drawn < this.#slipLeft ? 3 : drawn < this.#slipNone ? 0 : 1;
    const next = moved(this.lake.size, this.#player, (action + turned) & 3);
    if (next === this.#player) return STAYED;
    this.#player = next;
    this.#done = next === this.lake.goal || this.lake.holes[next] === 1;
    if (!this.#done) return MOVED;
    return next === this.lake.goal ? ARRIVED : DROWNED;
  }

  render(): string {
    const { observationFormat } = this.config;
    if (observationFormat === "grid") return this.#grid();
    if (observationFormat === "coord") return this.#coordinates();
    return `Coordinates: \n${this.#coordinates()}\nGrid Map: \n${this.#grid()}`;
  }

  #emptyRow(row: number): string {
    const { size, holes, goal } = this.lake;
    let text = "";
    for (let cell = row * size; cell < (row + 1) * size; cell++) {
      text += this.config.gridLookup[cell === goal ? 3 : holes[cell] === 1 ? 2 : 1]!;
    }
    return text;
  }

  #playerSymbol(): string {
    if (this.#player === this.lake.goal) return this.config.gridLookup[5]!;
    return this.config.gridLookup[this.lake.holes[this.#player] === 1 ? 4 : 0]!;
  }

  #grid(): string {
    const known = this.#grids[this.#player];
    if (known !== undefined) return known;
    const { size } = this.lake;
    const row = Math.floor(this.#player / size);
    const col = this.#player % size;
    const line = this.#rows[row]!;
    const grid = this.#rows.with(row, line.slice(0, col) + this.#playerSymbol() + line.slice(col + 1)).join("\n");
    this.#grids[this.#player] = grid;
    return grid;
  }

  #coordinates(): string {
    const { size, holes, start, goal } = this.lake;
    const at = (cell: number) => `(${Math.floor(cell / size)}, ${cell % size})`;
    const player = this.#player === goal ? "Player on goal" : holes[this.#player] === 1 ? "Player in hole" : "Player";
    const lines = [
      `Board size: ${size} rows x ${size} cols (zero-indexed).`,
      `Start: ${at(start)}`,
      `Goal: ${at(goal)}`,
      `${player}: ${at(this.#player)}`,
    ];
    const broken = [...holes.keys()].filter((cell) => holes[cell] === 1);
    if (broken.length > 0) lines.push(`Holes: ${broken.map(at).join(", ")}`);
    return lines.join("\n");
  }
}

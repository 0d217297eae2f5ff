/**
 * Sokoban: push all boxes onto targets.
 *
 * - The layout seed decides the board; the dynamics are deterministic.
 * - Games of one board render each position only once, because random plays reach the same positions many times.
 *
 * Source of the settings and their defaults: RAGEN ragen/env/sokoban/config.py.
 */
import { z } from "zod";
import type { DiscreteGame, Effect } from "../env.ts";
import { renderCoordinates, renderGrid } from "./render.ts";
import { type Board, boxesOf, cornered, SOKOBAN_ACTIONS, SokobanState } from "./rules.ts";
import { shortestPath } from "./solve.ts";

const Size = z.int().min(4).max(16);

export const SokobanConfig = z.strictObject({
  /** Rows and columns, walls included. */
  dimRoom: z.tuple([Size, Size]).default([6, 6]),
  /** The game ends after this many actions; the episode's budget is usually far smaller. */
  maxSteps: z.int().positive().default(100),
  numBoxes: z.int().min(1).max(4).default(3),
  /** Maximum depth to which the generator plays backwards from the solved board. */
  searchDepth: z.int().positive().max(2000).default(300),
  /** Symbols of wall, floor, target, box on target, box, player, player on target. */
  gridLookup: z.array(z.string().length(1)).length(7).default(["#", "_", "O", "√", "X", "P", "S"]),
  /** `grid`: symbols; `coord`: coordinates of everything but walls; `grid_coord`: both. */
  observationFormat: z.enum(["grid", "coord", "grid_coord"]).default("grid"),
});
export type SokobanConfig = z.infer<typeof SokobanConfig>;

/** Meanings of the symbols, in the order of `gridLookup`. The prompt's legend shows these texts. */
export const SYMBOL_MEANINGS = [
  "wall",
  "empty",
  "target",
  "box on target",
  "box",
  "player",
  "player on target",
] as const;

/** `isLost` searches boards up to this size completely. A search visits at most some hundred thousand positions, and mostly takes milliseconds. */
const SEARCHED_CELLS_MAX = 100;
const SEARCHED_BOXES_MAX = 2;

/** Maximum number of texts that the games of one board keep. Beyond this number they discard all texts. */
const TEXTS_MAX = 100_000;

export class SokobanGame implements DiscreteGame {
  readonly kind = "discrete";
  readonly actions = SOKOBAN_ACTIONS;
  readonly #state: SokobanState;
  readonly #config: SokobanConfig;
  readonly #texts: Map<number, string>;

  /**
   * Takes ownership of the board.
   *
   * @param texts  observations by position, shared by games with the same walls, targets and config
   */
  constructor(board: Board, config: SokobanConfig, texts = new Map<number, string>()) {
    this.#config = config;
    this.#state = new SokobanState(board, config.maxSteps);
    this.#texts = texts;
  }

  /** The current position. `act` changes it in place. */
  get board(): Board {
    return this.#state.board;
  }

  render(): string {
    const { position } = this.#state;
    let text = this.#texts.get(position);
    if (text === undefined) {
      if (this.#texts.size === TEXTS_MAX) this.#texts.clear();
      text = this.#draw();
      this.#texts.set(position, text);
    }
    return text;
  }

  #draw(): string {
    const { board } = this;
    const { gridLookup, observationFormat } = this.#config;
    if (observationFormat === "grid") return renderGrid(board, gridLookup);
    if (observationFormat === "coord") return renderCoordinates(board);
    return `Coordinates: \n${renderCoordinates(board)}\nGrid Map: \n${renderGrid(board, gridLookup)}`;
  }

  /**
   * True if no solution of at most 100 actions is left. On large boards, where a search could take minutes, true only if a box stands in a
   * corner.
   */
  isLost(): boolean {
    const { board } = this;
    const small = board.state.length <= SEARCHED_CELLS_MAX && boxesOf(board).length <= SEARCHED_BOXES_MAX;
    return small ? shortestPath(board) === null : cornered(board);
  }

  act(action: number): Effect {
    return this.#state.act(action);
  }
}

/**
 * Sokoban: push all boxes onto targets.
 *
 * - The layout seed decides the board; the dynamics are deterministic.
 * - `act` re-renders only the rows that it changed.
 */
import type { DiscreteGame, Effect } from "../env.ts";
import type { SokobanConfig } from "./config.ts";
import { renderCoordinates, renderRow } from "./render.ts";
import { type Board, boxesOf, cornered, SOKOBAN_ACTIONS, SokobanState } from "./rules.ts";
import { shortestPath } from "./solve.ts";

/** Boards up to this size are searched completely: some hundred thousand positions, mostly within milliseconds. */
const SEARCHED_CELLS_MAX = 100;
const SEARCHED_BOXES_MAX = 2;

export class SokobanGame implements DiscreteGame {
  readonly kind = "discrete";
  readonly actions = SOKOBAN_ACTIONS;
  readonly #state: SokobanState;
  readonly #config: SokobanConfig;
  readonly #rows: string[];
  /** The rows in one text; null after a change. */
  #grid: string | null = null;

  /** Takes ownership of the board. */
  constructor(board: Board, config: SokobanConfig) {
    this.#config = config;
    this.#state = new SokobanState(board, config.maxSteps);
    this.#rows = Array.from({ length: board.rows }, (_, row) => renderRow(board, row, config.gridLookup));
  }

  /** The current position. `act` changes it in place. */
  get board(): Board {
    return this.#state.board;
  }

  render(): string {
    switch (this.#config.observationFormat) {
      case "grid":
        return this.#renderGrid();
      case "coord":
        return renderCoordinates(this.board);
      case "grid_coord":
        return `Coordinates: \n${renderCoordinates(this.board)}\nGrid Map: \n${this.#renderGrid()}`;
      default:
        return this.#config.observationFormat satisfies never;
    }
  }

  #renderGrid(): string {
    this.#grid ??= this.#rows.join("\n");
    return this.#grid;
  }

  /** True if no solution is left. On large boards, where a search could take minutes, it only finds boxes in corners. */
  isLost(): boolean {
    const { board } = this;
    const small = board.state.length <= SEARCHED_CELLS_MAX && boxesOf(board).length <= SEARCHED_BOXES_MAX;
    return small ? shortestPath(board) === null : cornered(board);
  }

  act(action: number): Effect {
    const before = this.#rowOfPlayer();
    const effect = this.#state.act(action);
    if (effect.effective) {
      this.#grid = null;
      const after = this.#rowOfPlayer();
      this.#draw(before);
      if (after !== before) {
        this.#draw(after);
        // A box pushed up or down lies one row beyond the player.
        this.#draw(2 * after - before);
      }
    }
    return effect;
  }

  #rowOfPlayer(): number {
    return Math.floor(this.#state.player / this.board.cols);
  }

  #draw(row: number): void {
    this.#rows[row] = renderRow(this.board, row, this.#config.gridLookup);
  }
}

/** Makes elements of an observation: boards become grids, and the rest stays text. Only symbols of the env's own legend have colors. */
import type { PlayAnswer } from "../answers.ts";
import { make } from "./dom.ts";
import { blocksOf, visible } from "./text.ts";

export type Symbols = PlayAnswer["envs"][number]["symbols"];

/** @param play  null if the run's envs are unknown. @param env  the env's name in tickets */
export const symbolsOf = (play: PlayAnswer | null, env: string): Symbols =>
  play?.envs.find(({ name }) => name === env)?.symbols ?? {};

function boardOf(rows: readonly (readonly string[])[], symbols: Symbols): HTMLElement {
  const board = make("div", "board");
  board.setAttribute("role", "img");
  board.setAttribute("aria-label", visible(`board: ${rows.map((row) => row.join("")).join(" / ")}`));
  for (const row of rows) {
    board.append(
      make("div", "", ...row.map((cell) => make("span", `cell ${symbols[cell] ?? "other"}`, visible(cell)))),
    );
  }
  return board;
}

export function observationOf(text: string, symbols: Symbols): HTMLElement {
  // An observation of one line may be a board, such as ". . H . P".
  const said = text.trim().includes("\n") ? "said" : "said line";
  const blocks = blocksOf(text).map((block) =>
    block.kind === "board" ? boardOf(block.rows, symbols) : make("p", said, visible(block.text)),
  );
  return make("div", "observation", ...blocks);
}

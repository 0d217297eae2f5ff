/** An observation as elements: its boards as grids, the rest as text. */
import { make } from "./dom.ts";
import { blocksOf, cellKind, visible } from "./text.ts";

function boardOf(rows: readonly (readonly string[])[]): HTMLElement {
  const board = make("div", "board");
  board.setAttribute("role", "img");
  board.setAttribute("aria-label", visible(`board: ${rows.map((row) => row.join("")).join(" / ")}`));
  for (const row of rows) {
    board.append(make("div", "", ...row.map((cell) => make("span", `cell ${cellKind(cell)}`, visible(cell)))));
  }
  return board;
}

export const observationOf = (text: string): HTMLElement =>
  make(
    "div",
    "observation",
    ...blocksOf(text).map((block) =>
      block.kind === "board" ? boardOf(block.rows) : make("p", "said", visible(block.text)),
    ),
  );

/** Settings of a Sokoban task, with RAGEN's defaults. Source: RAGEN ragen/env/sokoban/config.py. */
import { z } from "zod";

const Size = z.int().min(4).max(16);

export const SokobanConfig = z.strictObject({
  /** Rows and columns, walls included. */
  dimRoom: z.tuple([Size, Size]).default([6, 6]),
  /** The game ends after this many actions; the episode's budget is usually far smaller. */
  maxSteps: z.int().positive().default(100),
  numBoxes: z.int().min(1).max(4).default(3),
  /** How deep the generator plays backwards from the solved board. */
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

/**
 * The Sudoku tags. Source: RAGEN-2 config/envs.yaml.
 *
 * RAGEN-2 blanks 32 of 81 cells and allows 20 actions (SimpleSudoku), or blanks 40 and allows 30 (MediumSudoku). So RAGEN-2's boards cannot be
 * solved, and only `prompt.compat=ragen-*` plays them. By default the boards are 4 by 4, and RAGEN-2's budgets suffice.
 */
import type { Uniform } from "../env.ts";
import { defineTag, expectGame, plainWording, type TagSource } from "../tag.ts";
import { blankCount, SudokuConfig, SudokuGame } from "./game.ts";

const RAGEN_INSTRUCTION = `You are solving a Sudoku puzzle. Fill in the grid so that every row, column, and 3x3 box contains the numbers 1-9 without repetition.
Initial cells are shown in [brackets] and cannot be modified. Empty cells are shown as dots (.).
Place numbers one at a time using the format: <answer>place 5 at row 2 col 3</answer> or <answer>2,3,5</answer>
The environment will provide feedback on valid/invalid moves and show conflicts if any occur.
`;
const INSTRUCTION =
  "You are solving a Sudoku puzzle. Fill the empty cells so that every row, every column and every box holds each number once. Rows and columns are counted from 1. An action places one number, like <answer>place 5 at row 2 col 3</answer>. Several actions are separated by ||.";

const sudoku = (tag: string, defaults: Partial<SudokuConfig>, actionsMax: number): TagSource =>
  defineTag({
    tag,
    type: "sudoku",
    schema: SudokuConfig,
    defaults: { ...defaults, maxSteps: actionsMax },
    compatDefaults: { unique: false, refusedEnd: false, gridSize: 9, maxSteps: 81 },
    actionsMax,
    replyWordsHint: 150,
    parts: (config) => ({
      wording: { ...plainWording(INSTRUCTION, null, false), v1: RAGEN_INSTRUCTION, v2: RAGEN_INSTRUCTION },
      open: (seeds) => new SudokuGame(config, seeds),
      brief,
      stateOf: boardOf,
      // With `unique`, rare boards have fewer blank cells and need fewer actions.
      actionsMin: blankCount(config),
      random: (_game, _actionsLeft, uniform) => randomPlacement(config.gridSize, uniform),
      optimal: (game, _actionsLeft, uniform) => {
        const sudokuGame = expectGame(game, SudokuGame);
        const hint = sudokuGame.hint();
        if (hint === null) return randomPlacement(config.gridSize, uniform);
        return placement(hint.value, hint.cell, config.gridSize);
      },
      best: (game, max) => {
        const blanks = expectGame(game, SudokuGame).puzzle.initial.filter((value) => value === 0).length;
        return blanks <= Math.min(max, config.maxSteps) ? 1 : 0;
      },
    }),
  });

export const sudokuTags: readonly TagSource[] = [
  sudoku("SimpleSudoku", { gridSize: 4, difficulty: "easy" }, 20),
  sudoku("MediumSudoku", { gridSize: 4, difficulty: "medium" }, 30),
];

function randomPlacement(size: number, uniform: Uniform): string {
  const below = (count: number) => Math.floor(uniform() * count);
  return placement(1 + below(size), below(size * size), size);
}

function placement(value: number, cell: number, size: number): string {
  return `place ${value} at row ${Math.floor(cell / size) + 1} col ${(cell % size) + 1}`;
}

/** The part of the observation before the first empty line: the board, without steps and feedback. */
function boardOf(observation: string): string {
  return observation.slice(0, observation.indexOf("\n\n"));
}

/** The observation without frame, legend and hints, which are constant or follow from the board. */
function brief(observation: string): string {
  return observation
    .slice(observation.indexOf("SUDOKU PUZZLE"))
    .split("\n")
    .slice(2)
    .filter((line) => line !== "" && !/^(?:-+$|Legend:|💡| {2}- )/.test(line))
    .join("\n");
}

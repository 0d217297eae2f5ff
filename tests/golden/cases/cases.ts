/** The checks of each case of a file of golden vectors, by its id. `bun run golden` runs them. */
import type { Checks } from "./check.ts";
import { collapseChecks } from "./collapse.ts";
import { parsing, scoring, searchRewards } from "./envs/answers.ts";
import { frozenLakes, seededBoards, sokobanDynamics } from "./envs/boards.ts";
import { game2048, rubik, sudoku } from "./envs/games.ts";
import { environmentManager } from "./envs/manager.ts";
import { alfworldMemories, prompts } from "./envs/prompts.ts";
import { statistics, streams } from "./envs/random.ts";
import { lossChecks } from "./losses.ts";
import { maskChecks } from "./masks.ts";
import { rewardChecks } from "./rewards.ts";

export const casesById: Checks = {
  H1: seededBoards,
  H2: sokobanDynamics,
  H3: frozenLakes,
  H4: scoring,
  H5: parsing,
  H6: prompts,
  H7: environmentManager,
  H8: maskChecks,
  H9: rewardChecks,
  H10: lossChecks,
  X0: streams,
  X1: statistics,
  X2: collapseChecks,
  X3: game2048,
  X4: rubik,
  X5: sudoku,
  X6: searchRewards,
  X7: alfworldMemories,
};

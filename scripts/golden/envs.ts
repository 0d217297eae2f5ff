/** Golden cases of the envs: which function checks which case id. */
import type { Checks } from "./check.ts";
import { parsing, scoring, searchRewards } from "./envs/answers.ts";
import { frozenLakes, seededBoards, sokobanDynamics } from "./envs/boards.ts";
import { game2048, rubik, sudoku } from "./envs/games.ts";
import { environmentManager } from "./envs/manager.ts";
import { alfworldMemories, prompts } from "./envs/prompts.ts";
import { statistics, streams } from "./envs/random.ts";

export const checks: Checks = {
  H1: seededBoards,
  H2: sokobanDynamics,
  H3: frozenLakes,
  H4: scoring,
  H5: parsing,
  H6: prompts,
  H7: environmentManager,
  X0: streams,
  X1: statistics,
  X3: game2048,
  X4: rubik,
  X5: sudoku,
  X6: searchRewards,
  X7: alfworldMemories,
};

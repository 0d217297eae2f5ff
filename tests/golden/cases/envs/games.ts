/** Golden cases X3, X4 and X5: 2048, the cube, Sudoku. */
import { z } from "zod";
import { Config2048, Game2048, logReward, slide } from "../../../../envs/game-2048/game.ts";
import { solveCube, TURNS, turns } from "../../../../envs/rubik/cube.ts";
import { RubikConfig, RubikGame } from "../../../../envs/rubik/game.ts";
import { parsePlacement, SudokuConfig, SudokuGame } from "../../../../envs/sudoku/game.ts";
import { type Check, eachVector, Matrix, matrixOf, Outcome, Vectors, vectorChecks } from "../check.ts";

const Slide = z.object({ grid: Matrix, action: z.number() }).loose();
const X3 = z.object({
  seed: z.uint32(),
  observation: z.string(),
  trace: z.array(z.object({ action: z.number() }).loose()),
  moves: Vectors,
});

export function game2048(body: unknown): Check[] {
  const { seed, observation, trace, moves } = X3.parse(body);
  const config = Config2048.parse({ sharedStream: true, hideInvalidScore: true });
  const game = new Game2048(config, { layout: seed, dynamics: seed });
  return [
    { name: "observation", expected: observation, got: game.render() },
    ...trace.map((expected, i) => {
      const { reward, effective, valid, done, extra } = game.act(expected.action);
      const got = { action: expected.action, grid: game.grid, reward, raw_reward: extra?.["raw_reward"] };
      return { name: `move ${i + 1}`, expected, got: { ...got, effective, valid, score: game.score, done } };
    }),
    ...eachVector("moves", moves, Slide, (expected, i) => {
      const { grid, merged, moved } = slide(expected.grid, expected.action);
      const got = { grid: expected.grid, action: expected.action, result: grid, merge_reward: merged, moved };
      return [{ name: `moves[${i}]`, expected, got: { ...got, log_reward: logReward(merged) } }];
    }),
  ];
}

const Scrambled = z.object({
  state: z.array(z.number()),
  observation: z.string(),
  /** A name, or the names of the shortest solution. */
  solving_action: z.union([z.string(), z.array(z.string()).min(1)]),
  after: Outcome,
});
const Permutation = z.object({ action: z.string(), permutation: z.array(z.number()) });
const X4 = z.object({ permutations: Vectors }).catchall(z.unknown());

export function rubik(body: unknown): Check[] {
  const { permutations, ...scrambled } = X4.parse(body);
  const all = turns(true);
  return [
    ...eachVector("permutations", permutations, Permutation, ({ action, permutation }) => [
      { name: `turn ${action}`, expected: permutation, got: all[(TURNS as readonly string[]).indexOf(action)] },
    ]),
    ...Object.entries(scrambled).flatMap(([key, vector]) =>
      vectorChecks(key, () => scrambledCube(key, Scrambled.parse(vector))),
    ),
  ];
}

function scrambledCube(key: string, expected: z.infer<typeof Scrambled>): Check[] {
  const match = /^seed(\d+)_depth(\d+)$/.exec(key);
  if (match === null) throw new Error(`cannot read seed and depth of ${key}`);
  const [seed, scrambleDepth] = [Number(match[1]), Number(match[2])];
  const game = new RubikGame(RubikConfig.parse({ scrambleDepth, shippedBack: true }), { layout: seed, dynamics: seed });
  const [state, opening] = [game.state, game.render()];
  const wanted = [expected.solving_action].flat();
  const shortest = solveCube(state, game.turns, wanted.length)?.length ?? null;
  const { reward, done, success } = wanted.map((turn) => game.act((TURNS as readonly string[]).indexOf(turn))).at(-1)!;
  return [
    { name: `${key}: state`, expected: expected.state, got: state },
    { name: `${key}: observation`, expected: expected.observation, got: opening },
    { name: `${key}: solving_action`, expected: wanted.length, got: shortest },
    { name: `${key}: after`, expected: expected.after, got: { observation: game.render(), reward, done, success } },
  ];
}

const X5 = z.object({
  seed: z.uint32(),
  initial_grid: Matrix,
  solution: Matrix,
  first_observation: z.string(),
  trace: z.array(z.object({ action: z.string() }).loose()),
  parse: Vectors,
});
const Placement = z.object({ action: z.string(), parsed: z.array(z.union([z.boolean(), z.number()])) });

export function sudoku(body: unknown): Check[] {
  const { seed, initial_grid, solution, first_observation, trace, parse } = X5.parse(body);
  const size = initial_grid.length;
  const game = new SudokuGame(sudokuConfig(initial_grid, first_observation), { layout: seed, dynamics: seed });
  return [
    { name: "initial_grid", expected: initial_grid, got: matrixOf(game.puzzle.initial, size) },
    { name: "solution", expected: solution, got: matrixOf(game.puzzle.solution, size) },
    { name: "first_observation", expected: first_observation, got: game.render() },
    ...trace.map((expected, i) => {
      const { reward, done, valid } = game.act(expected.action);
      const got = { action: expected.action, reward, done, valid, feedback: game.feedback };
      return { name: `action ${i + 1}`, expected, got };
    }),
    ...eachVector("parse", parse, Placement, ({ action, parsed }) => {
      const placed = parsePlacement(action, size);
      const got = typeof placed === "string" ? [false] : [true, placed.row, placed.col, placed.value];
      return [{ name: `parse ${JSON.stringify(action)}`, expected: parsed, got }];
    }),
  ];
}

/** The file names size, difficulty and step limit only in the board it shows. */
function sudokuConfig(initial: readonly (readonly number[])[], observation: string): SudokuConfig {
  const gridSize = initial.length;
  const share = initial.flat().filter((value) => value === 0).length / gridSize ** 2;
  return SudokuConfig.parse({
    gridSize,
    difficulty: share < 0.45 ? "easy" : share < 0.55 ? "medium" : "hard",
    maxSteps: Number(/^Steps: 0\/(\d+)$/m.exec(observation)?.[1]),
    unique: false,
    refusedEnd: false,
  });
}

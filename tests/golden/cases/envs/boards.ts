/** Golden cases H1, H2 and H3: boards from seeds, their rules and their text. */
import { z } from "zod";
import type { Effect } from "../../../../envs/env.ts";
import { FrozenLakeConfig, FrozenLakeGame } from "../../../../envs/frozen-lake/game.ts";
import { generateLake, type Lake } from "../../../../envs/frozen-lake/map.ts";
import { SokobanConfig, SokobanGame } from "../../../../envs/sokoban/game.ts";
import { carvingSteps, generateBoard } from "../../../../envs/sokoban/generate.ts";
import { renderGrid } from "../../../../envs/sokoban/render.ts";
import { PLAYER } from "../../../../envs/sokoban/rules.ts";
import { shortestPath } from "../../../../envs/sokoban/solve.ts";
import { boardOf } from "../../../envs/sokoban-boards.ts";
import { type Check, eachVector, Matrix, matrixOf, Outcome, Vectors } from "../check.ts";

const Seed = z.uint32();

/** Symbols by cell code, "0" to "6" (Sokoban) or "5" (FrozenLake); a code that is absent keeps its symbol. A list has them in the order of the codes. */
const Lookup = z.union([z.record(z.string(), z.string()), z.array(z.string())]);

const Kwargs = z.strictObject({
  dim_x: z.number(),
  dim_y: z.number(),
  num_boxes: z.number(),
  max_steps: z.number().optional(),
  search_depth: z.number().optional(),
  grid_lookup: Lookup.optional(),
  /** The prompt's legend; not read here, because the compared text is the board alone. */
  grid_vocab: z.record(z.string(), z.string()).optional(),
});

function symbols(lookup: z.infer<typeof Lookup> | undefined, defaults: readonly string[]): string[] {
  const given = Object.fromEntries(Object.entries(lookup ?? {}));
  const unknown = Object.keys(given).filter((code) => defaults[Number(code)] === undefined);
  if (unknown.length > 0)
    throw new Error(`grid_lookup has ${unknown[0]}, which is no cell code; expected 0 to ${defaults.length - 1}`);
  return defaults.map((symbol, code) => given[code] ?? symbol);
}

function configOf(kwargs: z.infer<typeof Kwargs>): SokobanConfig {
  const { dim_x, dim_y, num_boxes, max_steps, search_depth, grid_lookup } = kwargs;
  return sokobanConfig(grid_lookup, {
    dimRoom: [dim_x, dim_y],
    numBoxes: num_boxes,
    maxSteps: max_steps,
    searchDepth: search_depth,
  });
}

function sokobanConfig(lookup: z.infer<typeof Lookup> | undefined, options: Record<string, unknown>): SokobanConfig {
  const given = Object.entries(options).filter(([, value]) => value !== undefined);
  const config = SokobanConfig.parse(Object.fromEntries(given));
  return { ...config, gridLookup: symbols(lookup, config.gridLookup) };
}

const SeededBoard = z.object({
  kwargs: Kwargs,
  seed: Seed,
  hash_reseed_used: z.boolean(),
  observation: z.string(),
  room_fixed: Matrix,
  room_state: Matrix,
  player: z.array(z.number()),
  bfs_shortest_actions: z.array(z.number()),
  num_gen_steps: z.number(),
});
const H1 = z.object({ vectors: Vectors });

export function seededBoards(body: unknown): Check[] {
  return eachVector("vectors", H1.parse(body).vectors, SeededBoard, (vector, i) => {
    const config = configOf(vector.kwargs);
    const { board, reseeds } = generateBoard(config, vector.seed);
    const at = (what: string) => `vectors[${i}] seed ${vector.seed}: ${what}`;
    const player = board.state.indexOf(PLAYER);
    return [
      { name: at("observation"), expected: vector.observation, got: renderGrid(board, config.gridLookup) },
      { name: at("room_fixed"), expected: vector.room_fixed, got: matrixOf(board.fixed, board.cols) },
      { name: at("room_state"), expected: vector.room_state, got: matrixOf(board.state, board.cols) },
      { name: at("player"), expected: vector.player, got: [Math.floor(player / board.cols), player % board.cols] },
      { name: at("solution"), expected: vector.bfs_shortest_actions, got: shortestPath(board)?.map((a) => a + 1) },
      { name: at("reseed"), expected: vector.hash_reseed_used, got: reseeds > 0 },
      { name: at("num_gen_steps"), expected: vector.num_gen_steps, got: carvingSteps(board.rows, board.cols) },
    ];
  });
}

const Layers = z.object({ room_fixed: Matrix, room_state: Matrix });
const PlayedBoard = Layers.extend({
  name: z.string(),
  num_boxes: z.number(),
  max_steps: z.number(),
  grid_lookup: Lookup.optional(),
  initial: z.string(),
  trace: z.array(
    Outcome.extend({ action: z.number(), action_is_effective: z.boolean(), action_is_valid: z.boolean() }),
  ),
});
const Render = Layers.partial().extend({
  seed: Seed.optional(),
  observation_format: z.string(),
  grid_lookup: Lookup.optional(),
  observation: z.string(),
});
const H2 = z.object({ vectors: Vectors, coordinate_render_v2: Vectors });

export function sokobanDynamics(body: unknown): Check[] {
  const { vectors, coordinate_render_v2 } = H2.parse(body);
  return [
    ...eachVector("vectors", vectors, PlayedBoard, playedBoard),
    ...eachVector("coordinate_render_v2", coordinate_render_v2, Render, (render, i) => {
      const config = sokobanConfig(render.grid_lookup, { numBoxes: 1, observationFormat: render.observation_format });
      const board =
        render.seed === undefined
          ? boardOf(render.room_fixed ?? [], render.room_state ?? [])
          : generateBoard(config, render.seed).board;
      const got = new SokobanGame(board, config).render();
      return [{ name: `coordinate_render_v2[${i}]`, expected: render.observation, got }];
    }),
  ];
}

function playedBoard(vector: z.infer<typeof PlayedBoard>): Check[] {
  const config = sokobanConfig(vector.grid_lookup, { numBoxes: vector.num_boxes, maxSteps: vector.max_steps });
  const game = new SokobanGame(boardOf(vector.room_fixed, vector.room_state), config);
  const opening: Check = { name: `${vector.name}: initial`, expected: vector.initial, got: game.render() };
  return [
    opening,
    ...vector.trace.map(({ action, ...expected }, i) => {
      const effect = game.act(action - 1);
      const got = { ...seen(effect), observation: game.render() };
      return { name: `${vector.name}: action ${i + 1}`, expected, got };
    }),
  ];
}

/** An effect under the file's keys. */
function seen(effect: Effect) {
  return {
    reward: effect.reward,
    done: effect.done,
    action_is_effective: effect.effective,
    action_is_valid: effect.valid,
    success: effect.success,
  };
}

const LakeVector = z.object({
  size: z.number(),
  p: z.number(),
  is_slippery: z.boolean(),
  /** A number, or a fraction in text. */
  success_rate: z.union([z.number(), z.string()]),
  observation_format: z.string().default("grid"),
  grid_lookup: Lookup.optional(),
  seed: Seed,
  desc: z.array(z.string()),
  observation: z.string(),
  player: z.array(z.number()),
  trace: z.array(Outcome.extend({ action: z.number(), player: z.array(z.number()), action_is_effective: z.boolean() })),
});
const H3 = z.object({ vectors_v1: Vectors, vectors_v2: Vectors });

export function frozenLakes(body: unknown): Check[] {
  const { vectors_v1, vectors_v2 } = H3.parse(body);
  return [
    ...eachVector("vectors_v1", vectors_v1, LakeVector, lakeChecks),
    ...eachVector("vectors_v2", vectors_v2, LakeVector, lakeChecks),
  ];
}

function lakeChecks(vector: z.infer<typeof LakeVector>): Check[] {
  const given = FrozenLakeConfig.parse({
    size: vector.size,
    p: vector.p,
    isSlippery: vector.is_slippery,
    successRate: fraction(vector.success_rate),
    observationFormat: vector.observation_format,
    sharedStream: true,
  });
  const config = { ...given, gridLookup: symbols(vector.grid_lookup, given.gridLookup) };
  const { seed } = vector;
  const lake = generateLake(config.size, config.p, seed);
  const game = new FrozenLakeGame(lake, config, { layout: seed, dynamics: seed });
  const place = () => [Math.floor(game.player / vector.size), game.player % vector.size];
  const at = (what: string) => `p ${vector.p} seed ${vector.seed}: ${what}`;
  return [
    { name: at("desc"), expected: vector.desc, got: describe(game.lake) },
    { name: at("observation"), expected: vector.observation, got: game.render() },
    { name: at("player"), expected: vector.player, got: place() },
    ...vector.trace.map(({ action, ...expected }, i) => {
      const { action_is_valid: _, ...effect } = seen(game.act(action - 1));
      const got = { ...effect, observation: game.render(), player: place() };
      return { name: at(`step ${i + 1}`), expected, got };
    }),
  ];
}

function fraction(text: number | string): number {
  const [above, below = "1"] = String(text).split("/");
  return Number(above) / Number(below);
}

/** Rows in gymnasium's letters. */
function describe(lake: Lake): string[] {
  const letter = (cell: number) =>
    cell === lake.start ? "S" : cell === lake.goal ? "G" : lake.holes[cell] ? "H" : "F";
  return Array.from({ length: lake.size }, (_, row) =>
    Array.from({ length: lake.size }, (_, col) => letter(row * lake.size + col)).join(""),
  );
}

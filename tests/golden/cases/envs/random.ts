/** Golden cases X0 and X1: random streams, and statistics over whole sets of boards. */
import { z } from "zod";
import type { Game } from "../../../../envs/env.ts";
import { generateLake } from "../../../../envs/frozen-lake/map.ts";
import { planLake } from "../../../../envs/frozen-lake/plan.ts";
import { envTag } from "../../../../envs/registry.ts";
import { NumpyLegacyRandom, PythonRandom } from "../../../../envs/rng/mt19937.ts";
import { Pcg64 } from "../../../../envs/rng/pcg64.ts";
import { SokobanConfig } from "../../../../envs/sokoban/game.ts";
import { generateBoard } from "../../../../envs/sokoban/generate.ts";
import { shortestPath } from "../../../../envs/sokoban/solve.ts";
import type { EnvTag } from "../../../../envs/tag.ts";
import { randomSuccess } from "../../../envs/random-lake.ts";
import { type Check, vectorChecks } from "../check.ts";

/** RAGEN's first layout seeds of training and of validation. */
const TRAIN_SEED = 10_000;
const VALIDATION_SEED = 123;

const Drawn = z.array(z.unknown());
const X0 = z.record(z.string(), z.unknown());
const times = <T>(count: number, draw: () => T): T[] => Array.from({ length: count }, draw);
const range = (count: number) => Array.from({ length: count }, (_, i) => i);

interface Generators {
  readonly python: PythonRandom;
  readonly numpy: NumpyLegacyRandom;
  readonly pcg64: Pcg64;
}

/** How each key of X0 draws one of its values, from new generators and the numbers in the key. */
const STREAMS: readonly (readonly [RegExp, (random: Generators, ...numbers: number[]) => unknown])[] = [
  [/^py_random_seed\d+$/, ({ python }) => python.random()],
  [/^py_randint_(\d+)_(\d+)$/, ({ python }, low, high) => python.randint(low, high)],
  [/^py_sample(\d+)_1$/, ({ python }, size) => python.sample(range(size), 1)[0]],
  [/^py_choice(\d+)$/, ({ python }, size) => python.choice(range(size))],
  [/^np_randint_(\d+)$/, ({ numpy }, size) => numpy.randint(size)],
  [/^pcg64_random$/, ({ pcg64 }) => pcg64.random()],
  [/^pcg64_integers(\d+)_size(\d+)_x\d+$/, ({ pcg64 }, size, each) => times(each, () => pcg64.integers(size))],
  [
    /^pcg64_choice_FH_(\d+)x(\d+)_p(\d*\.\d+)$/,
    ({ pcg64 }, _, cols, p) => times(cols, () => (pcg64.random() < p ? "F" : "H")).join(""),
  ],
];

/** All keys have one seed. The first key that names a seed ends in this seed. */
export function streams(body: unknown): Check[] {
  const vectors = X0.parse(body);
  const seeded = Object.keys(vectors).map((key) => /_seed(\d+)$/.exec(key)?.[1]);
  const seed = Number(seeded.find((text) => text !== undefined) ?? VALIDATION_SEED);
  return Object.entries(vectors).flatMap(([key, expected]) =>
    vectorChecks(key, () => [streamCheck(key, Drawn.parse(expected), seed)]),
  );
}

function streamCheck(key: string, expected: unknown[], seed: number): Check {
  for (const [form, draw] of STREAMS) {
    const match = form.exec(key);
    if (match === null) continue;
    const random = { python: new PythonRandom(seed), numpy: new NumpyLegacyRandom(seed), pcg64: new Pcg64(seed) };
    const numbers = match.slice(1).map(Number);
    return { name: key, expected, got: times(expected.length, () => draw(random, ...numbers)) };
  }
  throw new Error(`cannot read what ${key} draws`);
}

const Budgets = z.record(z.string(), z.number());
const X1 = z.strictObject({
  note: z.string().optional(),
  sokoban_simple_bfs_length_histogram: Budgets,
  random_success_by_action_budget: z.record(z.string(), Budgets),
  frozenlake_optimal_success_10_actions: Budgets,
  frozenlake_v2_random_10: z.number(),
  hash_reseed_counts: Budgets,
});

/** Number of the file's lakes: 4 by 4 cells, from the first validation seed on. */
const LAKE_COUNT = 256;
/** Statistics in the file have four decimals. */
const ROUNDED = 1e-4;

export function statistics(body: unknown): Check[] {
  const expected = X1.parse(body);
  const random = expected.random_success_by_action_budget;
  return [
    {
      name: "sokoban_simple_bfs_length_histogram",
      expected: expected.sokoban_simple_bfs_length_histogram,
      got: lengthHistogram(),
    },
    ...Object.entries(random).flatMap(([name, budgets]) =>
      vectorChecks(`random ${name}`, () => randomBudgets(name, budgets)),
    ),
    ...Object.entries(expected.frozenlake_optimal_success_10_actions).flatMap(([name, value]) =>
      vectorChecks(`frozenlake_optimal ${name}`, () => [optimalCheck(name, value)]),
    ),
    {
      name: "frozenlake_v2_random_10",
      expected: expected.frozenlake_v2_random_10,
      got: lakeMean(0.9, (lake) => randomSuccess(lake, 10)),
      tolerance: ROUNDED,
    },
    ...Object.entries(expected.hash_reseed_counts).flatMap(([name, value]) =>
      vectorChecks(`hash_reseed_counts ${name}`, () => [
        { name: `hash_reseed_counts ${name}`, expected: value, got: reseedCount(name) },
      ]),
    ),
  ];
}

function optimalCheck(name: string, expected: number): Check {
  const { p, rate } = iceOf(name);
  const got = lakeMean(p, (lake) => planLake(lake, { isSlippery: true, successRate: rate }).value(10, lake.start));
  return { name: `frozenlake_optimal ${name}`, expected, got, tolerance: ROUNDED };
}

function lengthHistogram(): Record<string, number> {
  const config = SokobanConfig.parse(envTag("SimpleSokoban").config);
  const histogram: Record<string, number> = {};
  for (let seed = VALIDATION_SEED; seed < VALIDATION_SEED + 256; seed++) {
    const length = String(shortestPath(generateBoard(config, seed).board)?.length);
    histogram[length] = (histogram[length] ?? 0) + 1;
  }
  return histogram;
}

function lakeMean(p: number, value: (lake: ReturnType<typeof generateLake>) => number): number {
  let sum = 0;
  for (let seed = VALIDATION_SEED; seed < VALIDATION_SEED + LAKE_COUNT; seed++) sum += value(generateLake(4, p, seed));
  return sum / LAKE_COUNT;
}

/** "v1 p=.8 slip 1/3", "v2 p=.9 success_rate .8", "v2 success_rate 1". */
function iceOf(name: string): { p: number; rate: number } {
  const rate = /(?:slip|success_rate) ([\d.]+)(?:\/(\d+))?$/.exec(name);
  if (rate === null) throw new Error(`cannot read the ice of ${name}`);
  const p = Number(/p=([\d.]+)/.exec(name)?.[1] ?? (name.startsWith("v2") ? 0.9 : 0.8));
  return { p, rate: Number(rate[1]) / Number(rate[2] ?? 1) };
}

/** Samples of the file's Sokoban statistics, which are estimates; FrozenLake's are exact. */
const SAMPLED: Readonly<Record<string, { readonly boards: number; readonly rollouts: number }>> = {
  SimpleSokoban: { boards: 256, rollouts: 20 },
  SokobanDifferentGridVocab: { boards: 256, rollouts: 20 },
  LargerSokoban: { boards: 128, rollouts: 10 },
};
/** A difference of two estimates beyond this many standard errors is a failure (one in 16,000 by chance). */
const ERRORS_MAX = 4;

function randomBudgets(name: string, budgets: Readonly<Record<string, number>>): Check[] {
  if (name === "FrozenLake_v1") {
    return Object.entries(budgets).map(([budget, expected]) => {
      const got = lakeMean(0.8, (lake) => randomSuccess(lake, Number(budget)));
      return { name: `random ${name} ${budget}`, expected, got, tolerance: ROUNDED };
    });
  }
  const sampled = SAMPLED[name];
  if (sampled === undefined) throw new Error(`cannot tell how ${name} was sampled`);
  const { boards, rollouts } = sampled;
  const solvedAfter = randomLengths(envTag(name), boards, rollouts);
  return Object.entries(budgets).map(([budget, expected]) => {
    const got = solvedAfter.filter((length) => length <= Number(budget)).length / solvedAfter.length;
    const error = Math.sqrt((2 * expected * (1 - expected)) / solvedAfter.length);
    return { name: `random ${name} ${budget}`, expected, got, tolerance: ERRORS_MAX * error };
  });
}

/** For each rollout, the number of random actions that solved the board; infinite if it was not solved within the game's limit. */
function randomLengths(tag: EnvTag, boards: number, rollouts: number): number[] {
  return range(boards * rollouts).map((i) => {
    const layout = VALIDATION_SEED + Math.floor(i / rollouts);
    const coins = new Pcg64(layout, i % rollouts);
    return solvedAfter(tag.open({ layout, dynamics: layout }), () => coins.integers(4));
  });
}

function solvedAfter(game: Game, action: () => number): number {
  if (game.kind !== "discrete") throw new TypeError("random statistics are of games with a list of actions");
  for (let taken = 1; ; taken++) {
    const { done, success } = game.act(action());
    if (done) return success ? taken : Number.POSITIVE_INFINITY;
  }
}

/** "SimpleSokoban val 256", "SimpleSokoban train seeds 10000..11599". */
function reseedCount(name: string): number {
  const match = /^(\w+) (?:val (\d+)|train seeds (\d+)\.\.(\d+))$/.exec(name);
  if (match === null) throw new Error(`cannot read the boards of ${name}`);
  const config = SokobanConfig.parse(envTag(match[1]!).config);
  const first = match[2] === undefined ? Number(match[3] ?? TRAIN_SEED) : VALIDATION_SEED;
  const last = match[2] === undefined ? Number(match[4]) : VALIDATION_SEED + Number(match[2]) - 1;
  let count = 0;
  for (let seed = first; seed <= last; seed++) if (generateBoard(config, seed).reseeds > 0) count++;
  return count;
}

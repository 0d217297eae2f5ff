/**
 * Measures the time of one action with its observation, and of a new board, on one core.
 * Run: bun run bench envs
 * Goal: at least 1,000,000 step + render per second for SimpleSokoban and FrozenLake, so that envs never limit a rollout
 * (RAGEN's Python: 41,000 and 33,000 on one core of another machine).
 */
import type { DiscreteGame } from "../envs/env.ts";
import { envTag } from "../envs/registry.ts";
import { Pcg64 } from "../envs/rng/pcg64.ts";
import { median } from "../model/statistics.ts";
import { type Comparison, numbersOf, round } from "./shared.ts";

const GOAL_PER_SECOND = 1_000_000;
const BOARDS = 64;
const ROUNDS = 5;
const STEPS = 100_000;
/** First board seed, away from the seeds of other benches and tests. */
const SEED = 50_000;

export const summary = "one action and its observation, and fresh boards, on one core";

export async function run(options: Readonly<Record<string, string>>) {
  numbersOf("envs", {}, options, []);
  const sokobanPerSecond = stepsPerSecond("SimpleSokoban");
  const frozenLakePerSecond = stepsPerSecond("FrozenLake");
  console.log(`SimpleSokoban step + render: ${sokobanPerSecond.toLocaleString("en")} /s`);
  console.log(`FrozenLake step + render: ${frozenLakePerSecond.toLocaleString("en")} /s`);
  for (const tag of ["SimpleSokoban", "LargerSokoban", "FrozenLake"]) {
    console.log(`${tag} boards: ${boardsPerSecond(tag).toLocaleString("en")} /s`);
  }
  const againstGoal = (what: string, perSecond: number): Comparison => ({
    what: `${what}, an action with its observation`,
    ours: `${perSecond.toLocaleString("en")}/s`,
    reference: `goal ${GOAL_PER_SECOND.toLocaleString("en")}/s`,
    speed: round(perSecond / GOAL_PER_SECOND, 2),
    goal: 1,
  });
  const comparisons = [againstGoal("SimpleSokoban", sokobanPerSecond), againstGoal("FrozenLake", frozenLakePerSecond)];
  return { name: "envs", comparisons, sokobanPerSecond, frozenLakePerSecond };
}

/** Random actions per second, each with its observation: median over rounds. A game lasts until its end, at most 10 actions. */
function stepsPerSecond(name: string): number {
  const tag = envTag(name);
  const random = new Pcg64(SEED);
  const actions = Uint8Array.from({ length: 4096 }, () => random.integers(4));
  // Boards are opened before the clock starts; boardsPerSecond measures them.
  const open = (count: number) =>
    Array.from({ length: count }, (_, i) => tag.open({ layout: SEED + (i % BOARDS), dynamics: i }) as DiscreteGame);
  const rates: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    const games = open(STEPS / 3);
    let next = 0;
    let game = games[next++]!;
    let characters = 0;
    let taken = 0;
    const started = performance.now();
    for (let step = 0; step < STEPS; step++) {
      const effect = game.act(actions[step & 4095]!);
      // Reading a character forces JavaScript to build the string.
      characters += game.render().charCodeAt(5);
      if (effect.done || ++taken === 10) {
        game = games[next++]!;
        taken = 0;
      }
    }
    rates.push((STEPS / (performance.now() - started)) * 1000);
    if (characters === 0) throw new Error("nothing was rendered");
  }
  return Math.round(median(rates));
}

function boardsPerSecond(name: string): number {
  const tag = envTag(name);
  const count = 2000;
  const started = performance.now();
  for (let i = 0; i < count; i++) tag.open({ layout: SEED + i, dynamics: i });
  return Math.round((count / (performance.now() - started)) * 1000);
}

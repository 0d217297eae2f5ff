/**
 * The game 2048 and its tag. The layout seed decides the first two tiles. The dynamics seed decides the later tiles.
 *
 * - `sharedStream` is RAGEN's behavior: one random stream for all tiles.
 * - A move that changes nothing earns `invalidScore`, as the prompt says. RAGEN computes this score, but its log reward of a negative score is
 *   0. `hideInvalidScore` reproduces this.
 *
 * Source: RAGEN-2 ragen/env/game_2048.
 */
import { z } from "zod";
import type { DiscreteGame, Effect, Seeds } from "../env.ts";
import { Pcg64 } from "../rng/pcg64.ts";
import { defineTag, plainWording, type TagSource, uniformPlayer } from "../tag.ts";

const ACTIONS_2048 = ["Up", "Right", "Down", "Left"] as const;

export const Config2048 = z.strictObject({
  size: z.int().min(2).max(8).default(4),
  /** Probability that a new tile is a 2; otherwise it is a 4. */
  twoProb: z.number().min(0).max(1).default(0.9),
  /** Reward 0.1 * log2(merged + 1) instead of the merged sum. */
  useLogReward: z.boolean().default(true),
  invalidScore: z.number().max(0).default(-0.1),
  hideInvalidScore: z.boolean().default(false),
  sharedStream: z.boolean().default(false),
});
export type Config2048 = z.infer<typeof Config2048>;

export type Grid = readonly (readonly number[])[];

const GOAL = 2048;
/** The largest tile that appears by itself. */
const NEW_TILE_MAX = 4;
/** A lower bound on the moves to the goal: the first two tiles and one new tile per move must add up to the goal. */
const MOVES_MIN = (GOAL - 2 * NEW_TILE_MAX) / NEW_TILE_MAX;
const DYNAMICS_STREAM = 1;

export class Game2048 implements DiscreteGame {
  readonly kind = "discrete";
  readonly actions = ACTIONS_2048;
  readonly #config: Config2048;
  readonly #random: Pcg64;
  #grid: Grid;
  #score = 0;
  #done = false;

  constructor(config: Config2048, seeds: Seeds) {
    const layout = new Pcg64(seeds.layout);
    this.#config = config;
    this.#grid = Array.from({ length: config.size }, () => new Array<number>(config.size).fill(0));
    this.#grid = withTile(withTile(this.#grid, layout, config.twoProb), layout, config.twoProb);
    this.#random = config.sharedStream ? layout : new Pcg64(seeds.dynamics, DYNAMICS_STREAM);
  }

  get grid(): Grid {
    return this.#grid;
  }

  get score(): number {
    return this.#score;
  }

  render(): string {
    const moves = ACTIONS_2048.map((name, i) => `${i}(${name})`).filter((_, i) => slide(this.#grid, i).moved);
    return [
      "Current 2048 Grid:",
      ...this.#grid.map((row, i) => `Row ${i + 1}: [${row.join(", ")}]`),
      "",
      `Valid Actions: ${moves.join(", ") || "None"}.`,
      "Goal: Merge same numbers to reach 2048.",
      `Current Score: ${this.#score}`,
      "What is your next move?",
    ].join("\n");
  }

  act(action: number): Effect {
    if (this.#done) throw new Error("this game of 2048 is over; open a new one");
    const { grid, merged, moved } = slide(this.#grid, action);
    if (moved) {
      this.#score += merged;
      this.#grid = withTile(grid, this.#random, this.#config.twoProb);
      this.#done = ACTIONS_2048.every((_, next) => !slide(this.#grid, next).moved);
    }
    const rawReward = moved ? merged : this.#config.invalidScore;
    const maxTile = Math.max(...this.#grid.flat());
    const success = maxTile >= GOAL;
    const extra = { raw_reward: rawReward, max_tile: maxTile, score: this.#score };
    return {
      reward: this.#reward(rawReward, moved),
      done: this.#done,
      effective: moved,
      valid: moved,
      success,
      extra: this.#done && !success ? { ...extra, dead_end: 1 } : extra,
    };
  }

  #reward(rawReward: number, moved: boolean): number {
    if (!moved && !this.#config.hideInvalidScore) return rawReward;
    return this.#config.useLogReward ? logReward(rawReward) : rawReward;
  }
}

/** 0.1 * log2(merged + 1); 0 where nothing merged. */
export function logReward(merged: number): number {
  return merged > 0 ? 0.1 * Math.log2(merged + 1) : 0;
}

/** Slides all tiles one way and merges equal neighbors once; adds no tile. */
export function slide(grid: Grid, action: number): { grid: Grid; merged: number; moved: boolean } {
  let merged = 0;
  // Turn the board so that the action's direction becomes left, slide the tiles, and turn the board back.
  const turned = turn(grid, action);
  const slid = turned.map((row) => {
    const tiles = row.filter((tile) => tile !== 0);
    const kept: number[] = [];
    for (let i = 0; i < tiles.length; i++) {
      if (tiles[i] === tiles[i + 1]) {
        kept.push(tiles[i]! * 2);
        merged += tiles[i]! * 2;
        i++;
      } else {
        kept.push(tiles[i]!);
      }
    }
    return [...kept, ...new Array<number>(row.length - kept.length).fill(0)];
  });
  const moved = slid.some((row, r) => row.some((tile, c) => tile !== turned[r]![c]));
  return { grid: turn(slid, action), merged, moved };
}

/** Turns the board so that the action's direction becomes left. A second call with the same action turns the board back. */
function turn(grid: Grid, action: number): number[][] {
  switch (action) {
    case 0:
      return grid[0]!.map((_, c) => grid.map((row) => row[c]!));
    case 1:
      return grid.map((row) => [...row].reverse());
    case 2:
      return grid[0]!.map((_, c) => grid.map((row) => row[grid.length - 1 - c]!).reverse());
    case 3:
      return grid.map((row) => [...row]);
    default:
      throw new RangeError(`2048 has actions 0 to 3, got ${action}`);
  }
}

function withTile(grid: Grid, random: Pcg64, twoProb: number): Grid {
  const empty = grid.flatMap((row, r) => row.flatMap((tile, c) => (tile === 0 ? [[r, c] as const] : [])));
  const [row, col] = empty[random.integers(empty.length)]!;
  const tile = random.random() < twoProb ? 2 : 4;
  return grid.map((line, r) => (r === row ? line.map((old, c) => (c === col ? tile : old)) : line));
}

const instruction = (size: number) =>
  `You are playing the 2048 game on a ${size}x${size} grid. Merge equal tiles by sliding Up, Right, Down, or Left.\nIf a move is invalid (no tiles move), a small penalty is applied. Respond with a single action.\nExample: <answer>Up</answer>\n`;

/** The 2048 tag. Source: RAGEN-2 config/envs.yaml. */
export const game2048Tags: readonly TagSource[] = [
  defineTag({
    tag: "game_2048",
    type: "game_2048",
    schema: Config2048,
    compatDefaults: { sharedStream: true, hideInvalidScore: true },
    actionsMax: 700,
    replyWordsHint: 8192,
    parts: (config) => ({
      wording: plainWording(instruction(config.size), ACTIONS_2048, false),
      open: (seeds) => new Game2048(config, seeds),
      brief,
      actionsMin: MOVES_MIN,
      random: uniformPlayer,
    }),
  }),
];

/** The rows and the score; the rows determine the possible moves. */
function brief(observation: string): string {
  const rows = [...observation.matchAll(/^Row \d+: \[(.*)\]$/gm)].map((match) => match[1]!.replaceAll(", ", " "));
  const score = /^Current Score: (.*)$/m.exec(observation)!;
  return `${rows.join("\n")}\n${score[1]}`;
}

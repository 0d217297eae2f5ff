/**
 * How good a player is on fixed boards, without any model or reply: the random and the best-possible line of every
 * report. The game and the action budget decide; turn limits and formats are a policy's affair.
 */
import type { Uniform } from "./env.ts";
import { Pcg64 } from "./rng/pcg64.ts";
import type { EnvTag, Player } from "./tag.ts";

export interface Evaluation {
  /** Share of episodes that ended in success. */
  readonly success: number;
  /** 95 % Wilson interval of `success`. */
  readonly ci95: readonly [low: number, high: number];
  readonly meanReward: number;
  /** A player chooses one action a turn. */
  readonly meanTurns: number;
  readonly meanActions: number;
}

export interface EvaluationOptions {
  readonly episodes: number;
  /** Layout seed of the first board; each episode takes the next. */
  readonly seed: number;
  /** Which coins the player throws; 0 if left out. Another number is another round on the same boards. */
  readonly coins?: number;
  /** Budget of an episode; the tag's if left out. */
  readonly actionsMax?: number;
}

/** Names the players' coins among the streams of a seed. */
const COIN_STREAM = 2;

/** @throws {RangeError} if there are no episodes or the seeds leave uint32. */
export function evaluatePlayer(tag: EnvTag, player: Player, options: EvaluationOptions): Evaluation {
  const { episodes, seed, coins: round = 0, actionsMax = tag.actionsMax } = options;
  if (!Number.isInteger(episodes) || episodes < 1) throw new RangeError(`episodes must be at least 1, got ${episodes}`);
  let successes = 0;
  let reward = 0;
  let actions = 0;
  for (let layout = seed; layout < seed + episodes; layout++) {
    const coins = new Pcg64(layout, COIN_STREAM + round);
    const played = play(tag, player, layout, actionsMax, () => coins.random());
    if (played.success) successes++;
    reward += played.reward;
    actions += played.actions;
  }
  return {
    success: successes / episodes,
    ci95: wilson(successes, episodes),
    meanReward: reward / episodes,
    meanTurns: actions / episodes,
    meanActions: actions / episodes,
  };
}

function play(tag: EnvTag, player: Player, seed: number, actionsMax: number, uniform: Uniform) {
  const game = tag.open({ layout: seed, dynamics: seed });
  let reward = 0;
  for (let taken = 0; taken < actionsMax; taken++) {
    const action = player(game, actionsMax - taken, uniform);
    // A player of a tag speaks its game's language; the game itself refuses anything else.
    const effect = game.kind === "discrete" ? game.act(Number(action)) : game.act(String(action));
    reward += effect.reward;
    if (effect.done) return { success: effect.success, reward, actions: taken + 1 };
  }
  return { success: false, reward, actions: actionsMax };
}

/** 95 % interval of a share. Source: Wilson (1927). */
export function wilson(successes: number, trials: number): [low: number, high: number] {
  const z = 1.959963984540054;
  const share = successes / trials;
  const centre = share + (z * z) / (2 * trials);
  const spread = z * Math.sqrt((share * (1 - share)) / trials + (z * z) / (4 * trials * trials));
  const scale = 1 + (z * z) / trials;
  return [Math.max(0, (centre - spread) / scale), Math.min(1, (centre + spread) / scale)];
}

/** Mean of the highest possible success on the boards, where it is known for each of them. */
export function bestPossible(tag: EnvTag, options: EvaluationOptions): number | null {
  const { episodes, seed, actionsMax = tag.actionsMax } = options;
  let sum = 0;
  for (let layout = seed; layout < seed + episodes; layout++) {
    const best = tag.best(tag.open({ layout, dynamics: layout }), actionsMax);
    if (best === null) return null;
    sum += best;
  }
  return sum / episodes;
}

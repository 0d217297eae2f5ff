/**
 * How good a player is on fixed boards, without any model or reply: the random and the best-possible line of every
 * report. The game and the action budget decide; turn limits and formats are a policy's affair.
 */
import type { LocalGame, OutsideGame, Uniform } from "../env.ts";
import { Refused } from "../outside/json-server.ts";
import { Pcg64 } from "../rng/pcg64.ts";
import type { EnvTag, Player } from "../tag.ts";
import { type PassAtK, passCurve } from "./pass-at-k.ts";

export interface Evaluation {
  /** Share of episodes that ended in success. */
  readonly success: number;
  /** 95 % Wilson interval of `success`. */
  readonly ci95: readonly [low: number, high: number];
  readonly meanReward: number;
  /** A player chooses one action a turn. */
  readonly meanTurns: number;
  readonly meanActions: number;
  /** Share of boards solved by at least one of k tries, for k up to the tries there were. */
  readonly passAt: readonly PassAtK[];
}

export interface EvaluationOptions {
  readonly episodes: number;
  /** Layout seed of the first board; each episode takes the next. */
  readonly seed: number;
  /** Episodes per board, each with its own coins and, from the second on, its own slips and payouts; 1 if left out. */
  readonly tries?: number;
  /** Which coins the player throws; 0 if left out. Another number is another round on the same boards. */
  readonly coins?: number;
  /** Budget of an episode; the tag's if left out. */
  readonly actionsMax?: number;
}

/** Names the players' coins among the streams of a seed. */
const COIN_STREAM = 2;

/** Episodes of games that live elsewhere which are played at once. */
const OUTSIDE_AT_ONCE = 16;
/** Such an episode is begun so often before its failure is one of the evaluation. */
const OUTSIDE_ATTEMPTS = 3;

/** @throws {RangeError} if there are no episodes. A game that fails for good ends it: fewer boards are other boards. */
export async function evaluatePlayer(tag: EnvTag, player: Player, options: EvaluationOptions): Promise<Evaluation> {
  const { episodes: boards, tries = 1, seed, coins: round = 0, actionsMax = tag.actionsMax } = options;
  for (const [name, count] of Object.entries({ episodes: boards, tries })) {
    if (!Number.isInteger(count) || count < 1) throw new RangeError(`${name} must be at least 1, got ${count}`);
  }
  const episodes = boards * tries;
  const played: Played[] = new Array(episodes);
  let next = 0;
  async function playOn(): Promise<void> {
    while (next < episodes) {
      const index = next++;
      const now = begin(index);
      played[index] = now instanceof Promise ? await firstToSucceed(now, () => begin(index)) : now;
    }
  }
  function begin(index: number): Played | Promise<Played> {
    const layout = seed + Math.floor(index / tries);
    const coins = new Pcg64(layout, COIN_STREAM + round + (index % tries));
    const game = tag.open({ layout, dynamics: index % tries === 0 ? layout : Math.floor(coins.random() * 2 ** 32) });
    const table = { player, actionsMax, uniform: () => coins.random() };
    return game.kind === "outside" ? playOutside(game, table) : play(game, table);
  }
  try {
    await Promise.all(Array.from({ length: tag.needs === null ? 1 : OUTSIDE_AT_ONCE }, playOn));
  } finally {
    next = episodes;
  }
  const solved = Array.from({ length: boards }, (_, board) => {
    return played.slice(board * tries, (board + 1) * tries).filter(({ success }) => success).length;
  });
  const successes = solved.reduce((sum, count) => sum + count, 0);
  const reward = played.reduce((sum, one) => sum + one.reward, 0);
  const actions = played.reduce((sum, one) => sum + one.actions, 0);
  return {
    success: successes / episodes,
    ci95: boardInterval(solved, tries),
    passAt: passCurve(solved, tries),
    meanReward: reward / episodes,
    meanTurns: actions / episodes,
    meanActions: actions / episodes,
  };
}

/** Who plays, and under which limits. */
interface Table {
  readonly player: Player;
  readonly actionsMax: number;
  readonly uniform: Uniform;
}

interface Played {
  readonly success: boolean;
  readonly reward: number;
  readonly actions: number;
}

function play(game: LocalGame, { player, actionsMax, uniform }: Table): Played {
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

/** @throws what the last attempt failed with. */
async function firstToSucceed(first: Promise<Played>, again: () => Played | Promise<Played>): Promise<Played> {
  let now: Played | Promise<Played> = first;
  for (let attempt = 1; ; attempt++, now = again()) {
    try {
      return await now;
    } catch (error) {
      if (attempt === OUTSIDE_ATTEMPTS || error instanceof Refused) throw error;
    }
  }
}

async function playOutside(game: OutsideGame, { player, actionsMax, uniform }: Table): Promise<Played> {
  await game.start();
  try {
    let reward = 0;
    for (let taken = 0; taken < actionsMax; taken++) {
      const effect = await game.act(String(player(game, actionsMax - taken, uniform)));
      reward += effect.reward;
      if (effect.done) return { success: effect.success, reward, actions: taken + 1 };
    }
    return { success: false, reward, actions: actionsMax };
  } finally {
    await game.close();
  }
}

/** Random boards are played this many times over, so that the line others are compared with is not itself noise. */
const RANDOM_ROUNDS = 16;

/** What chance reaches: means over several rounds, or over one where each action costs somebody else's time. */
export async function evaluateRandom(
  tag: EnvTag,
  options: EvaluationOptions,
): Promise<Omit<Evaluation, "ci95" | "passAt">> {
  const rounds: Evaluation[] = [];
  for (let coins = 0; coins < (tag.needs === null ? RANDOM_ROUNDS : 1); coins++) {
    rounds.push(await evaluatePlayer(tag, tag.random, { ...options, coins }));
  }
  const mean = (of: (round: Evaluation) => number) => rounds.reduce((sum, round) => sum + of(round), 0) / rounds.length;
  return {
    success: mean(({ success }) => success),
    meanReward: mean(({ meanReward }) => meanReward),
    meanTurns: mean(({ meanTurns }) => meanTurns),
    meanActions: mean(({ meanActions }) => meanActions),
  };
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

/**
 * 95 % interval of the success on boards like these. Tries at one board are alike, so from two tries on it comes from how boards
 * differ: 1.96 standard errors of their mean.
 *
 * @param solved  tries that solved each board, of so many each
 */
export function boardInterval(solved: readonly number[], tries: number): [low: number, high: number] {
  const sum = solved.reduce((total, count) => total + count, 0);
  if (tries === 1 || solved.length < 2) return wilson(sum, solved.length * tries);
  const mean = sum / tries / solved.length;
  const variance = solved.reduce((total, count) => total + (count / tries - mean) ** 2, 0) / (solved.length - 1);
  const spread = 1.959963984540054 * Math.sqrt(variance / solved.length);
  return [Math.max(0, mean - spread), Math.min(1, mean + spread)];
}

/** Success of the tag's scripted expert; null if it has none, or the best possible is known without one. */
export async function expertSuccess(tag: EnvTag, options: EvaluationOptions): Promise<number | null> {
  if (tag.optimal === null || bestPossible(tag, options) !== null) return null;
  return (await evaluatePlayer(tag, tag.optimal, options)).success;
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

/**
 * Measures players on fixed boards, without a model: success with a 95 % interval, rewards, and pass@k. Reports use these numbers as
 * baselines. Players choose actions, so this file reads no replies and applies no turn limits.
 */
import type { Game, Uniform } from "../env.ts";
import { NoRandomPlayer, Refused } from "../outside/json-server.ts";
import { Pcg64 } from "../rng/pcg64.ts";
import { dynamicsSeed } from "../seeds.ts";
import type { EnvTag, Player } from "../tag.ts";

export interface Evaluation {
  /** Share of successful episodes. */
  readonly success: number;
  /** 95 % interval of `success`. */
  readonly ci95: readonly [low: number, high: number];
  /** Mean over episodes of the sum of an episode's rewards. */
  readonly meanReward: number;
  /** Equals `meanActions`, because a player chooses one action per turn. */
  readonly meanTurns: number;
  readonly meanActions: number;
  /** Share of boards that at least one of k tries solves, for k = 1, 2, 4, … and for k = the number of tries. */
  readonly passAt: readonly PassAtK[];
}

/** What a player saw and did in one episode. */
export interface PlayerEpisode {
  /** Index of the try at the board. */
  readonly member: number;
  readonly layoutSeed: number;
  readonly dynamicsSeed: number;
  readonly success: boolean;
  /** One turn per action. */
  readonly turns: readonly { readonly observation: string; readonly actions: string[]; readonly reward: number }[];
  readonly finalObservation: string;
}

export interface EvaluationOptions {
  /** Number of boards. */
  readonly episodes: number;
  /** Layout seed of the first board. Each further board has the next seed. */
  readonly seed: number;
  /** Episodes per board, default 1. Each episode has its own dynamics and its own coins (the random numbers of the player). */
  readonly tries?: number;
  /** Number of the round, default 0. With one try per board, each round plays the same boards with other coins and dynamics. */
  readonly round?: number;
  /** Action budget of an episode. The default is the tag's budget. */
  readonly actionsMax?: number;
  /** The evaluation calls this function once for each episode, in the order of boards, after all episodes have ended. */
  readonly record?: (episode: PlayerEpisode) => void;
}

/** Separates the players' coins from the other streams of a seed. */
const COIN_STREAM = 2;

/** Number of episodes of an external env that run at the same time. */
const EXTERNAL_AT_ONCE = 16;
/** Maximum number of attempts at an episode of an outside game. If all attempts fail, the evaluation throws the error of the last attempt. */
const OUTSIDE_ATTEMPTS = 3;

/** @throws {RangeError} unless boards and tries are whole numbers of at least 1. @throws the error of an episode that cannot be played. */
export async function evaluatePlayer(tag: EnvTag, player: Player, options: EvaluationOptions): Promise<Evaluation> {
  const { episodes: boards, tries = 1, seed, round = 0, actionsMax = tag.actionsMax } = options;
  for (const [name, count] of Object.entries({ episodes: boards, tries })) {
    if (!Number.isInteger(count) || count < 1) throw new RangeError(`${name} must be at least 1, got ${count}`);
  }
  const episodes = boards * tries;
  const played: Played[] = new Array(episodes);
  let next = 0;
  async function playRest(): Promise<void> {
    while (next < episodes) {
      const index = next++;
      played[index] = await playIndex(index);
    }
  }
  async function playIndex(index: number): Promise<Played> {
    const layoutSeed = seed + Math.floor(index / tries);
    const member = round + (index % tries);
    const seeds = { member, layoutSeed, dynamicsSeed: dynamicsSeed(layoutSeed, member) };
    for (let attempt = 1; ; attempt++) {
      const coins = new Pcg64(layoutSeed, COIN_STREAM + member);
      const game = tag.open({ layout: layoutSeed, dynamics: seeds.dynamicsSeed });
      try {
        const records = options.record !== undefined;
        return { ...seeds, ...(await play(game, player, actionsMax, () => coins.random(), records)) };
      } catch (error) {
        if (game.kind !== "outside" || error instanceof Refused || attempt === OUTSIDE_ATTEMPTS) throw error;
      }
    }
  }
  try {
    await Promise.all(Array.from({ length: tag.external ? EXTERNAL_AT_ONCE : 1 }, playRest));
  } finally {
    // After an error the other loops of `playRest` stop.
    next = episodes;
  }
  for (const { reward: _, actions: __, ...episode } of played) options.record?.(episode);
  const solved = Array.from({ length: boards }, (_, board) => {
    return played.slice(board * tries, (board + 1) * tries).filter(({ success }) => success).length;
  });
  const meanActions = meanOf(played, ({ actions }) => actions);
  return {
    success: solved.reduce((sum, count) => sum + count, 0) / episodes,
    ci95: boardInterval(solved, tries),
    passAt: passCurve(solved, tries),
    meanReward: meanOf(played, ({ reward }) => reward),
    meanTurns: meanActions,
    meanActions,
  };
}

const meanOf = <T>(items: readonly T[], value: (item: T) => number): number =>
  items.reduce((sum, item) => sum + value(item), 0) / items.length;

interface Played extends PlayerEpisode {
  readonly reward: number;
  readonly actions: number;
}

/** @param records  true: render and keep each turn */
async function play(
  game: Game,
  player: Player,
  actionsMax: number,
  uniform: Uniform,
  records: boolean,
): Promise<Omit<Played, "member" | "layoutSeed" | "dynamicsSeed">> {
  if (game.kind !== "outside") return playStarted(game, player, actionsMax, uniform, records);
  await game.start();
  const played = await playStarted(game, player, actionsMax, uniform, records).catch(async (error) => {
    // Report `error`. If `close` fails too, its error is not reported.
    await game.close().catch(() => {});
    throw error;
  });
  await game.close();
  return played;
}

async function playStarted(
  game: Game,
  player: Player,
  actionsMax: number,
  uniform: Uniform,
  records: boolean,
): ReturnType<typeof play> {
  let reward = 0;
  let success = false;
  const turns: PlayerEpisode["turns"][number][] = [];
  let finalObservation = records ? game.render() : "";
  for (let taken = 0; taken < actionsMax; taken++) {
    const action = player(game, actionsMax - taken, uniform);
    const effect = game.kind === "discrete" ? game.act(Number(action)) : await game.act(String(action));
    if (!Number.isFinite(effect.reward))
      throw new RangeError(`the env's reward is ${effect.reward}; return a finite number`);
    reward += effect.reward;
    success = effect.success;
    if (records) {
      const name = game.kind === "discrete" ? game.actions[Number(action)]! : String(action);
      turns.push({ observation: finalObservation, actions: [name], reward: effect.reward });
      finalObservation = effect.message ?? game.render();
    }
    if (effect.done) return { success, reward, actions: taken + 1, turns, finalObservation };
  }
  return { success, reward, actions: actionsMax, turns, finalObservation };
}

/** The random baseline is the mean of this many rounds, because such a mean has little noise. */
const RANDOM_ROUNDS = 16;

/** The random baseline: the mean over `RANDOM_ROUNDS` rounds, or over one round if the env is external. null if the env has no random player. */
export async function evaluateRandom(
  tag: EnvTag,
  options: EvaluationOptions,
): Promise<Omit<Evaluation, "ci95" | "passAt"> | null> {
  const rounds: Evaluation[] = [];
  try {
    for (let round = 0; round < (tag.external ? 1 : RANDOM_ROUNDS); round++) {
      rounds.push(await evaluatePlayer(tag, tag.random, { ...options, round }));
    }
  } catch (error) {
    if (error instanceof NoRandomPlayer) return null;
    throw error;
  }
  return {
    success: meanOf(rounds, ({ success }) => success),
    meanReward: meanOf(rounds, ({ meanReward }) => meanReward),
    meanTurns: meanOf(rounds, ({ meanTurns }) => meanTurns),
    meanActions: meanOf(rounds, ({ meanActions }) => meanActions),
  };
}

/** 95 % interval of a share. Source: Wilson (1927). */
export function wilson(successes: number, trials: number): [low: number, high: number] {
  const z = 1.959963984540054;
  const share = successes / trials;
  const center = share + (z * z) / (2 * trials);
  const spread = z * Math.sqrt((share * (1 - share)) / trials + (z * z) / (4 * trials * trials));
  const scale = 1 + (z * z) / trials;
  return [Math.max(0, (center - spread) / scale), Math.min(1, (center + spread) / scale)];
}

/**
 * 95 % interval of the success on other boards of the same kind. For one try per board, or for only one board, the interval is Wilson's.
 * Several tries at one board are correlated. So for several tries the interval is the mean over boards, plus and minus 1.96 standard errors. If
 * all boards have equally many solved tries, the standard error would be 0. The interval is then Wilson's, with each board counted as one try.
 *
 * @param solved  successful tries of each board
 */
export function boardInterval(solved: readonly number[], tries: number): [low: number, high: number] {
  const sum = solved.reduce((total, count) => total + count, 0);
  if (tries === 1 || solved.length < 2) return wilson(sum, solved.length * tries);
  if (solved.every((count) => count === solved[0])) return wilson(sum / tries, solved.length);
  const mean = sum / tries / solved.length;
  const variance = solved.reduce((total, count) => total + (count / tries - mean) ** 2, 0) / (solved.length - 1);
  const spread = 1.959963984540054 * Math.sqrt(variance / solved.length);
  return [Math.max(0, mean - spread), Math.min(1, mean + spread)];
}

/** Success of the tag's expert; null if the tag has no expert, or if the best possible success is known. */
export async function expertSuccess(tag: EnvTag, options: EvaluationOptions): Promise<number | null> {
  if (tag.expert === undefined || bestPossible(tag, options) !== null) return null;
  return (await evaluatePlayer(tag, tag.expert, options)).success;
}

/** The highest possible success, as a mean over boards; null if it is unknown for at least one board. */
export function bestPossible(tag: EnvTag, options: EvaluationOptions): number | null {
  const { episodes, seed, actionsMax = tag.actionsMax } = options;
  let sum = 0;
  for (let layout = seed; layout < seed + episodes; layout++) {
    const best = tag.best(tag.open({ layout, dynamics: dynamicsSeed(layout, 0) }), actionsMax);
    if (best === null) return null;
    sum += best;
  }
  return sum / episodes;
}

/**
 * `1 - C(n - solved, k) / C(n, k)`: the probability that k tries, drawn from the n tries, include a solved try. Unbiased, unlike `1 - (1 -
 * solved / n)^k`.
 *
 * Source: Chen et al. 2021, https://arxiv.org/abs/2107.03374, equation 1. RAGEN's pass@k is the case k = n.
 *
 * @param tries  n, at least k.
 * @throws {RangeError} unless 1 <= k <= n and 0 <= solved <= n.
 */
export function passAtK(tries: number, solved: number, k: number): number {
  if (!Number.isInteger(k) || k < 1 || k > tries)
    throw new RangeError(`pass@k of ${tries} tries needs k from 1 to ${tries}, got ${k}`);
  if (!(solved >= 0 && solved <= tries))
    throw new RangeError(`of ${tries} tries, 0 to ${tries} can be solved, got ${solved}`);
  let none = 1;
  for (let i = 0; i < k; i++) none *= Math.max(0, tries - solved - i) / (tries - i);
  return 1 - none;
}

interface PassAtK {
  readonly k: number;
  /** Mean over boards. */
  readonly share: number;
}

/**
 * pass@k for k = 1, 2, 4, … and for k = `tries`.
 *
 * @param solved  successful tries of each board; at least one board.
 */
export function passCurve(solved: readonly number[], tries: number): PassAtK[] {
  if (solved.length === 0) throw new RangeError("pass@k needs at least one board, got none");
  const powers = Array.from({ length: Math.floor(Math.log2(tries)) + 1 }, (_, i) => 2 ** i);
  const ks = [...new Set([...powers, tries])];
  return ks.map((k) => ({ k, share: meanOf(solved, (count) => passAtK(tries, count, k)) }));
}

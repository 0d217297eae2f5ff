/**
 * A bandit with two named arms. The safe arm always pays a little; the risky arm pays much with some probability. One pull ends the
 * game. `banditScorer` checks what a thought says about the arms.
 *
 * - The layout seed decides the names and their order. The dynamics seed decides the payout.
 * - `sharedStream` is RAGEN v1's behavior: one random stream for names and payout, so all members of a group get the same payout.
 *
 * Source: RAGEN ragen/env/bandit/env.py; the pair lists are RAGEN-2's.
 */
import { z } from "zod";
import { clausesOf, isDenied, isSupposed, type ReasoningScorer, shareOf } from "../analysis/reasoning.ts";
import type { DiscreteGame, Effect, Seeds } from "../env.ts";
import { Pcg64 } from "../rng/pcg64.ts";
import { pythonFloat } from "../text/numbers.ts";

export const BanditConfig = z.strictObject({
  loArmName: z.string().min(1).default("phoenix"),
  hiArmName: z.string().min(1).default("dragon"),
  loArmScore: z.number().default(0.1),
  hiArmLoscore: z.number().default(0),
  hiArmHiscore: z.number().default(1),
  hiArmHiscoreProb: z.number().min(0).max(1).default(0.25),
  /** Draw the names from RAGEN-2's list for this split; null uses `loArmName` and `hiArmName`. */
  split: z.enum(["train", "test"]).nullable().default(null),
  sharedStream: z.boolean().default(false),
});
export type BanditConfig = z.infer<typeof BanditConfig>;

/** Names of the safe arm and of the risky arm. */
const PAIRS = {
  train: [
    ["Teacher", "Trader"],
    ["Nurse", "StartupFounder"],
    ["Librarian", "Investor"],
    ["Accountant", "StockBroker"],
    ["Engineer", "RealEstateAgent"],
    ["Pharmacist", "Musician"],
    ["Clerk", "Freelancer"],
    ["Technician", "Youtuber"],
    ["Planner", "Artist"],
    ["Postman", "Pilot"],
    ["Banker", "VentureCapitalist"],
    ["Gardener", "Cryptominer"],
  ],
  test: [
    ["Receptionist", "Explorer"],
    ["Archivist", "Filmmaker"],
    ["Bookkeeper", "Consultant"],
    ["SocialWorker", "Photographer"],
    ["Mechanic", "GameDesigner"],
    ["Secretary", "Entrepreneur"],
    ["Cashier", "DataScientist"],
    ["CivilServant", "StartupAccelerator"],
  ],
} as const;

/** True if a risky arm has this name, in upper or lower case. */
export const isRiskyArm = ({ split, hiArmName }: BanditConfig, name: string): boolean =>
  (split === null ? [hiArmName] : PAIRS[split].map(([, high]) => high)).some(
    (high) => high.toLowerCase() === name.toLowerCase(),
  );

/** Separates the payout stream, so that equal layout and dynamics seeds give unrelated numbers. */
const PAYOUT_STREAM = 1;

export class BanditGame implements DiscreteGame {
  readonly kind = "discrete";
  /** The names of the arms, in the order in which the observation shows them. */
  readonly actions: readonly [string, string];
  /** Index of the risky arm, which pays more on average with the default settings. */
  readonly high: number;
  readonly low: string;
  readonly #config: BanditConfig;
  readonly #payouts: Pcg64;
  #message: string | null = null;

  constructor(config: BanditConfig, seeds: Seeds) {
    const layout = new Pcg64(seeds.layout);
    const [low, high] =
      config.split === null
        ? [capitalized(config.loArmName), capitalized(config.hiArmName)]
        : PAIRS[config.split][Math.floor(layout.random() * PAIRS[config.split].length)]!;
    const lowFirst = layout.random() < 0.5;
    this.#config = config;
    this.low = low;
    this.actions = lowFirst ? [low, high] : [high, low];
    this.high = lowFirst ? 1 : 0;
    this.#payouts = config.sharedStream ? layout : new Pcg64(seeds.dynamics, PAYOUT_STREAM);
  }

  render(): string {
    if (this.#message !== null) return this.#message;
    const [a, b] = this.actions;
    return [
      "You are playing a bandit game. Goal: Maximize your total reward by choosing which arm to pull. ",
      "Game Rules: ",
      `1. There are 2 arms, named ${a} and ${b}`,
      "2. Each arm has its own reward distribution, related to their names. ",
      "3. Analyze the symbolic meaning of each arm's name to guess how their reward distribution might behave.",
      `4. Based on the symbolic meaning of their names, which arm do you think is more likely to give higher rewards on average? Choose between ${a} and ${b}, and output like <answer> ${a} </answer> or <answer> ${b} </answer>.`,
      "",
    ].join("\n");
  }

  act(action: number): Effect {
    if (this.#message !== null) throw new Error("this Bandit game is over; open a new one");
    const name = this.actions[action];
    if (name === undefined) throw new RangeError(`Bandit has arms 0 and 1, got ${action}`);
    const reward = action === this.high ? this.#risky() : this.#config.loArmScore;
    this.#message = `${name}: ${pythonFloat(reward)} points`;
    const success = action === this.high;
    const extra: Readonly<Record<string, number>> = success ? {} : { premature_stop: 1 };
    return { reward, done: true, effective: true, valid: true, success, message: this.#message, extra };
  }

  #risky(): number {
    const { hiArmHiscore, hiArmLoscore, hiArmHiscoreProb } = this.#config;
    return this.#payouts.random() < hiArmHiscoreProb ? hiArmHiscore : hiArmLoscore;
  }
}

function capitalized(name: string): string {
  return name[0]!.toUpperCase() + name.slice(1);
}

interface Arms {
  /** True for the arm that pays more on average. */
  readonly paysMore: (name: string) => boolean;
  /** True for the arm whose reward is random. */
  readonly isRisky: (name: string) => boolean;
}

const CHOICE = /\b(?:pull|choose|choosing|pick|select|take|try|go with|going with)\s+(?:the\s+)?(?:arm\s+)?$/i;

/** Matches the name as a word. `\b` knows only ASCII letters, and a name may have others. */
const wordOf = (name: string): RegExp =>
  new RegExp(`(?<![\\p{L}\\p{N}_])${RegExp.escape(name)}(?![\\p{L}\\p{N}_])`, "giu");

/** Each word makes a claim about the arm whose name stands before the word. */
const WORDS: readonly (readonly [word: RegExp, claim: keyof Arms, holds: boolean])[] = [
  [/\b(?:higher|more|better|best|larger|greater)\b/i, "paysMore", true],
  [/\b(?:lower|less|worse|worst|smaller)\b/i, "paysMore", false],
  [/\b(?:risky|riskier|volatile|uncertain)\b/i, "isRisky", true],
  [/\b(?:safe|safer|stable|steady|certain|reliable)\b/i, "isRisky", false],
];

/** The two names in the order of the observation; an empty list if the observation follows a pull. */
export const armsIn = (observation: string): string[] =>
  /^1\. There are 2 arms, named (.+) and (.+)$/m.exec(observation)?.slice(1) ?? [];

/**
 * Scores thoughts about a bandit. The scorer compares the claims about an arm with the arm's true rewards, and the announced choice with the
 * pulled arm. "Dragon pays more on average, so I pull Dragon" has two claims.
 */
export const banditScorer =
  (arms: Arms): ReasoningScorer =>
  ({ thought, observation, actions }) => {
    const names = armsIn(observation);
    const claims = clausesOf(thought).flatMap((clause) => {
      if (isSupposed(clause)) return [];
      const denied = isDenied(clause);
      const found = names
        .flatMap((name) => [...clause.matchAll(wordOf(name))].map((at) => ({ name, at })))
        .sort((a, b) => a.at.index - b.at.index);
      return found.flatMap(({ name, at }, i) => {
        const chosen = CHOICE.test(clause.slice(0, at.index)) && !denied;
        const until = found[i + 1]?.at.index ?? clause.length;
        const said = WORDS.find(([word]) => word.test(clause.slice(at.index + name.length, until)));
        return [
          ...(chosen ? [actions[0]!.toLowerCase() === name.toLowerCase()] : []),
          ...(said === undefined ? [] : [(arms[said[1]](name) === said[2]) !== denied]),
        ];
      });
    });
    return shareOf(claims);
  };

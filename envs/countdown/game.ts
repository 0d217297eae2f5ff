/**
 * Countdown: write an expression that makes the target from all numbers, each used once. One answer ends the game.
 *
 * - The digest of an instance assigns it to training or validation. With `split: seed`, validation seeds and training seeds draw from
 *   different instances. With any other `split`, both draw from the same instances. The default is `seed`. If `prompt.compat` names a
 *   version of RAGEN, the default is `all`.
 * - Every instance has a solution with + and - only, as in RAGEN.
 *
 * Source: RAGEN ragen/env/countdown.
 */
import { z } from "zod";
import { SplitChoice, splitOfItem, splitOfSeed } from "../data/split.ts";
import type { Effect, LanguageGame } from "../env.ts";
import { Pcg64 } from "../rng/pcg64.ts";
import { asciiDigits } from "../text/numbers.ts";
import { evaluateArithmetic } from "./arithmetic.ts";

export const CountdownConfig = z
  .strictObject({
    score: z.number().default(1),
    /** Reward for an answer that uses the right numbers but has a wrong result. */
    formatScore: z.number().default(0.1),
    /** `numberMax` limits the numbers and the target. `countMin` and `countMax` limit how many numbers an instance has. */
    numberMax: z.int().min(9).max(999).default(99),
    countMin: z.int().min(2).max(6).default(3),
    countMax: z.int().min(2).max(6).default(4),
    split: SplitChoice.default("seed"),
    /** A parquet, jsonl or json file with `target` and `nums`; null generates instances. */
    dataPath: z.string().min(1).nullable().default(null),
    /** Maximum number of rows read from the file. */
    instancesMax: z.int().positive().default(20_000),
  })
  .refine(({ countMin, countMax }) => countMin <= countMax, {
    path: ["countMin"],
    message: "must not exceed countMax",
  });
export type CountdownConfig = z.infer<typeof CountdownConfig>;

export interface Countdown {
  readonly target: number;
  readonly nums: readonly number[];
}

/** The instance of a seed. It belongs to the split of this seed. */
export function generateCountdown(config: CountdownConfig, seed: number): Countdown {
  const random = new Pcg64(seed);
  const split = splitOfSeed(config.split, seed);
  for (;;) {
    const count = config.countMin + random.integers(config.countMax - config.countMin + 1);
    const nums = Array.from({ length: count }, () => 1 + random.integers(config.numberMax));
    const target = nums.reduce((sum, num) => sum + (random.random() < 0.5 ? num : -num), 0);
    if (target < 1 || target > config.numberMax) continue;
    if (split === "all" || splitOfItem(instanceText({ target, nums })) === split) return { target, nums };
  }
}

/** The text whose digest decides the split. Instances with the same numbers in another order have the same text. */
export function instanceText({ target, nums }: Countdown): string {
  return [target, ...[...nums].sort((a, b) => a - b)].join(" ");
}

/** An expression of + and - that makes the target; null if there is none. */
export function signedSolution({ nums, target }: Countdown): string | null {
  for (let signs = 0; signs < 2 ** nums.length; signs++) {
    const terms = nums.map((num, i) => ((signs >> i) & 1 ? -num : num));
    if (terms.reduce((sum, term) => sum + term, 0) !== target) continue;
    return terms.map((term, i) => (i === 0 ? String(term) : `${term < 0 ? "-" : "+"} ${Math.abs(term)}`)).join(" ");
  }
  return null;
}

/**
 * The reward: `score` if the answer uses exactly these numbers and makes the target; `formatScore` if it uses exactly these numbers but does
 * not make the target; otherwise 0.
 */
export function scoreCountdown(
  { nums, target }: Countdown,
  answer: string,
  score: number,
  formatScore: number,
): number {
  const used = (asciiDigits(answer).match(/\d+/g) ?? []).map(Number).sort((a, b) => a - b);
  const given = [...nums].sort((a, b) => a - b);
  if (used.length !== given.length || used.some((num, i) => num !== given[i])) return 0;
  try {
    return Math.abs(evaluateArithmetic(answer) - target) < 1e-5 ? score : formatScore;
  } catch {
    // RAGEN pays the format score for the right numbers even if the text is no arithmetic.
    return formatScore;
  }
}

export class CountdownGame implements LanguageGame {
  readonly kind = "language";
  readonly instance: Countdown;
  readonly #config: Pick<CountdownConfig, "score" | "formatScore">;
  #message: string | null = null;

  constructor(instance: Countdown, config: Pick<CountdownConfig, "score" | "formatScore">) {
    this.instance = instance;
    this.#config = config;
  }

  render(): string {
    return this.#message ?? `Target: ${this.instance.target}, nums: [${this.instance.nums.join(", ")}]`;
  }

  act(action: string): Effect {
    if (this.#message !== null) throw new Error("this Countdown is over; open a new one");
    const reward = scoreCountdown(this.instance, action, this.#config.score, this.#config.formatScore);
    this.#message = `Your answer get ${reward} points.`;
    // `reward` does not show success, because the configured rewards may be equal.
    const success = scoreCountdown(this.instance, action, 1, 0) === 1;
    return {
      reward,
      done: true,
      effective: reward > 0,
      valid: true,
      success,
      message: this.#message,
      extra: success ? {} : { premature_stop: 1 },
    };
  }
}

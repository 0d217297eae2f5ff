/**
 * A question that the game asks until the answer is right, for MetaMathQA and the static data sets. Knows no file and no split.
 *
 * - Each wrong answer halves the reward.
 *
 * Source: RAGEN ragen/env/metamathqa, ragen/env/static.
 */
import type { Effect, LanguageGame } from "../env.ts";
import { type Judge, judgeExact } from "./judge.ts";

export interface Question {
  readonly text: string;
  /** The label; null if the data set has no label for this question. Every answer is then wrong. */
  readonly answer: string | null;
}

/** The part of the response after "The answer is: "; null if the response lacks this phrase. */
export function metaMathLabel(response: string): string | null {
  const match = /The answer is: (.*)$/s.exec(response);
  return match === null ? null : match[1]!.trim();
}

export class QuestionGame implements LanguageGame {
  readonly kind = "language";
  readonly question: Question;
  /** All questions of the data set. */
  readonly all: readonly Question[];
  readonly #judge: Judge;
  #wrong = 0;
  #message: string | null = null;
  #done = false;

  constructor(question: Question, judge: Judge = judgeExact, all: readonly Question[] = [question]) {
    this.question = question;
    this.all = all;
    this.#judge = judge;
  }

  render(): string {
    return this.#message ?? this.question.text;
  }

  act(action: string): Effect {
    if (this.#done) throw new Error("this question is answered; open a new one");
    const { correct: success, valid } = this.#judge(action, this.question.answer);
    const reward = success ? 0.5 ** this.#wrong : 0;
    this.#wrong++;
    this.#done = success;
    this.#message = success ? "Correct!" : "Incorrect. Please think again.";
    return { reward, done: success, effective: true, valid, success, message: this.#message };
  }
}

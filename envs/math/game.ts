/**
 * A question with one answer, asked until it is right: MetaMathQA. Knows no file and no split; a question is an argument.
 *
 * - The reward halves with each wrong answer.
 *
 * Source: RAGEN ragen/env/metamathqa.
 */
import type { Effect, LanguageGame } from "../env.ts";

/** The answer after "The answer is: ", to the end of the response; null if there is none. */
export function metaMathLabel(response: string): string | null {
  const match = /The answer is: (.*)$/s.exec(response);
  return match === null ? null : match[1]!.trim();
}

/** Equal but for case and white space. */
export function sameAnswer(answer: string, label: string | null): boolean {
  const plain = (text: string) => text.toLowerCase().replaceAll(/\s+/g, "");
  return label !== null && plain(answer) === plain(label);
}

export class QuestionGame implements LanguageGame {
  readonly kind = "language";
  readonly #question: string;
  readonly #label: string | null;
  #wrong = 0;
  #message: string | null = null;
  #done = false;

  constructor(question: string, label: string | null) {
    this.#question = question;
    this.#label = label;
  }

  render(): string {
    return this.#message ?? this.#question;
  }

  act(action: string): Effect {
    if (this.#done) throw new Error("this question is answered; open a new one");
    const success = sameAnswer(action, this.#label);
    const reward = success ? 0.5 ** this.#wrong : 0;
    this.#wrong++;
    this.#done = success;
    this.#message = success ? "Correct!" : "Incorrect. Please think again.";
    return { reward, done: success, effective: true, valid: action !== "", success, message: this.#message };
  }
}

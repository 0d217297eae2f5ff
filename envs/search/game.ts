/**
 * The agent answers a question by searching: `search[query]` shows documents, `finish[answer]` ends the game. Knows no data
 * set and no server.
 *
 * - Any other text is an invalid action, but the game judges the text as an answer. An empty action is also invalid, and the game does not
 *   judge it.
 * - A search has no reward. After `stepsMax` actions the game is over.
 *
 * Source: RAGEN-2 ragen/env/search/env.py.
 */
import { z } from "zod";
import type { Effect, OutsideGame } from "../env.ts";
import { pythonFixed } from "../text/numbers.ts";
import { answerIn, answerScore } from "./answer.ts";
import { documentsText, type Retriever } from "./retrieval.ts";

export interface SearchQuestion {
  readonly question: string;
  /** The correct answers: each of them alone solves the question. */
  readonly answers: readonly string[];
}

/** Those options of a tag that `SearchGame` reads. */
export const searchRules = {
  /** `resultsMax`: maximum number of documents shown per search. `charactersMax`: maximum number of characters of all these documents. */
  resultsMax: z.int().positive().max(50).default(5),
  charactersMax: z.int().positive().default(4000),
  /** The game is over after this many actions. */
  stepsMax: z.int().positive().default(10),
  correctReward: z.number().default(1),
  incorrectReward: z.number().default(0),
  /** An answer is wrong if the F1 score of its words is below this threshold. */
  f1Threshold: z.number().min(0).max(1).default(0.3),
};
export type SearchRules = Readonly<z.infer<z.ZodObject<typeof searchRules>>>;

const ACTIONS = "Available actions: search[<query>], finish[<answer>]";
const NO_ANSWER = "Maximum search steps reached. Episode ended without an answer.";
const INVALID = "Invalid action. Use search[<query>] to search or finish[<answer>] to answer.";

export class SearchGame implements OutsideGame {
  readonly kind = "outside";
  readonly actions = null;
  readonly question: SearchQuestion;
  /** All questions of the data set; the random player gives their answers. */
  readonly all: readonly SearchQuestion[];
  readonly #retriever: Retriever;
  readonly #rules: SearchRules;
  readonly #closing = new AbortController();
  #observation: string;
  #steps = 0;
  #done = false;

  constructor(question: SearchQuestion, all: readonly SearchQuestion[], retriever: Retriever, rules: SearchRules) {
    this.question = question;
    this.all = all;
    this.#retriever = retriever;
    this.#rules = rules;
    this.#observation = `Question: ${question.question}\n${ACTIONS}`;
  }

  async start(): Promise<void> {}

  render(): string {
    return this.#observation;
  }

  async act(action: string): Promise<Effect> {
    if (this.#done) throw new Error("this question is answered; open a new one");
    const query = /^search\[(.*)\]$/s.exec(action);
    // A search that fails throws an error before the game counts it as a step.
    const effect = query === null ? this.#answer(action) : await this.#search(query[1]!);
    this.#done = effect.done;
    return effect;
  }

  async close(): Promise<void> {
    this.#closing.abort(new Error("the episode was closed"));
  }

  async #search(query: string): Promise<Effect> {
    const { stepsMax, resultsMax, charactersMax } = this.#rules;
    const documents = await this.#retriever(query, resultsMax, this.#closing.signal);
    const done = ++this.#steps >= stepsMax;
    const found = documentsText(documents.slice(0, resultsMax), charactersMax);
    this.#observation = `Search results for '${query}':\n${found}\n\n${done ? NO_ANSWER : ACTIONS}`;
    return { reward: 0, done, effective: true, valid: true, success: false };
  }

  #answer(action: string): Effect {
    const { stepsMax, correctReward, incorrectReward, f1Threshold } = this.#rules;
    const done = ++this.#steps >= stepsMax;
    if (action === "") {
      this.#observation = `${INVALID}\n${ACTIONS}`;
      return { reward: 0, done, effective: false, valid: false, success: false };
    }
    const finish = /^finish\[(.*)\]$/s.exec(action);
    const answer = finish === null ? answerIn(action) : finish[1]!;
    const score = Math.max(
      ...this.question.answers.map((expected) => answerScore(answer, expected.trim(), f1Threshold)),
    );
    const success = score > 0;
    const reward = success ? correctReward * score : incorrectReward;
    const given = finish === null ? "Your answer (extracted)" : "Your answer";
    this.#observation = `${given}: ${answer}. Reward: ${pythonFixed(reward, 2)}`;
    const extra: Readonly<Record<string, number>> = success ? {} : { premature_stop: 1 };
    return { reward, done: true, effective: true, valid: finish !== null, success, extra };
  }
}

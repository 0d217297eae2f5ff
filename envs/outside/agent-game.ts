/**
 * Turns a function that asks a policy into a game. Each question of the function is an observation, the policy's action is the answer,
 * and the function's result ends the game. Knows no language-model API.
 *
 * - One question is open at a time. If the function asks several questions at once, the later questions wait in their order.
 * - If the function throws an error, the episode fails. It does not count as an episode with reward 0.
 * - `close` rejects all unanswered questions and aborts the signal, so that a function whose episode is over stops.
 */
import type { Effect, OutsideGame } from "../env.ts";

/** The function's result for its episode. */
export interface AgentResult {
  /** Reward of the whole episode; the last turn gets it. */
  readonly reward: number;
  /** True if the task is solved. */
  readonly success: boolean;
}

/** Asks the policy. @returns the policy's action. @throws {Error} after the end of the episode */
export type AskPolicy = (observation: string) => Promise<string>;

export type PlayAgent = (ask: AskPolicy, signal: AbortSignal) => Promise<AgentResult>;

interface Question {
  readonly observation: string;
  readonly answer: PromiseWithResolvers<string>;
}

type AgentEnd = { readonly result: AgentResult } | { readonly error: unknown };

const GOES_ON = { reward: 0, done: false, effective: true, valid: true, success: false } as const;

export class AgentGame<Task = unknown> implements OutsideGame {
  readonly kind = "outside";
  /** The game takes any text. */
  readonly actions = null;
  readonly takesWholeAnswer = true;
  /** The task that the function works on. */
  readonly task: Task;
  readonly #play: PlayAgent;
  readonly #closing = new AbortController();
  /** Unanswered questions, in the order in which the function asked them. The first is the open question. */
  readonly #questions: Question[] = [];
  /** How the function ended; null while it runs. */
  #end: AgentEnd | null = null;
  #isOver = false;
  /** Resolves when the function asks the next question, or when it has ended. */
  #turn = Promise.withResolvers<void>();

  constructor(task: Task, play: PlayAgent) {
    this.task = task;
    this.#play = play;
  }

  async start(): Promise<void> {
    const { signal } = this.#closing;
    void (async () => this.#play((observation) => this.#ask(observation), signal))().then(
      (result) => this.#ended({ result }),
      (error: unknown) => this.#ended({ error }),
    );
    await this.#turn.promise;
    const { done } = this.#effect();
    if (done) throw new Error("the agent ended without a question to the policy");
  }

  render(): string {
    return this.#questions[0]?.observation ?? "";
  }

  async act(action: string): Promise<Effect> {
    if (this.#isOver) throw new Error("this game is over; open a new one");
    const question = this.#questions.shift();
    if (question === undefined) return this.#effect();
    this.#turn = Promise.withResolvers();
    question.answer.resolve(action);
    // A question that waits is the next observation.
    if (this.#questions.length > 0) this.#turn.resolve();
    await this.#turn.promise;
    return this.#effect();
  }

  async close(): Promise<void> {
    const over = new Error("the episode is over");
    this.#closing.abort(over);
    this.#ended({ error: over });
  }

  async #ask(observation: string): Promise<string> {
    this.#closing.signal.throwIfAborted();
    const answer = Promise.withResolvers<string>();
    this.#questions.push({ observation, answer });
    this.#turn.resolve();
    return answer.promise;
  }

  /** Records how the function ended; only the first call counts. */
  #ended(end: AgentEnd): void {
    this.#end ??= end;
    const over = new Error("the episode is over");
    for (const { answer } of this.#questions.splice(0)) answer.reject(over);
    this.#turn.resolve();
  }

  /** @throws the error of the function */
  #effect(): Effect {
    if (this.#end === null) return GOES_ON;
    this.#isOver = true;
    if ("error" in this.#end) throw this.#end.error;
    return { ...GOES_ON, ...this.#end.result, done: true, message: "" };
  }
}

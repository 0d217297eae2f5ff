/**
 * DeepCoder: the agent answers a programming problem with a program, which runs on the problem's tests in a sandbox. The
 * reward is the share of tests that the program passes.
 *
 * - A failure of the sandbox is an error of the env, not a wrong answer.
 * - The game holds no resource between answers; `close` kills a running program.
 *
 * Source: RAGEN ragen/env/deepcoder/env.py.
 */
import type { Effect, OutsideGame } from "../env.ts";
import type { Limiter } from "../outside/json-server.ts";
import { type Problem, taskOf } from "./problem.ts";
import { type RunningSandbox, runSandboxed, type SandboxLimits, type SandboxRun } from "./sandbox.ts";
import { verdict } from "./verdict.ts";

export interface DeepCoderRules {
  readonly wholeAnswer: boolean;
  readonly stepsMax: number;
  readonly limits: SandboxLimits;
  /** Limits how many programs run at once. */
  readonly limit: Limiter;
}

export class DeepCoderGame implements OutsideGame {
  readonly kind = "outside";
  readonly actions = null;
  readonly takesWholeAnswer: boolean;
  readonly problem: Problem;
  readonly #rules: DeepCoderRules;
  #observation: string;
  #steps = 0;
  #running: RunningSandbox | null = null;
  #closed = false;

  constructor(problem: Problem, rules: DeepCoderRules) {
    this.problem = problem;
    this.takesWholeAnswer = rules.wholeAnswer;
    this.#rules = rules;
    this.#observation = problem.text;
  }

  async start(): Promise<void> {}

  render(): string {
    return this.#observation;
  }

  async act(answer: string): Promise<Effect> {
    if (this.#steps >= this.#rules.stepsMax) throw new Error("this problem is answered; open a new one");
    const { passed, total, runnable, detail } = verdict(this.problem, await this.#rules.limit(() => this.#run(answer)));
    const success = passed === total;
    this.#steps++;
    const done = success || this.#steps >= this.#rules.stepsMax;
    if (success) this.#observation = "Correct!";
    else this.#observation = done ? "Incorrect." : `${this.problem.text}\n\nFeedback: ${detail}`;
    return {
      reward: passed / total,
      done,
      effective: success,
      valid: true,
      success,
      extra: { passed_tests: passed, total_tests: total, runnable: Number(runnable), pass_reward: passed / total },
    };
  }

  async #run(answer: string): Promise<SandboxRun> {
    if (this.#closed) throw new Error("closed while it waited for the sandbox");
    this.#running = runSandboxed(taskOf(this.problem, answer), this.#rules.limits);
    try {
      const run = await this.#running.ended;
      if (run.stopped === "closed") throw new Error("closed while the program ran");
      return run;
    } finally {
      this.#running = null;
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#running?.kill();
  }
}

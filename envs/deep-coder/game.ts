/**
 * DeepCoder as a `Game`: answer a problem with a program, which is run on the problem's tests in a sandbox. The reward is the share of
 * tests passed.
 *
 * - It lives elsewhere: an answer is waited for, and a sandbox that fails is an error of the env, not of the answer.
 * - Nothing is held between answers; closing ends a program that runs.
 *
 * Source: RAGEN ragen/env/deepcoder/env.py.
 */
import type { Effect, OutsideGame } from "../env.ts";
import { type Problem, taskOf } from "./problem.ts";
import { type RunningSandbox, runSandboxed, type SandboxLimits } from "./sandbox.ts";
import { verdict } from "./verdict.ts";

export interface DeepCoderRules {
  readonly stepsMax: number;
  readonly limits: SandboxLimits;
  /** Waits until another program may run; the result lets the next one in. */
  enter(): Promise<() => void>;
}

export class DeepCoderGame implements OutsideGame {
  readonly kind = "outside";
  readonly actions = null;
  readonly problem: Problem;
  readonly #rules: DeepCoderRules;
  #shown: string;
  #steps = 0;
  #running: RunningSandbox | null = null;
  #closed = false;

  constructor(problem: Problem, rules: DeepCoderRules) {
    this.problem = problem;
    this.#rules = rules;
    this.#shown = problem.text;
  }

  async start(): Promise<void> {}

  render(): string {
    return this.#shown;
  }

  async act(answer: string): Promise<Effect> {
    if (this.#steps >= this.#rules.stepsMax) throw new Error("this problem is answered; open a new one");
    const leave = await this.#rules.enter();
    try {
      if (this.#closed) throw new Error("closed while it waited for the sandbox");
      this.#running = runSandboxed(taskOf(this.problem, answer), this.#rules.limits);
      const run = await this.#running.ended;
      if (run.stopped === "closed") throw new Error("closed while the program ran");
      const { passed, total, runnable, detail } = verdict(this.problem, run);
      const success = passed === total;
      this.#steps++;
      const done = success || this.#steps >= this.#rules.stepsMax;
      if (success) this.#shown = "Correct!";
      else this.#shown = done ? "Incorrect." : `${this.problem.text}\n\nFeedback: ${detail}`;
      return {
        reward: passed / total,
        done,
        effective: success,
        valid: true,
        success,
        extra: { passed_tests: passed, total_tests: total, runnable: Number(runnable), pass_reward: passed / total },
      };
    } finally {
      this.#running = null;
      leave();
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#running?.kill();
  }
}

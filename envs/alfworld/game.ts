/**
 * A household task of ALFWorld on a remote env server. Adds the list of admissible actions and RAGEN's reward.
 * Source: RAGEN-2 ragen/env/alfworld/env.py.
 */
import type { Effect, OutsideGame } from "../env.ts";
import type { RemoteGame } from "../remote/game.ts";

export class AlfworldGame implements OutsideGame {
  readonly kind = "outside";
  /** The game takes any text; only `admissible` actions are valid. */
  readonly actions = null;
  readonly remote: RemoteGame;
  readonly #score: number;

  /** @param score  the reward for solving the task; all other rewards are 0. */
  constructor(remote: RemoteGame, score: number) {
    this.remote = remote;
    this.#score = score;
  }

  start(): Promise<void> {
    return this.remote.start();
  }

  get admissible(): readonly string[] {
    return this.remote.admissible ?? [];
  }

  render(): string {
    return `${this.remote.render()}\n\nAdmissible actions: [${this.admissible.join(", ")}]`;
  }

  async act(action: string): Promise<Effect> {
    const valid = this.admissible.includes(action);
    const { success, done } = await this.remote.act(action);
    return { reward: success ? this.#score : 0, done, effective: true, valid, success };
  }

  close(): Promise<void> {
    return this.remote.close();
  }
}

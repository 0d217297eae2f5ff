/** The 2x2 cube. The layout seed decides the scramble; the dynamics are deterministic. Source: RAGEN-2 rubikscube. */
import { z } from "zod";
import type { DiscreteGame, Effect, Seeds } from "../env.ts";
import { Pcg64 } from "../rng/pcg64.ts";
import { isSolved, SOLVED, TURNS, turned, turns } from "./cube.ts";

export const RubikConfig = z.strictObject({
  /** Random turns from the solved cube. */
  scrambleDepth: z.int().min(1).max(5).default(5),
  maxSteps: z.int().positive().default(20),
  /** RAGEN-2's B turn, which no real cube makes. */
  shippedBack: z.boolean().default(false),
  /** After the last turn list the actions as on every turn, in place of "Game Over", as RAGEN-2 does. */
  endingHidden: z.boolean().default(false),
});
export type RubikConfig = z.infer<typeof RubikConfig>;

const COLORS = ["W", "O", "G", "R", "B", "Y"] as const;
const FACES = ["Up (U):   ", "Left (L): ", "Front (F):", "Right (R):", "Back (B): ", "Down (D): "] as const;

export class RubikGame implements DiscreteGame {
  readonly kind = "discrete";
  readonly actions = TURNS;
  readonly config: RubikConfig;
  /** (24) for each turn. */
  readonly turns: readonly (readonly number[])[];
  #state: readonly number[] = SOLVED;
  #steps = 0;

  constructor(config: RubikConfig, seeds: Seeds) {
    this.config = config;
    this.turns = turns(config.shippedBack);
    const random = new Pcg64(seeds.layout);
    for (let i = 0; i < config.scrambleDepth; i++) this.#state = turned(this.#state, this.turns[random.integers(12)]!);
  }

  /** (24) color of each sticker. */
  get state(): readonly number[] {
    return this.#state;
  }

  render(): string {
    const color = (i: number) => COLORS[this.#state[i]!]!;
    const faces = FACES.map((name, face) => {
      const [a, b, c, d] = [0, 1, 2, 3].map((i) => color(face * 4 + i));
      return `${name} [${a}, ${b}]\n [${c}, ${d}]`;
    });
    return [
      "=== Rubik's Cube 2x2 State ===",
      `Step: ${this.#steps}/${this.config.maxSteps}`,
      "",
      ...faces,
      "",
      ...this.#ending(),
    ].join("\n");
  }

  #ending(): readonly string[] {
    const actions = ["Available Actions:", TURNS.join(", "), "", "What is your next move?"];
    if (this.config.endingHidden) return actions;
    if (this.#steps > 0 && isSolved(this.#state)) return ["=== Game Over: Cube Solved! ==="];
    if (this.#steps >= this.config.maxSteps) return ["=== Game Over: Max steps reached. ==="];
    return actions;
  }

  act(action: number): Effect {
    const turn = this.turns[action];
    if (turn === undefined) throw new RangeError(`the cube has actions 0 to 11, got ${action}`);
    if (this.#steps >= this.config.maxSteps || (this.#steps > 0 && isSolved(this.#state))) {
      throw new Error("this cube is done; open a new one");
    }
    this.#state = turned(this.#state, turn);
    this.#steps++;
    const success = isSolved(this.#state);
    return {
      reward: success ? 1 : 0,
      done: success || this.#steps >= this.config.maxSteps,
      effective: true,
      valid: true,
      success,
    };
  }
}

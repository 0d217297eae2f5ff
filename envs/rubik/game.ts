/**
 * The game of the 2x2 cube, and its tag. The layout seed decides the scramble; the dynamics are deterministic. Source: RAGEN-2 rubikscube.
 */
import { z } from "zod";
import type { DiscreteGame, Effect, Seeds } from "../env.ts";
import { Pcg64 } from "../rng/pcg64.ts";
import { defineTag, expectGame, plainWording, type TagSource, uniformPlayer } from "../tag.ts";
import { isSolved, SOLVED, solveCube, TURNS, turned, turns } from "./cube.ts";

export const RubikConfig = z.strictObject({
  /** Random turns from the solved cube. */
  scrambleDepth: z.int().min(1).max(5).default(5),
  maxSteps: z.int().positive().default(20),
  /** True: B is RAGEN-2's B turn, which is impossible on a real cube. */
  shippedBack: z.boolean().default(false),
  /** True: after the last turn, list the actions instead of "Game Over", as RAGEN-2 does. */
  endingHidden: z.boolean().default(false),
});
export type RubikConfig = z.infer<typeof RubikConfig>;

const COLORS = ["W", "O", "G", "R", "B", "Y"] as const;
const FACES = ["Up (U):   ", "Left (L): ", "Front (F):", "Right (R):", "Back (B): ", "Down (D): "] as const;

export class RubikGame implements DiscreteGame {
  readonly kind = "discrete";
  readonly actions = TURNS;
  readonly config: RubikConfig;
  /** A permutation (24) for each turn. */
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

const INSTRUCTION = `You are solving a 2x2 Rubik's Cube (Pocket Cube). The goal is to restore the cube so that each of the faces consists of a single, unique color.
Available actions use standard Singmaster notation for face rotations: U, U', D, D', L, L', R, R', F, F', B, B'.
- Faces: U (Up), D (Down), L (Left), R (Right), F (Front), B (Back).
- Modifiers: A letter alone means 90° clockwise (e.g., 'R'). A letter with prime (') means 90° counter-clockwise (e.g., "R'").
Respond with a sequence of actions separated by "||".
Example: <answer>U</answer>
`;

function solutionOf(game: RubikGame): number[] | null {
  return solveCube(game.state, game.turns, game.config.scrambleDepth);
}

/** The cube's tag. Source: RAGEN-2 config/envs.yaml. */
export const rubikTags: readonly TagSource[] = [
  defineTag({
    tag: "rubikscube",
    type: "rubikscube",
    schema: RubikConfig,
    defaults: { scrambleDepth: 1 },
    compatDefaults: { shippedBack: true, endingHidden: true },
    actionsMax: 20,
    replyWordsHint: 96,
    parts: (config) => ({
      wording: plainWording(INSTRUCTION, TURNS, false),
      open: (seeds) => new RubikGame(config, seeds),
      brief,
      stateOf: (observation) => brief(observation).replace(/^\S+ /, ""),
      random: uniformPlayer,
      optimal: (game, actionsLeft, uniform) =>
        solutionOf(expectGame(game, RubikGame))?.[0] ?? uniformPlayer(game, actionsLeft, uniform),
      best: (game, actionsMax) => {
        const path = solutionOf(expectGame(game, RubikGame));
        if (path === null) return 0;
        // A cube that is solved at the start needs two actions: a turn, and the turn that undoes it.
        return (path.length || 2) <= Math.min(actionsMax, config.maxSteps) ? 1 : 0;
      },
    }),
  }),
];

/** The step and the 24 colors, which determine the rest of the observation. */
function brief(observation: string): string {
  const colors = [...observation.matchAll(/\[(\w), (\w)\]/g)].map((match) => match[1]! + match[2]!).join("");
  return `${/^Step: (.*)$/m.exec(observation)![1]} ${colors}`;
}

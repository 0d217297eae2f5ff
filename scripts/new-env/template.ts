/** The files of a new env. They work as they are, so that whoever fills them in starts from something that passes: a walk along a street. */

export interface EnvName {
  /** "LightsOut": the tag, and the beginning of its classes. */
  readonly tag: string;
  /** "lights-out": folder and type. */
  readonly kebab: string;
  /** "lightsOut". */
  readonly camel: string;
}

export const gameFile = ({ tag }: EnvName): string => `/**
 * ${tag} as a \`Game\`: walk along a street to a house. (Say in a sentence what yours is.)
 *
 * - What is drawn comes from the seeds: boards from \`layout\`, luck from \`dynamics\`. Equal seeds make equal games.
 */
import { z } from "zod";
import type { DiscreteGame, Effect, Seeds } from "../env.ts";
import { Pcg64 } from "../rng/pcg64.ts";

export const ${tag}Config = z.strictObject({
  /** Houses of the street. */
  houses: z.int().min(2).max(26).default(7),
});
export type ${tag}Config = z.infer<typeof ${tag}Config>;

export const ACTIONS = ["Left", "Right"] as const;

export class ${tag}Game implements DiscreteGame {
  readonly kind = "discrete";
  readonly actions = ACTIONS;
  readonly goal: number;
  readonly #houses: number;
  #at: number;
  #done = false;

  constructor({ houses }: ${tag}Config, seeds: Seeds) {
    const random = new Pcg64(seeds.layout);
    this.#houses = houses;
    this.goal = random.integers(houses);
    this.#at = (this.goal + 1 + random.integers(houses - 1)) % houses;
  }

  get at(): number {
    return this.#at;
  }

  /** What the agent sees. */
  render(): string {
    const shown = (house: number) => (house === this.#at ? "P" : house === this.goal ? "G" : "_");
    return Array.from({ length: this.#houses }, (_, house) => shown(house)).join("");
  }

  /** @param action  an index of \`actions\`. */
  act(action: number): Effect {
    if (this.#done) throw new Error("this ${tag} game is over; open a new one");
    const next = this.#at + (ACTIONS[action] === "Left" ? -1 : 1);
    const effective = next >= 0 && next < this.#houses;
    if (effective) this.#at = next;
    this.#done = this.#at === this.goal;
    return { reward: this.#done ? 1 : -0.1, done: this.#done, effective, valid: true, success: this.#done };
  }
}
`;

export const tagsFile = ({
  tag,
  kebab,
  camel,
}: EnvName): string => `/** The ${tag} tag: its words, its limits and who plays it. */
import { defineTag, expectGame, plainWording, type TagSource, uniformPlayer } from "../tag.ts";
import { ACTIONS, ${tag}Config, ${tag}Game } from "./game.ts";

const INSTRUCTION =
  "You are P in a street of houses. Walk to the house G. The answer is a sequence of actions, like <answer>Left || Left</answer>";

export const ${camel}Tags: readonly TagSource[] = [
  defineTag({
    tag: "${tag}",
    type: "${kebab}",
    schema: ${tag}Config,
    actionsMax: 10,
    replyWordsHint: 100,
    parts: (config) => ({
      wording: plainWording(INSTRUCTION, ACTIONS, false),
      open: (seeds) => new ${tag}Game(config, seeds),
      // The observation without what never changes; equal briefs mean equal observations.
      brief: (observation) => observation,
      random: uniformPlayer,
      // The best player, and the probability that it succeeds: null and () => null if you know none.
      optimal: (game) => {
        const { at, goal } = expectGame(game, ${tag}Game);
        return goal < at ? 0 : 1;
      },
      best: (game, actionsMax) => {
        const { at, goal } = expectGame(game, ${tag}Game);
        return Math.abs(goal - at) <= actionsMax ? 1 : 0;
      },
      demonstrator: null,
    }),
  }),
];
`;

export const testFile = ({ tag, kebab }: EnvName): string => `import { expect, test } from "bun:test";
import { ${tag}Config, ${tag}Game } from "../../envs/${kebab}/game.ts";

// That equal seeds give equal games, that 64 random episodes end well and that the best player is as good as it says are tested
// for every tag in registry.test.ts. What is left to say here is what this game is.
test("${tag} is won by walking to the house, and over then", () => {
  const game = new ${tag}Game(${tag}Config.parse({ houses: 3 }), { layout: 1, dynamics: 0 });
  const towards = game.at < game.goal ? 1 : 0;
  const away = game.act(1 - towards);
  expect(away).toMatchObject({ reward: -0.1, done: false, success: false });
  while (Math.abs(game.goal - game.at) > 1) game.act(towards);
  expect(game.act(towards)).toEqual({ reward: 1, done: true, effective: true, valid: true, success: true });
  expect(game.render()).toMatch(/^_*P_*$/);
  expect(() => game.act(0)).toThrow("this ${tag} game is over");
});
`;

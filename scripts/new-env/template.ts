/** The files of a new env: a walk along a street, which works and passes its tests. */

export interface EnvName {
  /** "LightsOut": the tag and the prefix of its classes. */
  readonly tag: string;
  /** "lights-out": folder and type. */
  readonly kebab: string;
  /** "lightsOut". */
  readonly camel: string;
}

export const gameFile = ({ tag }: EnvName): string => `/**
 * ${tag}: walk along a street to a house. (Describe your env in a sentence.)
 *
 * - All random numbers come from the seeds: boards from \`layout\`, chance from \`dynamics\`. Equal seeds make equal games.
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

export const tagsFile = ({ tag, kebab, camel }: EnvName): string => `/** The ${tag} tag: prompt, limits and players. */
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
      random: uniformPlayer,
      // A best possible player and its success probability; leave both out if you know none.
      optimal: (game) => {
        const { at, goal } = expectGame(game, ${tag}Game);
        return goal < at ? 0 : 1;
      },
      best: (game, actionsMax) => {
        const { at, goal } = expectGame(game, ${tag}Game);
        return Math.abs(goal - at) <= actionsMax ? 1 : 0;
      },
    }),
  }),
];
`;

export const testFile = ({ tag, kebab }: EnvName): string => `import { expect, test } from "bun:test";
import { ${tag}Config, ${tag}Game } from "../../envs/${kebab}/game.ts";

// registry.test.ts tests every tag: equal seeds, 64 random episodes, the success of the optimal player. This file tests the rules.
test("${tag} is won by walking to the house", () => {
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

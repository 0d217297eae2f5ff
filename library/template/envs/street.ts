/**
 * Street: walk along a street to a house. Replace Street with your own game.
 *
 * All random numbers come from the seeds: boards from `layout`, chance during a game from `dynamics`. Equal seeds make equal games.
 */
import { type DiscreteGame, defineEnv, type Effect, Pcg64, type Seeds, z } from "bunraku/env";

const ACTIONS = ["Left", "Right"] as const;

export class Street implements DiscreteGame {
  readonly kind = "discrete";
  readonly actions = ACTIONS;
  readonly #houses: number;
  readonly #goal: number;
  #at: number;
  #done = false;

  constructor(houses: number, seeds: Seeds) {
    const random = new Pcg64(seeds.layout);
    this.#houses = houses;
    this.#goal = random.integers(houses);
    this.#at = (this.#goal + 1 + random.integers(houses - 1)) % houses;
  }

  render(): string {
    const shown = (house: number) => (house === this.#at ? "P" : house === this.#goal ? "G" : "_");
    return Array.from({ length: this.#houses }, (_, house) => shown(house)).join("");
  }

  act(action: number): Effect {
    if (this.#done) throw new Error("this game is over; open a new one");
    const next = this.#at + (ACTIONS[action] === "Left" ? -1 : 1);
    const effective = next >= 0 && next < this.#houses;
    if (effective) this.#at = next;
    this.#done = this.#at === this.#goal;
    return { reward: this.#done ? 1 : -0.1, done: this.#done, effective, valid: true, success: this.#done };
  }
}

export default defineEnv({
  tag: "Street",
  options: z.strictObject({ houses: z.int().min(2).max(26).default(7) }),
  instruction:
    "You are P in a street of houses. Walk to the house G. The answer is a sequence of actions, like <answer>Left || Left</answer>",
  actions: ACTIONS,
  actionsMax: 10,
  open: ({ houses }, seeds) => new Street(houses, seeds),
});

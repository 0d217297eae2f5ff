/** Plans from random play against values worked by hand, on games of a few states. */
import { describe, expect, test } from "bun:test";
import { Experience } from "../../../actors/training/experience.ts";
import type { DiscreteGame } from "../../../envs/env.ts";
import { type EnvTag, uniformPlayer } from "../../../envs/tag.ts";
import { sequence, type Uniform } from "../../../model/rng.ts";

/** (state, action, coin) to the next state and its reward; null ends the game. */
type Rule = (state: string, action: number, coin: number) => readonly [next: string | null, reward: number];

/** A game that starts in A and wins where it ends with a reward above 0. */
function gameOf(rule: Rule, coins: Uniform = () => 0): DiscreteGame {
  let state: string | null = "A";
  return {
    kind: "discrete",
    actions: ["Left", "Right"],
    render: () => state!,
    act(action) {
      const [next, reward] = rule(state!, action, coins());
      state = next;
      return { reward, done: next === null, effective: true, valid: true, success: next === null && reward > 0 };
    },
  };
}

/** Experience of so many plays. */
async function after(plays: number, actionsMax: number, rule: Rule, seed = 1): Promise<Experience> {
  const uniform = sequence(seed, "plays");
  const tag = { tag: "Small", random: () => Math.floor(uniform() * 2) } as unknown as EnvTag;
  const experience = new Experience(tag);
  for (let i = 0; i < plays; i++) await experience.play(gameOf(rule, uniform), actionsMax, uniform);
  return experience;
}

/** A - B - C - D; Right of D wins 10, each action costs 1. */
const corridor: Rule = (state, action) => {
  const to = "ABCD".indexOf(state) + (action === 1 ? 1 : -1);
  return to === 4 ? [null, 9] : ["ABCD"[Math.max(0, to)]!, -1];
};

describe("random play of an env with deterministic actions", () => {
  const actionsMax = 12;
  const tagWith = (deterministicActions?: number) =>
    ({
      tag: "Small",
      random: uniformPlayer,
      ...(deterministicActions && { deterministicActions }),
    }) as unknown as EnvTag;

  /** Plays the corridor, and counts the actions that the games executed. */
  async function played(tag: EnvTag, plays: number, planned = 0) {
    const uniform = sequence(5, "plays");
    let executed = 0;
    const counted: Rule = (...given) => {
      executed++;
      return corridor(...given);
    };
    const experience = new Experience(tag);
    for (let i = 0; i < plays; i++) {
      if (planned > 0) experience.learn();
      await experience.play(gameOf(counted), actionsMax, uniform, planned);
    }
    return { experience, executed: () => executed };
  }

  const plans = (experience: Experience) => {
    const game = gameOf(corridor);
    return [1, 1, 1].map((action) => {
      const plan = experience.plan(game, 10, 4);
      game.act(action);
      return plan;
    });
  };

  test.each([2, 5, 40])("gives the plans of play that repeats known actions, after %p plays", async (plays) => {
    const [skipping, repeating] = [await played(tagWith(actionsMax), plays), await played(tagWith(), plays)];
    expect(plans(skipping.experience)).toEqual(plans(repeating.experience));
    expect(skipping.experience.won).toBe(repeating.experience.won);
    expect(skipping.executed()).toBeLessThan(repeating.executed());
  });

  test.each([2, 3, 4])(
    "plans the planned share of its actions like play that repeats known actions, %p plays",
    async (plays) => {
      const [skipping, repeating] = [
        await played(tagWith(actionsMax), plays, 0.5),
        await played(tagWith(), plays, 0.5),
      ];
      expect(plans(skipping.experience)).toEqual(plans(repeating.experience));
      expect(skipping.executed()).toBeLessThan(repeating.executed());
    },
  );

  test("executes nothing more once every action of every state is tried", async () => {
    const { experience, executed } = await played(tagWith(actionsMax), 40);
    const before = executed();
    expect(experience.isComplete(gameOf(corridor), actionsMax)).toBe(true);
    await experience.play(gameOf(corridor), actionsMax, sequence(6, "more"));
    expect(executed()).toBe(before);
  });

  test("is not complete after one play, which leaves actions untried", async () => {
    const { experience } = await played(tagWith(actionsMax), 1);
    expect(experience.isComplete(gameOf(corridor), actionsMax)).toBe(false);
  });

  test("repeats known actions in plays that are longer than the env allows", async () => {
    const [long, repeating] = [await played(tagWith(actionsMax - 1), 40), await played(tagWith(), 40)];
    expect(long.executed()).toBe(repeating.executed());
    expect(long.experience.isComplete(gameOf(corridor), actionsMax)).toBe(false);
  });
});

describe("a plan", () => {
  test("is the shortest way, though no play took it", async () => {
    const experience = await after(30, 6, corridor, 3);
    expect(experience.won).toBe(true);
    expect(experience.plan(gameOf(corridor), 10, 4)).toEqual([1, 1, 1, 1]);
  });

  test("is the shortest way where actions cost nothing and the budget is large", async () => {
    const free: Rule = (state, action, coin) => {
      const [next] = corridor(state, action, coin);
      return [next, next === null ? 1 : 0];
    };
    const experience = await after(200, 20, free);
    expect(experience.plan(gameOf(free), 20, 4)).toEqual([1, 1, 1, 1]);
  });

  test("has as many actions as it is asked for, and goes on from where the game is", async () => {
    const experience = await after(200, 20, corridor);
    const game = gameOf(corridor);
    game.act(1);
    expect(experience.plan(game, 9, 2)).toEqual([1, 1]);
    expect(experience.plan(game, 9, 5)).toEqual([1, 1, 1]);
  });

  test("gives up a win that the budget does not reach, for what costs least", async () => {
    // Left of A ends at once for 0; the win is four actions away.
    const rule: Rule = (state, action, coin) =>
      state === "A" && action === 0 ? [null, 0] : corridor(state, action, coin);
    const experience = await after(400, 20, rule);
    expect(experience.plan(gameOf(rule), 4, 1)).toEqual([1]);
    expect(experience.plan(gameOf(rule), 3, 1)).toEqual([0]);
  });

  test("weighs outcomes by how often they came: .8 of 1 beats a sure .5, and .3 of 1 does not", async () => {
    const gamble =
      (chance: number): Rule =>
      (_, action, coin) => [null, action === 0 ? 0.5 : coin < chance ? 1 : 0];
    expect((await after(400, 1, gamble(0.8))).plan(gameOf(gamble(0.8)), 1, 1)).toEqual([1]);
    expect((await after(400, 1, gamble(0.3))).plan(gameOf(gamble(0.3)), 1, 1)).toEqual([0]);
  });

  test("chooses its second action by the states that the first one may lead to", async () => {
    // Right leads to B (three in four) or C. In B Right wins, in C Left: were both as likely, the first action would be taken.
    const fork: Rule = (state, action, coin) => {
      if (state === "A") return action === 1 ? [coin < 0.75 ? "B" : "C", 0] : [null, 0];
      return [null, (state === "B") === (action === 1) ? 1 : 0];
    };
    expect((await after(400, 5, fork)).plan(gameOf(fork), 2, 2)).toEqual([1, 1]);
  });

  test("takes the first of equal actions", async () => {
    const same: Rule = () => [null, 1];
    for (let seed = 1; seed <= 5; seed++)
      expect((await after(20, 1, same, seed)).plan(gameOf(same), 1, 1)).toEqual([0]);
  });

  test("has no action where random play never was", async () => {
    const elsewhere = { ...gameOf(corridor), render: () => "Z" };
    expect((await after(10, 5, corridor)).plan(elsewhere, 5, 2)).toEqual([]);
  });
});

test("plays that never win say so", async () => {
  expect((await after(50, 3, corridor)).won).toBe(false);
});

import { describe, expect, test } from "bun:test";
import { openEpisode } from "../../envs/episode.ts";
import { envTag } from "../../envs/registry.ts";
import { Pcg64 } from "../../envs/rng/pcg64.ts";
import { openLocal, type Skill } from "../../envs/tag.ts";

const rules = { turnsMax: 5, actionsMax: 10, actionsPerTurnMax: 5, formatPenalty: -0.1, think: true };
const names = ["SimpleSokoban", "LargerSokoban", "FrozenLake", "CoordFrozenLake", "Bandit", "BanditTest"];

/** Plays one episode as the demonstrator; every reply it gave, and how it ended. */
function demonstrated(name: string, seed: number, skill: Skill, options = {}) {
  const tag = envTag(name, options);
  const game = openLocal(tag, { layout: seed, dynamics: seed });
  const env = openEpisode(game, { ...rules, actionsMax: tag.actionsMax });
  const random = new Pcg64(seed, 7);
  const replies: string[] = [];
  for (;;) {
    const before = game.render();
    const reply = tag.demonstrator!.reply(game, env.actionsLeft, skill, () => random.random());
    expect(game.render()).toBe(before);
    replies.push(reply);
    const turn = env.step(reply);
    expect(turn.wellFormed).toBe(true);
    if (turn.ending !== null) return { replies, success: turn.success };
  }
}

const share = (name: string, skill: Skill, options = {}, count = 300) =>
  Array.from({ length: count }, (_, i) => demonstrated(name, 123 + i, skill, options)).filter(({ success }) => success)
    .length / count;

describe("demonstrators", () => {
  test.each(names)("%s: replies have the exact form, and are equal for equal seeds", (name) => {
    for (let seed = 0; seed < 50; seed++) {
      const { replies } = demonstrated(name, seed, { babble: 0.3, noise: 0.1 });
      for (const reply of replies) {
        expect(reply).toMatch(/^<think>(push|try|go|pull) \w+<\/think><answer>\w+( \|\| \w+){0,4}<\/answer>$/);
      }
      expect(demonstrated(name, seed, { babble: 0.3, noise: 0.1 }).replies).toEqual(replies);
    }
  });

  test("solve what can be solved when they neither babble nor slip, and play at chance when they only babble", () => {
    expect(share("SimpleSokoban", { babble: 0, noise: 0 })).toBeGreaterThan(0.99);
    expect(share("SimpleSokoban", { babble: 1, noise: 0 })).toBeWithin(0.1, 0.25);
    // Value iteration with a look at every cell reaches 0.944; plans of two steps lose little of it.
    expect(share("FrozenLake", { babble: 0, noise: 0 }, { p: 0.9, successRate: 0.8 })).toBeGreaterThan(0.89);
    expect(share("Bandit", { babble: 0, noise: 0 })).toBe(1);
    expect(share("Bandit", { babble: 1, noise: 0 })).toBeWithin(0.4, 0.6);
  });

  test("play worse the more they babble", () => {
    const skills = [0, 0.5, 0.8, 1].map((babble) => share("SimpleSokoban", { babble, noise: 0 }));
    expect([...skills].sort((a, b) => b - a)).toEqual(skills);
  });

  test("babble 1 to 5 actions as often as 35, 35, 15, 10 and 5 in 100, and name the first", () => {
    const tag = envTag("SimpleSokoban");
    const random = new Pcg64(1);
    const counts = [0, 0, 0, 0, 0];
    for (let i = 0; i < 4000; i++) {
      const game = openLocal(tag, { layout: i % 20, dynamics: 0 });
      const reply = tag.demonstrator!.reply(game, 10, { babble: 1, noise: 0 }, () => random.random());
      const [, thought, answer] = /<think>try (\w+)<\/think><answer>(.*)<\/answer>/.exec(reply)!;
      const actions = answer!.split(" || ");
      expect(actions[0]).toBe(thought!);
      counts[actions.length - 1]!++;
    }
    // 5 standard errors of a share of 4000 are at most 0.04.
    [0.35, 0.35, 0.15, 0.1, 0.05].forEach((expected, i) => {
      expect(Math.abs(counts[i]! / 4000 - expected)).toBeLessThan(0.04);
    });
  });
});

describe("the Sokoban demonstrator", () => {
  const plan = (layout: number, actionsLeft = 10) => {
    const tag = envTag("SimpleSokoban");
    const game = openLocal(tag, { layout, dynamics: 0 });
    return tag.demonstrator!.reply(game, actionsLeft, { babble: 0, noise: 0 }, () => 0.5);
  };

  test("walks to the box, pushes, and says which way", () => {
    // Seed 123 is solved by Down, Left, Up: only the last is a push.
    expect(plan(123)).toBe("<think>push Up</think><answer>Down || Left || Up</answer>");
    // Seed 10002 is one push from its goal.
    expect(plan(10002)).toBe("<think>push Down</think><answer>Down</answer>");
  });

  test("cuts its answer to what is left, and keeps its thought", () => {
    expect(plan(123, 2)).toBe("<think>push Up</think><answer>Down || Left</answer>");
  });

  test("thinks of the push that its answer then makes, on any board", () => {
    const tag = envTag("SimpleSokoban");
    for (let layout = 0; layout < 200; layout++) {
      const game = openLocal(tag, { layout, dynamics: 0 });
      const reply = tag.demonstrator!.reply(game, 100, { babble: 0, noise: 0 }, () => 0.5);
      const [, direction, answer] = /<think>push (\w+)<\/think><answer>(.*)<\/answer>/.exec(reply)!;
      const actions = answer!.split(" || ");
      const pushes = actions.map((action) => {
        const boxes = boxesOf(game.render());
        if (game.kind === "discrete") game.act(game.actions.indexOf(action));
        return boxesOf(game.render()) !== boxes;
      });
      const first = pushes.indexOf(true);
      if (actions.length < 5) expect(first).toBeGreaterThanOrEqual(0);
      if (first >= 0) expect(actions[first]).toBe(direction!);
      // After the first push, nothing but pushes.
      if (first >= 0) expect(pushes.slice(first)).not.toContain(false);
    }
  });
});

const boxesOf = (shown: string) => [...shown].map((symbol) => ("X√".includes(symbol) ? "X" : " ")).join("");

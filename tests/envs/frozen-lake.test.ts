import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { FrozenLakeConfig, FrozenLakeGame } from "../../envs/frozen-lake/game.ts";
import { generateLake, type Lake, moved } from "../../envs/frozen-lake/map.ts";
import { frozenLakeDemonstrator, planLake } from "../../envs/frozen-lake/plan.ts";
import { envTag } from "../../envs/registry.ts";
import { openLocal } from "../../envs/tag.ts";
import { randomSuccess } from "./random-lake.ts";

const seeds = fc.nat({ max: 0xffffffff });
const lakeOf = (rows: readonly string[]): Lake => {
  const cells = [...rows.join("")];
  const holes = Uint8Array.from(cells, (cell) => (cell === "H" ? 1 : 0));
  return { size: rows.length, holes, start: cells.indexOf("S"), goal: cells.indexOf("G") };
};
function open(options: object, layout: number, dynamics: number): FrozenLakeGame {
  const config = FrozenLakeConfig.parse(options);
  return new FrozenLakeGame(generateLake(config.size, config.p, layout), config, { layout, dynamics });
}

describe("FrozenLakeGame", () => {
  test("moves as intended on ice that is not slippery, and stays at the edge", () => {
    const game = new FrozenLakeGame(lakeOf(["SF", "HG"]), FrozenLakeConfig.parse({ isSlippery: false }), {
      layout: 0,
      dynamics: 0,
    });
    expect(game.act(0)).toMatchObject({ effective: false, done: false, reward: 0 });
    expect(game.render()).toBe("P_\nOG");
    expect(game.act(2)).toMatchObject({ effective: true, done: false, reward: 0 });
    expect(game.render()).toBe("_P\nOG");
    expect(game.act(1)).toEqual({ reward: 1, done: true, effective: true, valid: true, success: true });
    expect(game.render()).toBe("__\nO√");
    expect(() => game.act(0)).toThrow("this FrozenLake game is over; open a new one");
  });

  test("refuses an action that it does not have", () => {
    expect(() => open({}, 1, 1).act(4)).toThrow("FrozenLake has actions 0 to 3, got 4");
  });

  test("ends in a hole, unpaid", () => {
    const config = FrozenLakeConfig.parse({ isSlippery: false });
    const game = new FrozenLakeGame(lakeOf(["SF", "HG"]), config, { layout: 0, dynamics: 0 });
    const drowned = { reward: 0, done: true, effective: true, valid: true, success: false, extra: { dead_end: 1 } };
    expect(game.act(1)).toEqual(drowned);
    expect(game.render()).toBe("__\nXG");
  });

  test("slips to either side as often as the success rate leaves", () => {
    // 3000 steps Right from the middle of 3 by 3 ice: intended 0.8, up 0.1, down 0.1; 5 standard errors is 0.04.
    const config = FrozenLakeConfig.parse({ successRate: 0.8 });
    const counts = new Map<number, number>();
    for (let dynamics = 0; dynamics < 3000; dynamics++) {
      const lake = { size: 3, holes: new Uint8Array(9), start: 4, goal: 0 };
      const game = new FrozenLakeGame(lake, config, { layout: 1, dynamics });
      game.act(2);
      counts.set(game.player, (counts.get(game.player) ?? 0) + 1);
    }
    const share = (cell: number) => (counts.get(cell) ?? 0) / 3000;
    expect(Math.abs(share(5) - 0.8)).toBeLessThan(0.04);
    expect(Math.abs(share(1) - 0.1)).toBeLessThan(0.04);
    expect(Math.abs(share(7) - 0.1)).toBeLessThan(0.04);
  });

  test("shares its lake within a group, and not its slips", () => {
    const games = Array.from({ length: 32 }, (_, dynamics) => open({}, 7, dynamics));
    expect(new Set(games.map((game) => game.render())).size).toBe(1);
    for (const game of games) game.act(0);
    expect(new Set(games.map((game) => game.player)).size).toBeGreaterThan(1);
  });

  test("does not let the map foretell the slips, as RAGEN's shared stream does", () => {
    // Shared: a hole at cell 1 means that the first step slips to (a + 1) mod 4, unless the first map was thrown away.
    const shareOfOneSide = (sharedStream: boolean) => {
      let [slips, total] = [0, 0];
      for (let seed = 0; seed < 2000; seed++) {
        if (generateLake(4, 0.8, seed).holes[1] !== 1) continue;
        const ice = { size: 3, holes: new Uint8Array(9), start: 4, goal: 0 };
        const config = FrozenLakeConfig.parse({ sharedStream });
        const game = new FrozenLakeGame(ice, config, { layout: seed, dynamics: seed });
        game.act(2);
        total++;
        if (game.player === 1) slips++;
      }
      return slips / total;
    };
    expect(shareOfOneSide(true)).toBeGreaterThan(0.8);
    // A third, and 4 standard errors of some 350 lakes.
    expect(Math.abs(shareOfOneSide(false) - 1 / 3)).toBeLessThan(0.1);
  });
});

describe("generateLake", () => {
  test("joins start and goal by ice, for any seed", () => {
    fc.assert(
      fc.property(seeds, fc.integer({ min: 2, max: 8 }), (seed, size) => {
        const lake = generateLake(size, 0.7, seed);
        expect(lake.start).not.toBe(lake.goal);
        expect(planLake(lake, { isSlippery: false, successRate: 1 }).value(size * size, lake.start)).toBe(1);
        expect(generateLake(size, 0.7, seed)).toEqual(lake);
      }),
      { numRuns: 60 },
    );
  });
});

describe("planLake", () => {
  test("matches a lake worked by hand", () => {
    // Two cells in a row, goal to the right: one step succeeds with 1/3; a side step stays. 1 - (2/3)^2 = 5/9.
    const lake = lakeOf(["SG", "HH"]);
    const plan = planLake(lake, { isSlippery: true, successRate: 1 / 3 });
    // Up cannot fall: its sides are Left (stay) and Right (goal).
    expect(plan.action(2, 0)).toBe(3);
    expect(plan.value(1, 0)).toBeCloseTo(1 / 3, 12);
    expect(plan.value(2, 0)).toBeCloseTo(5 / 9, 12);
  });

  test("agrees with trying every plan, on small lakes", () => {
    fc.assert(
      fc.property(seeds, fc.constantFrom(1 / 3, 0.8, 1), (seed, successRate) => {
        const lake = generateLake(3, 0.7, seed);
        const value = planLake(lake, { isSlippery: true, successRate }).value(4, lake.start);
        expect(value).toBeCloseTo(bestByTrying(lake, successRate, lake.start, 4), 12);
      }),
      { numRuns: 40 },
    );
  });

  test("is never worse with more actions, and never worse than chance", () => {
    fc.assert(
      fc.property(seeds, fc.integer({ min: 1, max: 12 }), (seed, horizon) => {
        const lake = generateLake(4, 0.8, seed);
        const ice = { isSlippery: true, successRate: 1 / 3 };
        const plan = planLake(lake, ice);
        expect(plan.value(horizon, lake.start)).toBeGreaterThanOrEqual(plan.value(horizon - 1, lake.start));
        expect(plan.value(horizon, lake.start)).toBeGreaterThanOrEqual(randomSuccess(lake, horizon) - 1e-12);
      }),
      { numRuns: 60 },
    );
  });
});

/** Highest probability of reaching the goal, by recursion over every action and every slip. */
function bestByTrying(lake: Lake, successRate: number, cell: number, actionsLeft: number): number {
  if (cell === lake.goal) return 1;
  if (lake.holes[cell] === 1 || actionsLeft === 0) return 0;
  const after = (direction: number) =>
    bestByTrying(lake, successRate, moved(lake.size, cell, (direction + 4) % 4), actionsLeft - 1);
  const side = (1 - successRate) / 2;
  return Math.max(...[0, 1, 2, 3].map((a) => side * after(a - 1) + successRate * after(a) + side * after(a + 1)));
}

describe("the demonstrator", () => {
  const reply = (rows: readonly string[], options: object, actionsLeft: number) => {
    const config = FrozenLakeConfig.parse({ size: rows.length, ...options });
    const game = new FrozenLakeGame(lakeOf(rows), config, { layout: 0, dynamics: 0 });
    return frozenLakeDemonstrator.reply(game, actionsLeft, { babble: 0, noise: 0 }, () => 0);
  };

  test("takes the two best steps, of which the thought names the first", () => {
    expect(reply(["SFG", "FFF", "FFF"], { isSlippery: false }, 2)).toBe(
      "<think>go Right</think><answer>Right || Right</answer>",
    );
  });

  test("goes the shortest way, however many actions are left", () => {
    expect(reply(["FSFG", "FFFF", "FFFF", "FFFF"], { isSlippery: false }, 10)).toBe(
      "<think>go Right</think><answer>Right || Right</answer>",
    );
  });

  test.each([
    ["reaches the goal", ["SG", "FF"], { isSlippery: false }, 1, "Right"],
    ["reaches the goal with actions left", ["FH", "SG"], { successRate: 0.8 }, 2, "Right"],
    // Down may slip to the goal, at its side.
    ["uses up the actions", ["SG", "FF"], {}, 1, "Down"],
    ["leads into a hole", ["FHF", "FSG", "FHF"], {}, 2, "Down"],
  ])("takes one step where it %s", (_, rows, options, actionsLeft, step) => {
    expect(reply(rows, options, actionsLeft)).toBe(`<think>go ${step}</think><answer>${step}</answer>`);
  });

  test("babbles at most three actions, and no more than are left", () => {
    const game = open({}, 1, 1);
    const babbled = [1, 2, 10].map((left) => {
      const reply = frozenLakeDemonstrator.reply(game, left, { babble: 1, noise: 0 }, () => 0.999);
      return /<answer>(.*)<\/answer>/.exec(reply)![1]!.split(" || ").length;
    });
    expect(babbled).toEqual([1, 2, 3]);
  });

  test("tries anything where the goal is out of reach", () => {
    expect(reply(["SFG", "FFF", "FFF"], { isSlippery: false }, 1)).toBe("<think>try Left</think><answer>Left</answer>");
  });
});

test("the brief observation has the cells, and with coordinates where the player started", () => {
  const told = (tag: string, options: object) => {
    const made = envTag(tag, options);
    const observation = openLocal(made, { layout: 5, dynamics: 5 }).render();
    return { observation, brief: made.brief(observation) };
  };
  const grid = told("FrozenLake", {});
  expect(grid.brief).toBe(grid.observation.replaceAll("\n", ""));
  const coord = told("CoordFrozenLake", { observationFormat: "coord" });
  expect(`Board size: 4 rows x 4 cols (zero-indexed).\n${coord.brief}`).toBe(coord.observation);
  const { lake } = open({ p: 0.9 }, 5, 5);
  const both = told("CoordFrozenLake", {});
  const cells = both.observation.split("Grid Map: \n")[1]!.replaceAll("\n", "");
  expect(both.brief).toBe(`${cells} ${Math.floor(lake.start / 4)},${lake.start % 4}`);
});

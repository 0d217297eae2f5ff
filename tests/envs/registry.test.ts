import { describe, expect, test } from "bun:test";
import { join } from "node:path";
import fc from "fast-check";
import { bestPossible, boardInterval, evaluatePlayer, wilson } from "../../envs/analysis/evaluate.ts";
import type { DiscreteGame } from "../../envs/env.ts";
import { envTag, envTags } from "../../envs/registry.ts";
import { openLocal } from "../../envs/tag.ts";
import { checkTag } from "../../library/testing.ts";

/** Small files for the tags that need outside data. */
const data = (file: string) => join(import.meta.dir, "data", file);
const needed: Record<string, object> = {
  MetamathQA: { dataPath: data("metamathqa.parquet"), split: "all" },
  StaticQA: { dataPath: data("gsm8k.parquet"), split: "all" },
};

/** Games that have to be waited for are played in outside/, and DeepCoder in deep-coder.test.ts. */
const elsewhere = ["SearchQA", "SearchQAMock", "Lean", "Alfworld", "AlfworldOOD", "Remote", "DeepCoder"];
const local = envTags().filter((name) => !elsewhere.includes(name));

for (const name of local) checkTag(envTag(name, needed[name]));

test.each(Object.keys(needed))("%s says what it lacks", (name) => {
  expect(envTag(name).missing?.()).toMatch(new RegExp(`^${name}.*env\\.options\\.`));
});

describe("brief", () => {
  test.each([
    ["SimpleSokoban", "######\n######\n#O####\n#XP###\n#__###\n######", "####O###XP##__##"],
    ["FrozenLake", "____\n_OOP\nGO__\nO___", "_____OOPGO__O___"],
  ])("of %s is the cells alone", (name, observation, brief) => {
    expect(envTag(name).brief(observation)).toBe(brief);
  });

  test("of Bandit is the names in their order", () => {
    const tag = envTag("Bandit");
    const opening = openLocal(tag, { layout: 123, dynamics: 0 }).render();
    expect(tag.brief(opening)).toBe("Dragon Phoenix");
  });

  test("of Sokoban tells apart any two positions, in every format", () => {
    fc.assert(
      fc.property(
        fc.constantFrom("grid", "coord", "grid_coord"),
        fc.nat({ max: 5000 }),
        fc.array(fc.nat({ max: 3 }), { maxLength: 10 }),
        (observationFormat, layout, moves) => {
          const tag = envTag("SimpleSokoban", { observationFormat });
          const game = openLocal(tag, { layout, dynamics: 0 }) as DiscreteGame;
          const seen = [game.render()];
          for (const move of moves) {
            const { done } = game.act(move);
            seen.push(game.render());
            if (done) break;
          }
          expect(new Set(seen.map((text) => tag.brief(text))).size).toBe(new Set(seen).size);
        },
      ),
    );
  });
});

describe("envTag", () => {
  test("takes the env's options over the tag's", () => {
    expect(envTag("FrozenLake", { successRate: 0.8 }).config).toMatchObject({ successRate: 0.8, p: 0.8, size: 4 });
    expect(envTag("LargerSokoban").config).toMatchObject({ dimRoom: [8, 8], numBoxes: 2, searchDepth: 10 });
  });

  test("takes the tag's value for an option that is undefined, as for one that is omitted", () => {
    expect(envTag("CoordFrozenLake", { p: undefined }).config["p"]).toBe(0.9);
    expect(envTag("FrozenLake", { p: undefined }, "ragen-v2").config["p"]).toBe(0.9);
  });

  test("has RAGEN's Sudoku, which its budget of actions cannot fill, in compat only", () => {
    expect(envTag("SimpleSudoku").config).toMatchObject({ gridSize: 4, maxSteps: 20, unique: true });
    expect(envTag("SimpleSudoku", {}, "ragen-v2").config).toMatchObject({ gridSize: 9, maxSteps: 81, unique: false });
  });

  test("shares RAGEN's random streams in compat only", () => {
    expect(envTag("FrozenLake").config["sharedStream"]).toBe(false);
    expect(envTag("FrozenLake", {}, "ragen-v2").config["sharedStream"]).toBe(true);
  });

  // Source: RAGEN config/envs.yaml and the env's config classes, at both versions.
  test.each([
    [
      "FrozenLake",
      { p: 0.8, successRate: 1 / 3, sharedStream: true },
      { p: 0.9, successRate: 0.8, sharedStream: true },
    ],
    ["CoordFrozenLake", { p: 0.9, successRate: 0.8 }, { p: 0.9, successRate: 0.8 }],
    ["Bandit", { split: null, sharedStream: true }, { split: "train", sharedStream: false }],
    ["BanditTest", { split: null, loArmName: "trader", hiArmName: "librarian" }, { split: "test" }],
    [
      "WebShop",
      { joinedLines: true, literalValid: true, rewardForm: "whole" },
      { joinedLines: false, literalValid: false, rewardForm: "perfect" },
    ],
  ])("reproduces %s of RAGEN v1 with %j and of RAGEN-2 with %j", (tag, v1, v2) => {
    expect(envTag(tag, {}, "ragen-v1").config).toMatchObject(v1);
    expect(envTag(tag, {}, "ragen-v2").config).toMatchObject(v2);
  });

  test.each([
    ["SimpleSokban", {}, 'unknown env tag "SimpleSokban"; nearest: SimpleSokoban, '],
    ["FrozenLake", { succesRate: 1 }, 'options of FrozenLake: Unrecognized key: "succesRate"'],
    ["FrozenLake", { p: 7, size: 1 }, "options of FrozenLake: Too small: expected number to be >=2 at size; Too big"],
    ["Bandit", 5, "options of Bandit must be an object, got 5"],
    [
      "Bandit",
      { split: "test", hiArmName: "engineer" },
      "options of Bandit: hiArmName has no effect, because split (test) names the arms; set split to null",
    ],
  ])("refuses %s with %j in one line", (name, options, message) => {
    expect(() => envTag(name, options)).toThrow(message);
  });

  test("asks for split null with names of arms in RAGEN-2, where split names them by default", () => {
    const named = { loArmName: "teacher", hiArmName: "engineer" };
    expect(() => envTag("Bandit", named, "ragen-v2")).toThrow("loArmName has no effect, because split (train) names");
    const tag = envTag("Bandit", { ...named, split: null }, "ragen-v2");
    const { actions } = openLocal(tag, { layout: 1, dynamics: 1 }) as DiscreteGame;
    expect([...actions].sort()).toEqual(["Engineer", "Teacher"]);
  });
});

describe("evaluatePlayer", () => {
  const at = async (name: string, kind: "random" | "optimal", options = {}) =>
    (await evaluatePlayer(envTag(name, options), envTag(name, options)[kind]!, { episodes: 256, seed: 123 })).success;

  // RAGEN's validation boards and budget; the ranges are its own numbers with the spread of 256 episodes.
  test.each([
    ["SimpleSokoban", 0.16, 0.22],
    ["LargerSokoban", 0, 0.06],
    ["FrozenLake", 0.17, 0.26],
  ])("finds chance on %s between %p and %p", async (name, low, high) => {
    expect(await at(name, "random")).toBeWithin(low, high);
  });

  test("finds the best possible: all of SimpleSokoban, half of FrozenLake", async () => {
    expect(await at("SimpleSokoban", "optimal")).toBe(1);
    expect(await at("FrozenLake", "optimal")).toBeWithin(0.44, 0.53);
    // Exact by value iteration over the same lakes; RAGEN's Python gives 0.4832 and 0.9444.
    const exact = (options: object) => bestPossible(envTag("FrozenLake", options), { episodes: 256, seed: 123 });
    expect(exact({})).toBeCloseTo(0.4832, 4);
    expect(exact({ p: 0.9, successRate: 0.8 })).toBeCloseTo(0.9444, 4);
  });

  test.each([
    // 32 blank cells.
    ["SimpleSudoku", { gridSize: 9 }, 40, 0],
    ["SimpleSokoban", { maxSteps: 2 }, 10, null],
    ["rubikscube", { scrambleDepth: 4, maxSteps: 2 }, 20, null],
    // Some of these boards are solved at the start, which is no success: the second turn undoes the first.
    ["rubikscube", { scrambleDepth: 2 }, 1, 0],
    ["rubikscube", { scrambleDepth: 2 }, 2, 1],
  ])("knows that %s with %j ends before %d actions do", async (name, options, actionsMax, expected) => {
    const tag = envTag(name, options);
    const boards = { episodes: 32, seed: 123, actionsMax };
    const { success } = await evaluatePlayer(tag, tag.optimal!, boards);
    expect(bestPossible(tag, boards)).toBe(success);
    expect(success).toBe(expected ?? success);
  });

  test("counts rewards and actions", async () => {
    const optimal = await evaluatePlayer(envTag("SimpleSokoban"), envTag("SimpleSokoban").optimal!, {
      episodes: 256,
      seed: 123,
    });
    // RAGEN's histogram of solution lengths over these boards has mean 1010 / 256.
    expect(optimal.meanActions).toBeCloseTo(1010 / 256, 6);
    expect(optimal.meanReward).toBeCloseTo(11 - 0.1 * (1010 / 256), 6);
  });

  test("refuses to play no episode", () => {
    const tag = envTag("Bandit");
    expect(evaluatePlayer(tag, tag.random, { episodes: 0, seed: 1 })).rejects.toThrow(
      "episodes must be at least 1, got 0",
    );
  });
});

test("the interval of boards that were tried several times comes from how boards differ", () => {
  // Shares 0, 0.5 and 1 of 3 boards: mean 0.5, sample variance 0.25, standard error sqrt(0.25 / 3).
  const [low, high] = boardInterval([0, 2, 4], 4);
  expect(low).toBe(0);
  expect(high).toBe(1);
  const many = boardInterval([...Array(50).fill(1), ...Array(50).fill(3)], 4);
  // Shares 0.25 and 0.75: variance 0.0625 x 100 / 99.
  const spread = 1.959963984540054 * Math.sqrt((0.0625 * 100) / 99 / 100);
  expect(many[0]).toBeCloseTo(0.5 - spread, 12);
  expect(many[1]).toBeCloseTo(0.5 + spread, 12);
  expect(boardInterval([1, 0, 1, 1], 1)).toEqual(wilson(3, 4));
  // Without a difference between boards the standard error is 0, which is no certainty.
  expect(boardInterval(Array(8).fill(2), 2)).toEqual(wilson(8, 8));
  expect(boardInterval([1, 1, 1], 2)).toEqual(wilson(1.5, 3));
});

test("wilson matches an interval worked by hand, and stays within [0, 1]", () => {
  // 8 of 10, z = 1.96: center (0.8 + 0.19207) / 1.38415 = 0.71674, half-width 0.22658.
  const [low, high] = wilson(8, 10);
  expect(low).toBeCloseTo(0.4902, 4);
  expect(high).toBeCloseTo(0.9433, 4);
  expect(wilson(0, 5)[0]).toBe(0);
  expect(wilson(5, 5)[1]).toBe(1);
});

import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { BanditGame } from "../../envs/bandit/game.ts";
import { ArithmeticError, evaluateArithmetic } from "../../envs/countdown/arithmetic.ts";
import {
  CountdownConfig,
  CountdownGame,
  generateCountdown,
  scoreCountdown,
  signedSolution,
} from "../../envs/countdown/game.ts";
import { Config2048, Game2048, slide } from "../../envs/game-2048/game.ts";
import { metaMathLabel, QuestionGame } from "../../envs/questions/game.ts";
import { envTag } from "../../envs/registry.ts";
import { PythonRandom } from "../../envs/rng/mt19937.ts";
import { isSolved, SOLVED, solveCube, TURNS, turned, turns } from "../../envs/rubik/cube.ts";
import type { RubikGame } from "../../envs/rubik/game.ts";
import { answerScore } from "../../envs/search/answer.ts";
import { blankCount, SudokuConfig, SudokuGame } from "../../envs/sudoku/game.ts";
import { conflicts, generateSudoku, solutionCount } from "../../envs/sudoku/grid.ts";
import { type Compat, openLocal } from "../../envs/tag.ts";

const seeds = fc.nat({ max: 0xffffffff });

describe("evaluateArithmetic", () => {
  test.each([
    ["44 + 19 + 35", 98],
    ["2*3*4", 24],
    ["2 + 3 * 4 - 10 / 4", 11.5],
    ["-2 ** 2", -4],
    ["2 ** -1", 0.5],
    ["2 ** 3 ** 2", 512],
    ["(1 + 2) * (3 - -4)", 21],
    ["7 // 2 + -7 // 2 + -7 % 3", 1],
    ["3. + .5", 3.5],
  ])("gives Python's value of %s", (text, value) => {
    expect(evaluateArithmetic(text)).toBe(value);
  });

  test.each([
    "",
    "1 +",
    "(1",
    "1)",
    "1 2",
    "a + 1",
    "__import__('os')",
    "1 / 0",
    "1 / 0 ** -1",
    "007 + 1",
    "1 = 1",
    "9 ** 9 ** 9",
  ])("refuses %p", (text) => {
    expect(() => evaluateArithmetic(text)).toThrow(ArithmeticError);
  });

  test("refuses what is too long to be an answer", () => {
    expect(() => evaluateArithmetic("(".repeat(2000))).toThrow("2000 characters (limit 1000)");
  });

  test("agrees with JavaScript on sums and products of ints", () => {
    const number = fc.nat({ max: 99 }).map(String);
    const operator = fc.constantFrom(" + ", "-", "*", " - ");
    fc.assert(
      fc.property(number, fc.array(fc.tuple(operator, number), { maxLength: 5 }), (first, rest) => {
        const text = first + rest.map(([op, num]) => op + num).join("");
        // The text holds digits and signs alone.
        expect(evaluateArithmetic(text)).toBe(new Function(`return ${text.replaceAll("--", "- -")}`)());
      }),
    );
  });
});

describe("Countdown", () => {
  const config = CountdownConfig.parse({});

  test("pays for the target, a tenth for the right numbers, nothing for others", () => {
    const instance = { target: 98, nums: [44, 19, 35] };
    const score = (answer: string) => scoreCountdown(instance, answer, 1, 0.1);
    expect(["44 + 19 + 35", "44 - 19 + 35", "(19, 35, 44)", "98", "44 + 19"].map(score)).toEqual([1, 0.1, 0.1, 0, 0]);
    // Python's tokenizer refuses other spaces than its own, and other digits, which \d and int() read.
    expect(["44\u00a0+ 19 + 35", "44\t+\f19 + 35", "\u0664\u0664 + 19 + 35"].map(score)).toEqual([0.1, 1, 0.1]);
    const game = new CountdownGame(instance, config);
    expect(game.render()).toBe("Target: 98, nums: [44, 19, 35]");
    expect(game.act("44 - 19 + 35").message).toBe("Your answer get 0.1 points.");
    expect(() => game.act("1")).toThrow("this Countdown is over");
  });

  test("gives instances that + and - solve, and never one to both splits", () => {
    fc.assert(
      fc.property(seeds, fc.constantFrom("train", "validation"), (seed, split) => {
        const instance = generateCountdown({ ...config, split }, seed);
        expect(evaluateArithmetic(signedSolution(instance)!)).toBe(instance.target);
        expect(instance.target).toBeWithin(1, 100);
      }),
    );
    const keys = (split: "train" | "validation") =>
      new Set(
        Array.from({ length: 2000 }, (_, seed) => {
          const { target, nums } = generateCountdown({ ...config, numberMax: 9, split }, seed);
          return `${target} ${[...nums].sort()}`;
        }),
      );
    const validation = keys("validation");
    expect([...keys("train")].filter((key) => validation.has(key))).toEqual([]);
  });

  test("draws as many numbers as it may, numbers and targets from 1 to the largest", () => {
    const drawn = Array.from({ length: 4000 }, (_, seed) =>
      generateCountdown({ ...config, numberMax: 9, countMin: 2, countMax: 4 }, seed),
    );
    const found = (values: readonly number[]) => [...new Set(values)].sort((a, b) => a - b);
    expect(found(drawn.map(({ nums }) => nums.length))).toEqual([2, 3, 4]);
    const upToNine = [1, 2, 3, 4, 5, 6, 7, 8, 9];
    expect(found(drawn.flatMap(({ nums }) => nums))).toEqual(upToNine);
    expect(found(drawn.map(({ target }) => target))).toEqual(upToNine);
  });

  test("is answered with effect where the answer earns something", () => {
    const effective = (answer: string) => new CountdownGame({ target: 3, nums: [1, 2] }, config).act(answer).effective;
    expect(["1 + 2", "2 - 1", "3"].map(effective)).toEqual([true, true, false]);
  });
});

test.each([
  ["the risky arm, by default", {}, "Dragon"],
  ["the safe arm, if the risky one may cost something", { hiArmLoscore: -1, hiArmHiscoreProb: 0.5 }, "Phoenix"],
  [
    "the safe arm, if the risky one hardly pays",
    { hiArmHiscore: 0, hiArmLoscore: 0.3, hiArmHiscoreProb: 0.9 },
    "Phoenix",
  ],
])("a thought about a Bandit is true if it prefers %s", (_, options, better) => {
  const tag = envTag("Bandit", options);
  const observation = openLocal(tag, { layout: 1, dynamics: 1 }).render();
  const judged = (name: string) =>
    tag.reasoning!({ thought: `${name} pays more on average`, observation, actions: [name] });
  expect(["Dragon", "Phoenix"].map(judged)).toEqual(better === "Dragon" ? [1, 0] : [0, 1]);
});

test.each([
  [0.1, "0.1"],
  [1, "1.0"],
  [0.00001, "1e-05"],
  [1e16, "1e+16"],
])("a Bandit that pays %p says so as Python writes it", (loArmScore, text) => {
  const game = openLocal(envTag("Bandit", { loArmScore }), { layout: 1, dynamics: 1 });
  if (!(game instanceof BanditGame)) throw new Error("expected a bandit");
  expect(game.act(1 - game.high).message).toBe(`Phoenix: ${text} points`);
});

test("a wrong result of Countdown is no success, though it earns as much as the right one", () => {
  const act = (answer: string, options: object) =>
    new CountdownGame({ target: 98, nums: [44, 19, 35] }, CountdownConfig.parse(options)).act(answer);
  expect(act("44 - 19 + 35", { formatScore: 1 })).toMatchObject({ reward: 1, success: false });
  expect(act("5", { score: 0 })).toMatchObject({ reward: 0, success: false });
  expect(act("44 + 19 + 35", { score: 0 })).toMatchObject({ reward: 0, success: true });
});

test("random play of Countdown uses each number once", () => {
  const tag = envTag("Countdown");
  for (let layout = 0; layout < 50; layout++) {
    const game = openLocal(tag, { layout, dynamics: 0 }) as CountdownGame;
    const uniform = new PythonRandom(layout);
    const text = String(tag.random(game, 1, () => uniform.random()));
    // Neither a sign before the first number nor a missing operator.
    expect(text).toMatch(/^\d+( [-+*/] \d+)+$/);
    expect(game.act(text).reward).toBeGreaterThan(0);
  }
});

describe("2048", () => {
  const open = (options: object, dynamics = 1) => new Game2048(Config2048.parse(options), { layout: 123, dynamics });

  test("merges each tile once, the nearer pair first", () => {
    const slid = slide([[2, 2, 2, 0], [4, 4, 8, 0], [2, 0, 2, 4], [0, 0, 0, 0]], 3); // biome-ignore format: a board
    expect(slid).toEqual({
      grid: [
        [4, 2, 0, 0],
        [8, 8, 0, 0],
        [4, 4, 0, 0],
        [0, 0, 0, 0],
      ],
      merged: 16,
      moved: true,
    });
  });

  test("keeps the sum of its tiles in a slide, whichever way", () => {
    const grid = fc.array(fc.array(fc.constantFrom(0, 2, 4, 8), { minLength: 4, maxLength: 4 }), {
      minLength: 4,
      maxLength: 4,
    });
    const sum = (rows: readonly (readonly number[])[]) => rows.flat().reduce((a, b) => a + b, 0);
    fc.assert(
      fc.property(grid, fc.nat({ max: 3 }), (before, action) => {
        const once = slide(before, action);
        expect(sum(once.grid)).toBe(sum(before));
        expect(once.moved).toBe(JSON.stringify(once.grid) !== JSON.stringify(before));
      }),
    );
  });

  test("names no valid action at its end, and ends without success in fewer moves than 2048 takes", () => {
    const game = open({});
    let moves = 0;
    for (let done = false; !done; moves++) done = game.act(moves % 4).done;
    expect(game.render()).toContain("\nValid Actions: None.\n");
    expect(envTag("game_2048").actionsMin).toBe(510);
  });

  test("pays the announced penalty for a move that changes nothing, which RAGEN hides", () => {
    const refused = (options: object) => {
      const game = open(options);
      // Down twice ends in a board that Down does not change, unless tiles merge on; try until it does.
      for (let i = 0; i < 50; i++) {
        const effect = game.act(2);
        if (!effect.effective) return effect;
      }
      throw new Error("every move changed the board");
    };
    expect(refused({})).toMatchObject({ reward: -0.1, valid: false, extra: { raw_reward: -0.1 } });
    expect(refused({ hideInvalidScore: true })).toMatchObject({ reward: 0, extra: { raw_reward: -0.1 } });
  });

  test("shares its first tiles within a group, and not those that appear", () => {
    const games = [1, 2, 3, 4, 5, 6].map((dynamics) => open({}, dynamics));
    expect(new Set(games.map((game) => game.render())).size).toBe(1);
    for (const game of games) game.act(0);
    expect(new Set(games.map((game) => game.render())).size).toBeGreaterThan(1);
  });
});

describe("the 2x2 cube", () => {
  const real = turns(false);

  test("is back after four equal turns, and after a turn and its prime", () => {
    for (const all of [real, turns(true)]) {
      for (let i = 0; i < TURNS.length; i++) {
        let state: readonly number[] = SOLVED.map((_, sticker) => sticker);
        for (let n = 0; n < 4; n++) state = turned(state, all[i]!);
        expect(state).toEqual(SOLVED.map((_, sticker) => sticker));
        expect(turned(turned(SOLVED, all[i]!), all[i ^ 1]!)).toEqual([...SOLVED]);
      }
    }
  });

  test("pays 1 for its solution and nothing for another turn, and ends there or after its last step", () => {
    const open = (options: object, layout = 3) =>
      openLocal(envTag("rubikscube", options), { layout, dynamics: 0 }) as RubikGame;
    const first = open({ maxSteps: 3 });
    expect(first.config.shippedBack).toBe(false);
    const [solution] = solveCube(first.state, first.turns, 1)!;
    // A turn that does not solve it, and its undoing.
    const [away, back] = solution! < 2 ? [2, 3] : [0, 1];
    const moved = { reward: 0, done: false, effective: true, valid: true, success: false };
    const solved = { ...moved, reward: 1, done: true, success: true };
    expect([away, back, solution!].map((turn) => first.act(turn))).toEqual([moved, moved, solved]);
    expect(() => first.act(away)).toThrow("this cube is done");
    const second = open({ maxSteps: 2 });
    expect(second.act(away)).toEqual(moved);
    expect(second.render()).toContain("Available Actions:");
    expect(second.act(back)).toEqual({ ...moved, done: true });
    expect(second.render()).toEndWith("=== Game Over: Max steps reached. ===");
    expect(() => second.act(away)).toThrow("this cube is done");
    // Turns of the scramble may undo each other; the game then begins solved, and goes on.
    const layout = Array.from({ length: 200 }, (_, seed) => seed).find((seed) =>
      isSolved(open({ scrambleDepth: 2 }, seed).state),
    );
    const begun = open({ scrambleDepth: 2 }, layout);
    expect(begun.render()).toContain("Available Actions:");
    expect([begun.act(away), begun.act(back)]).toEqual([moved, solved]);
  });

  test("can at best be solved if the actions suffice", () => {
    const tag = envTag("rubikscube", { scrambleDepth: 2 });
    for (let layout = 0; layout < 10; layout++) {
      const game = openLocal(tag, { layout, dynamics: 0 }) as RubikGame;
      // A cube that is solved at the start is won by the turn that undoes the first.
      const length = solveCube(game.state, game.turns, 2)!.length || 2;
      const best = [length - 1, length, length + 1].map((actions) => tag.best(game, actions));
      expect(best).toEqual([0, 1, 1]);
    }
  });

  test("shows its ending, and in compat the actions as RAGEN does, which renders it again", () => {
    const ended = (compat: Compat) => {
      const tag = envTag("rubikscube", {}, compat);
      const game = openLocal(tag, { layout: 123, dynamics: 123 }) as RubikGame;
      game.act(solveCube(game.state, game.turns, 1)![0]!);
      return game.render().split("\n\n").slice(2).join("\n\n");
    };
    expect(ended("strict")).toBe("=== Game Over: Cube Solved! ===");
    expect(ended("ragen-v2")).toBe(`Available Actions:\n${TURNS.join(", ")}\n\nWhat is your next move?`);
  });

  test("keeps the stickers of each corner together, which RAGEN's B does not", () => {
    // Three stickers of a corner are on three faces; a real turn moves corners as wholes.
    const corners = [
      [0, 4, 17],
      [1, 13, 16],
      [2, 5, 8],
      [3, 9, 12],
      [20, 7, 10],
      [21, 11, 14],
      [22, 6, 19],
      [23, 15, 18],
    ].map((corner) => corner.sort((a, b) => a - b).join());
    const kept = (turn: readonly number[]) =>
      corners.every((corner) =>
        corners.includes(
          corner
            .split(",")
            .map((sticker) => turn[Number(sticker)]!)
            .sort((a, b) => a - b)
            .join(),
        ),
      );
    expect(real.map(kept)).toEqual(real.map(() => true));
    expect(turns(true).map(kept)).toEqual(TURNS.map((name) => !name.startsWith("B")));
  });

  test("is solved in no more turns than it was scrambled by", () => {
    fc.assert(
      fc.property(fc.array(fc.nat({ max: 11 }), { maxLength: 3 }), (scramble) => {
        const state = scramble.reduce<readonly number[]>((now, turn) => turned(now, real[turn]!), SOLVED);
        const path = solveCube(state, real, scramble.length)!;
        expect(isSolved(path.reduce<readonly number[]>((now, turn) => turned(now, real[turn]!), state))).toBe(true);
      }),
      { numRuns: 50 },
    );
    expect(solveCube(turned(turned(SOLVED, real[0]!), real[4]!), real, 1)).toBeNull();
  });
});

describe("Sudoku", () => {
  // RAGEN's search for the full grid of this seed visits more cells than a minute allows.
  test("makes every board of 16 by 16 in a limited number of steps", () => {
    const { initial, solution } = generateSudoku(16, 102, true, 22);
    expect(initial.filter((value) => value === 0).length).toBe(102);
    for (const [cell, value] of solution.entries()) {
      expect(conflicts(solution.with(cell, 0), 16, cell, value)).toEqual([]);
    }
  });

  test("makes the same hard board of 16 by 16 in every version", () => {
    const { initial } = generateSudoku(16, 153, true, 3);
    expect(initial.slice(0, 16)).toEqual([0, 10, 0, 0, 7, 0, 12, 0, 0, 0, 11, 0, 0, 0, 0, 16]);
    expect(Bun.hash.crc32(initial.join(" "))).toBe(1693362921);
  });

  const puzzle = (size: 4 | 9 | 16, unique = true, seed = 5) =>
    generateSudoku(size, Math.floor(0.5 * size * size), unique, seed);

  test.each([4, 9, 16] as const)(
    "of size %p is full, legal, and has one solution where the config asks for that",
    (size) => {
      const { initial, solution } = puzzle(size);
      for (let cell = 0; cell < solution.length; cell++) {
        const others = solution.map((value, other) => (other === cell ? 0 : value));
        expect(conflicts(others, size, cell, solution[cell]!)).toEqual([]);
        expect([0, solution[cell]!]).toContain(initial[cell]!);
      }
      expect(solutionCount(initial, size, 2)).toBe(1);
    },
  );

  test("has puzzles with several solutions in RAGEN, although it says not", () => {
    const several = Array.from({ length: 40 }, (_, seed) => solutionCount(puzzle(4, false, seed).initial, 4, 2) > 1);
    expect(several).toContain(true);
  });

  test("counts solutions as trying every filling says", () => {
    fc.assert(
      fc.property(seeds, fc.integer({ min: 4, max: 9 }), (seed, blanks) => {
        const { initial } = generateSudoku(4, blanks, false, seed);
        expect(solutionCount(initial, 4, 1000)).toBe(countByTrying([...initial]));
      }),
      { numRuns: 30 },
    );
  });

  test("pays 1 for the solution's number, half for another that fits, 10 more for the last, and takes .1 for a refused one", () => {
    const config = SudokuConfig.parse({ gridSize: 4, difficulty: "hard", unique: false });
    const placed = (value: number, cell: number) =>
      `place ${value} at row ${Math.floor(cell / 4) + 1} col ${(cell % 4) + 1}`;
    for (let layout = 0; layout < 20; layout++) {
      const { puzzle } = new SudokuGame(config, { layout, dynamics: 0 });
      for (let cell = 0; cell < 16; cell++) {
        for (const value of [1, 2, 3, 4]) {
          const game = new SudokuGame(config, { layout, dynamics: 0 });
          const legal = puzzle.initial[cell] === 0 && conflicts(puzzle.initial, 4, cell, value).length === 0;
          const reward = legal ? (value === puzzle.solution[cell] ? 1 : 0.5) : -0.1;
          const valid = { effective: legal, valid: legal, done: false, success: false };
          expect(game.act(placed(value, cell))).toEqual({ reward, ...valid });
        }
      }
      const game = new SudokuGame(config, { layout, dynamics: 0 });
      const rewards = [];
      for (let hint = game.hint(); hint !== null; hint = game.hint()) {
        expect(hint.value).toBe(puzzle.solution[hint.cell]!);
        rewards.push(game.act(placed(hint.value, hint.cell)).reward);
      }
      // Of 16 cells a hard board blanks 60 %, rounded down.
      expect(rewards).toEqual([1, 1, 1, 1, 1, 1, 1, 1, 11]);
    }
  });

  test.each([
    ["easy", 6],
    ["medium", 8],
    ["hard", 9],
  ] as const)("blanks of a %s board of 16 cells %i", (difficulty, blanks) => {
    expect(blankCount(SudokuConfig.parse({ gridSize: 4, difficulty }))).toBe(blanks);
  });

  test("ends for a player who only says nonsense, which RAGEN's does not", () => {
    const ends = (refusedEnd: boolean) => {
      const config = SudokuConfig.parse({ gridSize: 4, maxSteps: 3, refusedEnd });
      const game = new SudokuGame(config, { layout: 1, dynamics: 1 });
      const refused = [1, 2, 3].map(() => game.act("hm").done);
      const { cell, value } = game.hint()!;
      const next = () => game.act(`place ${value} at row ${Math.floor(cell / 4) + 1} col ${(cell % 4) + 1}`).done;
      return refused.at(-1) ? refused : [...refused, next()];
    };
    expect(ends(true)).toEqual([false, false, true]);
    // RAGEN's looks at the limit, long passed, after a legal placement only.
    expect(ends(false)).toEqual([false, false, false, true]);
  });
});

/** Number of legal fillings of a 4 by 4 grid. */
function countByTrying(grid: number[]): number {
  const cell = grid.indexOf(0);
  if (cell < 0) return 1;
  let count = 0;
  for (let value = 1; value <= 4; value++) {
    if (conflicts(grid, 4, cell, value).length > 0) continue;
    grid[cell] = value;
    count += countByTrying(grid);
    grid[cell] = 0;
  }
  return count;
}

describe("answers", () => {
  test("a question's reward halves with each wrong answer", () => {
    const game = new QuestionGame({ text: "What is 2 + 2?", answer: metaMathLabel("2 and 2.\nThe answer is: 4 ") });
    expect(game.render()).toBe("What is 2 + 2?");
    expect([game.act("5"), game.act("3"), game.act(" 4")].map(({ reward }) => reward)).toEqual([0, 0, 0.25]);
    expect(() => game.act("4")).toThrow("this question is answered");
  });

  test("a search answer earns its word F1, from 0.3 on", () => {
    // 2 of 4 words right, 2 of 2 found: 2 * 0.5 * 1 / 1.5 = 2 / 3.
    expect(answerScore("Countess Ada of Lovelace", "Ada Lovelace")).toBeCloseTo(2 / 3, 12);
    expect(answerScore("the  ADA lovelace.", "Ada Lovelace")).toBe(1);
    expect(answerScore("no it is not", "no")).toBe(0);
    expect(answerScore("one two three four five six ada", "Ada Lovelace")).toBe(0);
  });
});

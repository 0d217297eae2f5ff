import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { envTag } from "../../envs/registry.ts";
import { SokobanConfig, SokobanGame } from "../../envs/sokoban/game.ts";
import { generateBoard } from "../../envs/sokoban/generate.ts";
import { renderCoordinates, renderGrid } from "../../envs/sokoban/render.ts";
import { type Board, SokobanState } from "../../envs/sokoban/rules.ts";
import { shortestPath } from "../../envs/sokoban/solve.ts";
import { openLocal } from "../../envs/tag.ts";
import { boardOf } from "./sokoban-boards.ts";

const SYMBOLS = SokobanConfig.parse({}).gridLookup;
const simple = SokobanConfig.parse({ numBoxes: 1 });
const larger = SokobanConfig.parse({ numBoxes: 2, dimRoom: [8, 8], searchDepth: 10 });
const seeds = fc.nat({ max: 0xffffffff });
const moves = fc.array(fc.nat({ max: 3 }), { maxLength: 40 });

/** A board drawn in symbols; S stands for a player on a target. */
function drawn(picture: string): Board {
  const codes = picture.split("\n").map((row) => [...row.trim()].map((symbol) => SYMBOLS.indexOf(symbol)));
  const fixed = codes.map((row) =>
    row.map((code) => (code === 0 ? 0 : code === 2 || code === 3 || code === 6 ? 2 : 1)),
  );
  return boardOf(
    fixed,
    codes.map((row) => row.map((code) => (code === 6 ? 5 : code))),
  );
}

const play = (picture: string, ...actions: number[]) => {
  const game = new SokobanGame(drawn(picture), simple);
  return { effects: actions.map((action) => game.act(action)), picture: game.render(), game };
};

const [UP, DOWN, LEFT, RIGHT] = [0, 1, 2, 3] as const;

describe("rules", () => {
  test("a push onto the last target earns -0.1 + 1 + 10 and ends the game", () => {
    const { effects, picture, game } = play("#####\n#OXP#\n#####", LEFT);
    expect(effects).toEqual([{ reward: 10.9, done: true, effective: true, valid: true, success: true }]);
    expect(picture).toBe("#####\n#√P_#\n#####");
    expect(() => game.act(UP)).toThrow("this Sokoban game is over; open a new one");
  });

  test("a push off a target costs 1 more, and onto one of two earns 1", () => {
    const picture = "#######\n#_OXP_#\n#_XO__#\n#######";
    const { effects } = play(picture, LEFT, LEFT);
    expect(effects.map(({ reward }) => reward)).toEqual([0.9, -1.1]);
  });

  test("a push from target to target neither earns nor costs", () => {
    const { effects } = play("#######\n#OOXP_#\n#X____#\n#######", LEFT, LEFT);
    expect(effects.map(({ reward }) => reward)).toEqual([0.9, -0.1]);
  });

  test("a board has a ring of walls", () => {
    for (const picture of [
      "#_##\n#XP#\n#O_#\n####",
      "####\n#XP#\n#O_#\n##_#",
      "####\n_XP#\n#O_#\n####",
      "####\n#XP#\n#O__\n####",
    ])
      expect(() => drawn(picture)).toThrow(/^cell \([0-3], [0-3]\) must be a wall$/);
  });

  test("a box against a wall, a box against a box and a wall do not move", () => {
    for (const [picture, action] of [
      ["#####\n#XPO#\n#####", LEFT],
      ["######\n#OXXP#\n#O___#\n######", LEFT],
      ["#####\n#XPO#\n#####", DOWN],
    ] as const) {
      const { effects, picture: after } = play(picture, action);
      expect(effects[0]).toMatchObject({ reward: -0.1, effective: false, done: false });
      expect(after).toBe(picture);
    }
  });

  test("a player on a target is shown, and leaves the target behind", () => {
    const picture = "######\n#XOP_#\n######";
    expect(play(picture, LEFT).picture).toBe("######\n#XS__#\n######");
    expect(play(picture, LEFT, RIGHT).picture).toBe(picture);
  });

  test("keeps its player and its boxes, shows what it is, and pays -0.1 a step at least, whatever is played", () => {
    fc.assert(
      fc.property(seeds, moves, (seed, actions) => {
        const game = new SokobanGame(generateBoard(larger, seed).board, larger);
        for (const action of actions) {
          const { reward, done } = game.act(action);
          expect([-1.1, -0.1, 0.9, 10.9].some((known) => Math.abs(known - reward) < 1e-9)).toBe(true);
          const shown = game.render();
          expect(shown).toBe(renderGrid(game.board, SYMBOLS));
          expect([...shown].filter((symbol) => symbol === "P" || symbol === "S")).toHaveLength(1);
          expect([...shown].filter((symbol) => symbol === "X" || symbol === "√")).toHaveLength(2);
          if (done) break;
        }
      }),
      { numRuns: 50 },
    );
  });

  test.each([
    ["without a player", [[0, 0, 0]], [[0, 0, 0]], "a board has 1 player, got 0"],
    ["with a box too many", [[0, 0, 0]], [[5, 4, 0]], "a board has as many boxes as targets, got 1 and 0"],
    ["with a layer too small", [[0, 1]], [[0, 5, 0]], "a 1 by 3 board needs 3 cells in each layer"],
    ["with a hole in its wall", [[0, 1, 0]], [[0, 5, 0]], "cell (0, 1) must be a wall"],
  ])("refuses a board %s", (_, fixed, state, message) => {
    expect(() => boardOf(fixed, state)).toThrow(message);
  });
});

describe("generateBoard", () => {
  test("gives equal boards for equal seeds, a ring of walls, and no box on a target", () => {
    fc.assert(
      fc.property(seeds, fc.constantFrom(simple, larger), (seed, config) => {
        const { board } = generateBoard(config, seed);
        expect(generateBoard(config, seed).board).toEqual(board);
        expect(renderGrid(board, SYMBOLS)).not.toContain("√");
        expect(boardOf([...rows(board, board.fixed)], [...rows(board, board.state)])).toEqual(board);
      }),
      { numRuns: 60 },
    );
  });

  test("gives boards that can be solved", () => {
    fc.assert(
      fc.property(seeds, (seed) => {
        expect(shortestPath(generateBoard(simple, seed).board)?.length).toBeGreaterThan(0);
      }),
      { numRuns: 100 },
    );
  });

  test("says what to change when a room has no place for its boxes", () => {
    const config = { dimRoom: [4, 4] as [number, number], numBoxes: 4, searchDepth: 5 };
    expect(() => generateBoard(config, 1)).toThrow(
      "cannot make a 4 by 4 Sokoban board with 4 boxes from seed 1 or 99 seeds made from it; use a larger room",
    );
  });
});

function* rows(board: Board, cells: Uint8Array): Generator<number[]> {
  for (let row = 0; row < board.rows; row++) yield [...cells.slice(row * board.cols, (row + 1) * board.cols)];
}

describe("shortestPath", () => {
  test("is as short as trying every sequence of actions says, and solves the board", () => {
    for (let seed = 0; seed < 40; seed++) {
      const path = shortestPath(generateBoard(simple, seed).board)!;
      if (path.length > 5) continue;
      expect(path.length).toBe(bruteForce(seed));
      const game = new SokobanGame(generateBoard(simple, seed).board, simple);
      expect(path.map((action) => game.act(action).success).indexOf(true)).toBe(path.length - 1);
    }
  });

  test("is empty for a solved board and null for a box in a corner", () => {
    expect(shortestPath(drawn("#####\n#√P_#\n#####"))).toEqual([]);
    expect(shortestPath(drawn("#####\n#X__#\n#_PO#\n#####"))).toBeNull();
  });
});

/** Fewest actions that solve the board of a seed, found by playing every sequence of up to 5. */
function bruteForce(seed: number): number {
  for (let length = 1; length <= 5; length++) {
    for (let code = 0; code < 4 ** length; code++) {
      const game = new SokobanGame(generateBoard(simple, seed).board, simple);
      for (let i = 0; i < length; i++) {
        const { done, success } = game.act((code >> (2 * i)) & 3);
        if (success) return i + 1;
        if (done) break;
      }
    }
  }
  return Number.POSITIVE_INFINITY;
}

describe("games of one board", () => {
  test.each(["SimpleSokoban", "LargerSokoban", "SokobanDifferentGridVocab", "CoordSokoban"])(
    "of %s show what a game of its own shows, whatever was played before",
    (name) => {
      const tag = envTag(name);
      const config = SokobanConfig.parse(tag.config);
      fc.assert(
        fc.property(seeds, fc.array(moves, { minLength: 2, maxLength: 6 }), (layout, plays) => {
          for (const actions of plays) {
            const game = openLocal(tag, { layout, dynamics: 0 }) as SokobanGame;
            for (const action of actions) {
              const own = new SokobanGame(game.board, config);
              expect(game.render()).toBe(own.render());
              if (game.act(action).done) break;
            }
          }
        }),
        { numRuns: 30 },
      );
    },
  );

  test("draw a position only once", () => {
    const texts = new Map<number, string>();
    const open = () => new SokobanGame(drawn("######\n#PX_O#\n######"), simple, texts);
    open().render();
    for (const position of texts.keys()) texts.set(position, "drawn before");
    expect(open().render()).toBe("drawn before");
  });

  test("keep at most 100,000 texts", () => {
    const texts = new Map(Array.from({ length: 100_000 }, (_, i) => [-1 - i, "old"]));
    const game = new SokobanGame(drawn("######\n#PX_O#\n######"), simple, texts);
    expect(game.render()).toBe("######\n#PX_O#\n######");
    expect(texts.size).toBe(1);
  });

  test("tell apart positions of the largest board with the most boxes", () => {
    const floor = "_".repeat(10);
    const lines = (...last: string[]) =>
      drawn(
        ["#".repeat(16), `#OOOO${floor}#`, ...Array(11).fill(`#____${floor}#`), ...last, "#".repeat(16)].join("\n"),
      );
    const positions = [
      lines(`#${floor}__P_#`, "#_________XX_XX#"),
      lines(`#${floor}___P#`, "#_________XX_XX#"),
      lines(`#${floor}__P_#`, "#________X__XXX#"),
    ].map((board) => new SokobanState(board, 100).position);
    expect(new Set(positions).size).toBe(3);
    expect(Math.max(...positions)).toBeLessThan(2 ** 53);
  });
});

test("coordinates name every target, and only what there is", () => {
  expect(renderCoordinates(drawn("#####\n#√S_#\n#X__#\n#####"))).toBe(
    "Board size: 4 rows x 5 cols (zero-indexed).\nTargets: (1, 1), (1, 2)\nBoxes: (2, 1)\nBoxes on target: (1, 1)\nPlayer on target: (1, 2)",
  );
});

test("the best possible is 1 where a shortest solution fits the actions, else 0", () => {
  const tag = envTag("SimpleSokoban", {});
  const game = new SokobanGame(drawn("######\n#PX_O#\n######"), simple);
  expect([tag.best(game, 1), tag.best(game, 2), tag.best(game, 3)]).toEqual([0, 1, 1]);
  expect(tag.best(new SokobanGame(drawn("#####\n#X__#\n#_PO#\n#####"), simple), 100)).toBe(0);
});

test("the brief observation has the cells within the walls, or all coordinates", () => {
  const told = (tag: string, options: object) => {
    const made = envTag(tag, options);
    const observation = openLocal(made, { layout: 5, dynamics: 5 }).render();
    return { observation, brief: made.brief(observation) };
  };
  const inner = (grid: string) =>
    grid
      .split("\n")
      .slice(1, 5)
      .map((row) => row.slice(1, 5))
      .join("");
  const grid = told("SimpleSokoban", {});
  expect(grid.brief).toBe(inner(grid.observation));
  const both = told("CoordSokoban", {});
  expect(both.brief).toBe(inner(both.observation.split("Grid Map: \n")[1]!));
  const coord = told("CoordSokoban", { observationFormat: "coord" });
  expect(`Board size: 6 rows x 6 cols (zero-indexed).\n${coord.brief}`).toBe(coord.observation);
});

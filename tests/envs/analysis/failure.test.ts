/** Why episodes failed, worked by hand on real games of each kind. */
import { describe, expect, test } from "bun:test";
import { FAILURES, type Failure, failureOf } from "../../../envs/analysis/failure.ts";
import { BanditConfig, BanditGame } from "../../../envs/bandit/game.ts";
import { CountdownGame } from "../../../envs/countdown/game.ts";
import type { LanguageGame, LocalGame } from "../../../envs/env.ts";
import { openEpisode } from "../../../envs/episode.ts";
import { FrozenLakeConfig, FrozenLakeGame } from "../../../envs/frozen-lake/game.ts";
import { QuestionGame } from "../../../envs/questions/game.ts";
import { envTag } from "../../../envs/registry.ts";
import { SokobanConfig, SokobanGame } from "../../../envs/sokoban/game.ts";
import type { EnvTag } from "../../../envs/tag.ts";
import { boardOf } from "../sokoban-boards.ts";

const BUDGETS = { turnsMax: 5, actionsMax: 10, actionsPerTurnMax: 5, formatPenalty: -0.1, think: false };

/** Each reply is a list of actions, or words without the form. */
function played(
  game: LocalGame,
  replies: readonly (readonly string[] | string)[],
  stateOf?: EnvTag["stateOf"],
): Failure | null {
  const env = openEpisode(game, BUDGETS);
  let observation = env.opening;
  const turns: { observation: string; wellFormed: boolean }[] = [];
  const extra: Record<string, number> = {};
  let success = false;
  for (const reply of replies) {
    const turn = env.step(typeof reply === "string" ? reply : `<answer>${reply.join(" || ")}</answer>`);
    turns.push({ observation, wellFormed: turn.wellFormed });
    for (const [name, value] of Object.entries(turn.extra)) extra[name] = (extra[name] ?? 0) + value;
    ({ observation, success } = turn);
  }
  return failureOf({ success, turns, finalObservation: observation, extra }, stateOf);
}

/** `#` wall, `_` floor, O target, X box, P player. */
function sokoban(picture: string): SokobanGame {
  const codes = picture.split("\n").map((row) => [...row].map((symbol) => "#_O√XP".indexOf(symbol)));
  const fixed = codes.map((row) => row.map((code) => (code === 0 ? 0 : code === 2 || code === 3 ? 2 : 1)));
  return new SokobanGame(boardOf(fixed, codes), SokobanConfig.parse({ numBoxes: 1 }));
}

const ROOM = "######\n#____#\n#_PX_#\n#__O_#\n######";
const once = (action: string) => [action];

describe("Sokoban", () => {
  test.each<[string, (string | string[])[], Failure | null]>([
    // Right: the box stands at the right wall, and the target is one column to the left.
    ["a box at the wall beside its target's column", ["Right", "Left", "Left", "Up", "Down"].map(once), "dead_end"],
    ["to and fro between two cells", ["Left", "Right", "Left", "Right", "Left"].map(once), "local_cycle"],
    ["into a wall again and again", ["Left", "Left", "Left", "Left", "Left"].map(once), "local_cycle"],
    ["a walk that never repeats itself", ["Up", "Right", "Right", "Down", "Down"].map(once), "budget"],
    ["two of four turns without the form, and a lost box", [["Right"], "right", ["Up"], "up"], "invalid_format"],
    ["two of five turns without the form", [["Up"], "up", ["Right"], "right", ["Right"]], "budget"],
    ["two of five turns that came back", ["Left", "Right", "Up", "Down", "Down"].map(once), "budget"],
    ["a solved board, whatever the turns were like", ["hm", "hm", ["Up", "Right", "Down"]], null],
  ])("%s", (_, replies, failure) => {
    expect(played(sokoban(ROOM), replies)).toBe(failure);
  });

  test("of a large board, a box in a corner is known to be lost, and others are not", () => {
    const wide = (row: string) => `#${row.padEnd(12, "_")}#`;
    const large = (first: string) =>
      sokoban([`${"#".repeat(14)}`, wide(first), ...Array(8).fill(wide("")), wide("O"), "#".repeat(14)].join("\n"));
    expect(large("X__P").isLost()).toBe(true);
    expect(large("_X_P").isLost()).toBe(false);
    const rows = ["#".repeat(14), wide("O__P"), ...Array(8).fill(wide("")), wide("___________X"), "#".repeat(14)];
    expect(sokoban(rows.join("\n")).isLost()).toBe(true);
  });
});

test("FrozenLake: a hole is a dead end, standing at the shore a local cycle", () => {
  const lake = { size: 2, holes: Uint8Array.of(0, 1, 0, 0), start: 0, goal: 3 };
  const game = () =>
    new FrozenLakeGame(lake, FrozenLakeConfig.parse({ size: 2, isSlippery: false }), { layout: 1, dynamics: 1 });
  expect(played(game(), [["Right"]])).toBe("dead_end");
  expect(played(game(), [["Left"], ["Up"], ["Left"], ["Up"], ["Left"]])).toBe("local_cycle");
  expect(played(game(), [["Down"], ["Right"]])).toBe(null);
});

test("games of one answer: a wrong one is a premature stop", () => {
  const bandit = new BanditGame(BanditConfig.parse({}), { layout: 3, dynamics: 3 });
  expect(played(bandit, [[bandit.low]])).toBe("premature_stop");
  const countdown = () => new CountdownGame({ nums: [2, 3], target: 6 }, { score: 1, formatScore: 0.1 });
  expect(played(countdown(), [["2 + 3"]])).toBe("premature_stop");
  expect(played(countdown(), [["2 * 3"]])).toBe(null);
});

test("a question answered wrongly until the turns are over is a matter of budget, not of going in circles", () => {
  const game = new QuestionGame({ text: "1 + 1?", answer: "2" });
  expect(played(game, ["3", "4", "5", "6", "7"].map(once), () => null)).toBe("budget");
});

test("Rubik's cube: its counter of steps is no part of its state", () => {
  const tag = envTag("rubikscube");
  const game = tag.open({ layout: 5, dynamics: 5 }) as LocalGame;
  expect(played(game, ["U", "U'", "U", "U'", "U"].map(once), tag.stateOf)).toBe("local_cycle");
});

test("Sudoku: a refused placement leads back to the same board, whatever the steps and the feedback are", () => {
  const tag = envTag("SimpleSudoku");
  const game = () => tag.open({ layout: 1, dynamics: 1 }) as LocalGame;
  const replies = ["place 9 at row 1 col 1", "7,7,7", "hm", "place 0 at row 1 col 2", "1"].map(once);
  expect(played(game(), replies, tag.stateOf)).toBe("local_cycle");
  const placed = tag.open({ layout: 1, dynamics: 1 }) as LanguageGame;
  const placements = Array.from({ length: 5 }, () => {
    const action = tag.optimal!(placed, 9, Math.random) as string;
    placed.act(action);
    return [action];
  });
  expect(played(game(), placements, tag.stateOf)).toBe("budget");
});

test("each failure of random play has exactly one class", async () => {
  const seen = new Set<Failure | null>();
  for (const name of ["SimpleSokoban", "FrozenLake", "Bandit", "Countdown", "game_2048", "SimpleSudoku"]) {
    const tag = envTag(name);
    for (let seed = 0; seed < 20; seed++) {
      const game = tag.open({ layout: seed, dynamics: seed }) as LocalGame;
      const failure = played(
        game,
        [game.kind === "discrete" ? [game.actions[seed % game.actions.length]!] : ["1"]],
        tag.stateOf,
      );
      if (failure !== null) expect(FAILURES).toContain(failure);
      seen.add(failure);
    }
  }
  expect(seen).toContain("dead_end");
  expect(seen).toContain("premature_stop");
});

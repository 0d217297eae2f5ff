import { describe, expect, test } from "bun:test";
import { mkdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { decode } from "fast-png";
import { envTag } from "../../envs/registry.ts";
import type { SokobanGame } from "../../envs/sokoban/game.ts";
import { sokobanPicture } from "../../envs/sokoban/render.ts";
import { command, commandHere } from "./command.ts";
import { temporaryFolder } from "./temporary.ts";

describe("bun run board", () => {
  const out = join(temporaryFolder(), "board.png");
  mkdirSync(join(dirname(out), "folder.png"));

  test("writes the board of a seed as a PNG", async () => {
    const ended = await command(["board", "--env", "LargerSokoban", "--seed", "7", "--out", out]);
    expect([ended.code, ended.out]).toEqual([0, `${out}\n`]);
    const { width, height, channels, data } = decode(readFileSync(out), { checkCrc: true });
    expect([width, height, channels]).toEqual([256, 256, 3]);
    const game = envTag("LargerSokoban").open({ layout: 7, dynamics: 7 }) as SokobanGame;
    expect(Buffer.compare(data as Uint8Array, sokobanPicture(game.board).rgb)).toBe(0);
  });

  test("writes a way as a strip: a picture before the first action and after each", async () => {
    const game = envTag("SimpleSokoban").open({ layout: 123, dynamics: 123 }) as SokobanGame;
    let actions = 0;
    for (let done = false; !done; actions++) {
      done = game.act(Number(envTag("SimpleSokoban").optimal!(game, 10 - actions, () => 0))).done;
    }
    expect((await commandHere(["board", "--policy", "optimal", "--out", out])).code).toBe(0);
    const { width, height } = decode(readFileSync(out), { checkCrc: true });
    const [columns, rows] = [Math.min(5, actions + 1), Math.ceil((actions + 1) / 5)];
    expect([width, height]).toEqual([columns * 200 - 8, rows * 200 - 8]);
  });

  test("writes as many actions of a way as it may have", async () => {
    expect((await commandHere(["board", "--policy", "random", "--env.actionsMax=2", "--out", out])).code).toBe(0);
    expect(decode(readFileSync(out), { checkCrc: true }).width).toBe(3 * 200 - 8);
  });

  test.each([
    [["--env", "Bandit"], "Bandit draws no pictures; use one of SimpleSokoban, LargerSokoban"],
    [["--out", "board.jpg"], "--out board.jpg: the file must end in .png"],
    [["--policy", "best"], "--policy must be random or optimal, got best"],
    [["--seed", "4294967296"], "--seed must be below 4294967296"],
    [["--out", join(dirname(out), "folder.png")], "folder.png: EISDIR: illegal operation on a directory"],
    [["--env.actionsMax=0"], "--env.actionsMax must be a whole number, 1 or more, got 0"],
    [["--env.actionsMax=5"], "--env.actionsMax limits the actions of a player; add --policy, or leave it out"],
    [["--env.actionsMax=-5", "--policy", "random"], "--env.actionsMax must be a whole number, 1 or more, got -5"],
    [["--learner.updates=3"], "board takes env.options and env.actionsMax only; leave it out"],
  ])("refuses %j in one line", async (args, message) => {
    const { code, err } = await commandHere(["board", ...args]);
    expect(code).toBe(2);
    expect(err).toContain(message);
    expect(err.trim().split("\n")).toHaveLength(1);
  });
});

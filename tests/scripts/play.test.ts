/** `bun run play` as a person uses it: lines in, boards out. */
import { describe, expect, test } from "bun:test";
import { envTag } from "../../envs/registry.ts";
import { dynamicsSeed } from "../../envs/seeds.ts";
import { root } from "./command.ts";

async function play(lines: string, ...args: string[]) {
  const child = Bun.spawn([process.execPath, "scripts/run.ts", "play", ...args], {
    cwd: root,
    stdio: [new Blob([lines]), "pipe", "pipe"],
  });
  const [out, err, code] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited]);
  return {
    out,
    err,
    code,
    told: args.includes("--json") && code === 0 ? JSON.parse(out.trim().split("\n").at(-1)!) : null,
  };
}

describe("a game by hand", () => {
  test("is solved by the best player's actions, typed", async () => {
    const tag = envTag("SimpleSokoban");
    const game = tag.open({ layout: 5, dynamics: 5 });
    if (game.kind !== "discrete") throw new Error("Sokoban is discrete");
    const typed: string[] = [];
    for (let left = tag.actionsMax; left > 0; left--) {
      const action = Number(tag.optimal!(game, left, () => 0));
      typed.push(game.actions[action]!);
      if (game.act(action).done) break;
    }
    const half = Math.ceil(typed.length / 2);
    const lines = `${typed.slice(0, half).join(" || ")}\n${typed.slice(half).join(" || ")}\n`;
    const { told, out } = await play(lines, "SimpleSokoban", "--seed", "5", "--json");
    expect(told).toMatchObject({ solved: true, ending: "success", turns: 2, actions: typed.length, best: 1 });
    // A step costs 0.1, a box on its target earns 1 and the task 10.
    expect(told.reward).toBeCloseTo(11 - 0.1 * typed.length, 9);
    expect(out).toContain("10 actions left> ");
    expect(out).not.toContain("(the actions are");
  });

  test("says what the actions are when none was meant, and takes an empty line as giving up", async () => {
    const { told, out } = await play("jump\n\n", "SimpleSokoban", "--json");
    expect(told).toMatchObject({ solved: false, ending: null, reward: -0.1, turns: 1, actions: 0 });
    expect(out).toContain("reward -0.1, 1 turn, 0 actions");
    expect(out).toContain("nothing was executed (the actions are Up, Down, Left, Right): reward 0, penalty -0.1");
  });

  test("has the dynamics of the first episode that a run plays on the board", async () => {
    const pay = (layout: number, dynamics: number) => {
      const game = envTag("Bandit").open({ layout, dynamics });
      if (game.kind !== "discrete") throw new Error("Bandit is discrete");
      return game.act(game.actions.indexOf("Dragon")).reward;
    };
    let seed = 0;
    while (pay(seed, seed) === pay(seed, dynamicsSeed(seed, 0))) seed++;
    const { told } = await play("Dragon\n", "Bandit", "--seed", String(seed), "--json");
    expect(told.reward).toBe(pay(seed, dynamicsSeed(seed, 0)));
  });

  test("takes the env's own options, and answers of any text", async () => {
    const lake = await play("Right\n", "FrozenLake", "--env.options.successRate=1", "--env.actionsMax=1", "--json");
    expect(lake.told).toMatchObject({ solved: false, ending: "actions", turns: 1, actions: 1 });
    expect((await play("1 + 1\n", "Countdown", "--json")).told).toMatchObject({ env: "Countdown", turns: 1 });
  });

  test.each([
    [["Sokobann"], /^error: unknown env tag "Sokobann"; nearest: \w/],
    [["Bandit", "--learner.updates=3"], /^error: --learner\.updates=3: play takes only keys of env/],
    [["Bandit", "--env.mix=[]"], /^error: --env\.mix=\[\]: this command plays one env; leave it out\n$/],
    [["Bandit", "--seed", "4294967296"], /^error: --seed must be below 4294967296, got 4294967296\n$/],
    [["Bandit", "--sed", "3"], /^error: play has no flag --sed; did you mean --seed\?\n$/],
    [[], /^error: name the env to play: /],
  ])("refuses %p in one line", async (args, message) => {
    const { code, err } = await play("", ...args);
    expect(code).toBe(2);
    expect(err).toMatch(message);
  });
});

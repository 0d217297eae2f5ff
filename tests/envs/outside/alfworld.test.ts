/**
 * Alfworld through the real server script, in Python, over a stand-in for TextWorld: one kitchen, in which the apple of the
 * task has to be found and put on the table.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { evaluatePlayer } from "../../../envs/analysis/evaluate.ts";
import type { OutsideGame } from "../../../envs/env.ts";
import { openEpisode } from "../../../envs/episode.ts";
import { envTag } from "../../../envs/registry.ts";
import { contextMessages } from "../../../envs/text/context.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";
import { type PythonServer, startPython } from "./python-server.ts";

const folder = temporaryFolder();
let python: PythonServer;

/** TextWorld as far as the script uses it. Where the apple is stands in the game's file. */
const TEXTWORLD = `
import json

class EnvInfos:
    def __init__(self, **asked): self.asked = asked

class Kitchen:
    def __init__(self, path):
        with open(path) as file: self.place = json.load(file)["place"]
    def say(self, feedback, won=False):
        go = [f"go to {place}" for place in ("fridge 1", "drawer 1", "table 1")]
        here = ["take apple 1 from " + self.at] if self.at == self.place and not self.held else []
        put = ["put apple 1 on table 1"] if self.held and self.at == "table 1" else []
        plan = put or here or [f"go to {'table 1' if self.held else self.place}"]
        self.state = {"feedback": feedback, "won": won, "admissible_commands": go + here + put, "extra.expert_plan": plan}
        return self.state
    def reset(self):
        self.at, self.held, self.steps = "door", False, 0
        return self.say("-= Welcome to TextWorld, ALFRED! =-\\n\\nYou are in the middle of a room.\\n\\nYour task is to: put the apple on the table.")
    def step(self, command):
        self.steps += 1
        if command not in self.state["admissible_commands"]: return self.say("Nothing happens."), 0, False
        if command.startswith("go to "): self.at = command[6:]
        if command.startswith("take"): self.held = True
        won = command.startswith("put")
        return self.say(f"You {command}.", won), int(won), won
    def close(self): pass

def start(path, infos, wrappers):
    assert infos.asked["admissible_commands"] and infos.asked["won"]
    env = Kitchen(path)
    env.expert = "AlfredExpert" in [type(one).__name__ for one in wrappers]
    return env
`;
const WRAPPERS = "class AlfredDemangler: pass\nclass AlfredInfos: pass\nclass AlfredExpert: pass\n";

beforeAll(async () => {
  const write = (path: string, text: string) => {
    mkdirSync(join(folder, path, ".."), { recursive: true });
    writeFileSync(join(folder, path), text);
  };
  write("textworld.py", TEXTWORLD);
  for (const name of ["", "agents/", "agents/environment/"]) write(`alfworld/${name}__init__.py`, "");
  write("alfworld/agents/environment/alfred_tw_env.py", WRAPPERS);
  write("alfworld/info.py", `ALFWORLD_DATA = ${JSON.stringify(folder)}\n`);
  const game = (path: string, place: string, solvable = true) =>
    write(`json_2.1.1/${path}/game.tw-pddl`, JSON.stringify({ place, solvable }));
  game("train/a", "fridge 1");
  game("train/b", "drawer 1");
  game("train/unsolvable", "nowhere", false);
  game("train/movable_c", "nowhere");
  game("valid_seen/a", "drawer 1");
  game("valid_unseen/a", "fridge 1");
  python = await startPython("alfworld_env.py", [], { PYTHONPATH: folder });
});
afterAll(() => python[Symbol.asyncDispose]());

const tagOf = (name: string, options: object = {}) => envTag(name, { url: python.url, ...options });

async function opened(name: string, layout: number, options: object = {}) {
  const game = tagOf(name, options).open({ layout, dynamics: 0 }) as OutsideGame;
  await game.start();
  return game;
}

const GO = "go to fridge 1, go to drawer 1, go to table 1";

describe("Alfworld", () => {
  test("shows RAGEN's text, and pays for the solved task alone", async () => {
    const game = await opened("Alfworld", 20_000);
    expect(game.render()).toBe(
      "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room.\n\n" +
        `Your task is to: put the apple on the table.\n\nAdmissible actions: [${GO}]`,
    );
    const still = { reward: 0, done: false, effective: true, success: false };
    expect(await game.act("eat the apple")).toEqual({ ...still, valid: false });
    expect(game.render()).toBe(`Nothing happens.\n\nAdmissible actions: [${GO}]`);
    expect(await game.act("go to fridge 1")).toEqual({ ...still, valid: true });
    expect(game.render()).toBe(`You go to fridge 1.\n\nAdmissible actions: [${GO}, take apple 1 from fridge 1]`);
    await game.act("take apple 1 from fridge 1");
    await game.act("go to table 1");
    expect(await game.act("put apple 1 on table 1")).toEqual({
      reward: 10,
      done: true,
      effective: true,
      valid: true,
      success: true,
    });
    await game.close();
  });

  test("takes its game by the layout seed from the split's solvable ones", async () => {
    const takes = async (name: string, layout: number, options = {}) => {
      const game = await opened(name, layout, options);
      await game.act("go to fridge 1");
      const inFridge = game.render().includes("take apple 1");
      await game.close();
      return inFridge ? "fridge" : "drawer";
    };
    // Training has two games; the unsolvable one and that with movable objects are left out.
    expect([await takes("Alfworld", 20_000), await takes("Alfworld", 20_001)]).toEqual(["fridge", "drawer"]);
    expect([await takes("Alfworld", 123), await takes("AlfworldOOD", 123)]).toEqual(["drawer", "fridge"]);
    expect(await takes("AlfworldOOD", 123, { split: "train" })).toBe("drawer");
  });

  test("ends after fifty steps", async () => {
    const game = await opened("Alfworld", 1);
    for (let step = 1; step < 50; step++) expect((await game.act("look")).done).toBe(false);
    expect(await game.act("look")).toMatchObject({ done: true, success: false, reward: 0 });
    await game.close();
  });

  test("plays 64 random episodes beside ALFWorld's own expert", async () => {
    const tag = tagOf("Alfworld", { expert: true });
    const options = { episodes: 64, seed: 123 };
    expect(await evaluatePlayer(tag, tag.expert!, options)).toMatchObject({
      success: 1,
      meanActions: 4,
      meanReward: 10,
    });
    const { success } = await evaluatePlayer(tag, tag.random, { ...options, actionsMax: 8 });
    expect(success).toBeWithin(0.02, 0.6);
    expect(tagOf("Alfworld").expert).toBeUndefined();
  });

  test("prompts with one message that sums up the last turns", async () => {
    const tag = tagOf("Alfworld");
    const rules = { turnsMax: 50, actionsMax: 50, actionsPerTurnMax: 1, formatPenalty: 0, think: true };
    const env = await openEpisode(tag.open({ layout: 20_000, dynamics: 0 }), rules);
    const reply = "<think>look there</think><answer>go to fridge 1</answer>";
    const turn = await env.step(reply);
    const first = { observation: env.opening, actionsLeft: 50, reply, reward: turn.reward, actions: turn.actions };
    const history = { answered: [first], now: { observation: turn.observation, actionsLeft: turn.actionsLeft } };
    const [system, user] = contextMessages(tag, history, { layout: "ragen-v2", mode: "single_turn", window: 5 });
    expect(system!.content).toContain("You are an expert agent in the ALFRED Embodied Environment.");
    expect(user!.content).toContain("Your task is to: put the apple on the table.");
    expect(user!.content).toContain("Action 1: 'go to fridge 1'");
    expect(user!.content).toContain(
      `Your admissible actions of the current situation are: [${GO}, take apple 1 from fridge 1]`,
    );
    await env.close();
  });

  test("says how to get a server where there is none", async () => {
    const gone = Bun.serve({ port: 0, hostname: "127.0.0.1", fetch: () => new Response() });
    const url = `http://127.0.0.1:${gone.port}`;
    await gone.stop(true);
    const game = envTag("Alfworld", { url, retriesMax: 0 }).open({ layout: 1, dynamics: 1 }) as OutsideGame;
    expect(await game.start().catch(String)).toContain("(after `pip install alfworld` and `alfworld-download`)");
  });
});

test("the server says what it lacks", async () => {
  const bare = join(folder, "bare");
  mkdirSync(bare);
  writeFileSync(join(bare, "textworld.py"), 'raise ImportError("No module named textworld")\n');
  expect(await startPython("alfworld_env.py", [], { PYTHONPATH: bare }).catch(String)).toContain(
    "run `pip install alfworld`, then `alfworld-download`",
  );
});
